// Package schedule reads the times at which a variant has other bounds, and says which of them are in force.
//
// An entry is in force from each time of its cron expression, for its duration. Clocks are changed twice a year in most zones: a time that
// the clock skips begins when the clock has skipped it, and a time that the clock shows twice begins at the first. Durations are real time.
package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"fairlead.dev/pkg/apis/llmd/v1alpha1"
	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Bounds of what objects may say. The CRD has the same; annotations are checked by nothing else.
const (
	// MaxText is the largest JSON of a schedule, in bytes. The largest one that the CRD accepts has 10 kB.
	MaxText     = 16 << 10
	maxEntries  = 32
	maxCron     = 128
	maxZone     = 64
	minDuration = time.Minute
	maxDuration = 7 * 24 * time.Hour
)

// Read reads the JSON of spec.schedule. The error names the entry and says what it may have.
func Read(text string) ([]snapshot.Schedule, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("it has more than %d bytes", MaxText)
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	var entries []v1alpha1.ScheduledBounds
	if err := decoder.Decode(&entries); err != nil {
		return nil, fmt.Errorf("it is not a list of entries with cron, timeZone, duration, minReplicas and maxReplicas: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has something after the list")
	}
	if len(entries) > maxEntries {
		return nil, fmt.Errorf("it has %d entries: at most %d are possible", len(entries), maxEntries)
	}
	bounds := make([]snapshot.Schedule, 0, len(entries))
	for i := range entries {
		s, err := readEntry(&entries[i])
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		bounds = append(bounds, s)
	}
	return bounds, nil
}

func readEntry(e *v1alpha1.ScheduledBounds) (snapshot.Schedule, error) {
	bounds := snapshot.Schedule{Cron: e.Cron, TimeZone: e.TimeZone, Min: toInt(e.MinReplicas), Max: toInt(e.MaxReplicas)}
	rule, err := parseCron(e.Cron)
	if err != nil {
		return bounds, err
	}
	if rule.Next(time.Unix(0, 0).UTC()).IsZero() {
		return bounds, fmt.Errorf("cron %q is never", e.Cron)
	}
	if _, err := loadZone(e.TimeZone); err != nil {
		return bounds, err
	}
	bounds.Duration, err = time.ParseDuration(e.Duration)
	if err != nil || bounds.Duration < minDuration || bounds.Duration > maxDuration {
		return bounds, fmt.Errorf("duration %.40q: use a time from 1m to 168h", e.Duration)
	}
	return bounds, checkBounds(bounds.Min, bounds.Max)
}

func toInt(n *int32) *int {
	if n == nil {
		return nil
	}
	return new(int(*n))
}

func checkBounds(low, high *int) error {
	switch {
	case low == nil && high == nil:
		return errors.New("minReplicas or maxReplicas is missing")
	case low != nil && (*low < 0 || *low > optimizer.MaxReplicas):
		return fmt.Errorf("minReplicas is %d: use 0 to %d", *low, optimizer.MaxReplicas)
	case high != nil && (*high < 1 || *high > optimizer.MaxReplicas):
		return fmt.Errorf("maxReplicas is %d: use 1 to %d", *high, optimizer.MaxReplicas)
	}
	return nil
}

// parseCron reads a cron expression with five fields. The parser also knows intervals and time zones within the expression: an interval has
// no times that durations could begin at, and the zone has a field.
func parseCron(text string) (*cron.SpecSchedule, error) {
	const usage = "use five fields: minute, hour, day of month, month, day of week"
	if len(text) > maxCron {
		return nil, fmt.Errorf("cron has more than %d characters: %s", maxCron, usage)
	}
	if strings.ContainsAny(text, "=@") {
		return nil, fmt.Errorf("cron %q: %s; the time zone is in timeZone", text, usage)
	}
	rule, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("cron %q: %w: %s", text, err, usage)
	}
	spec, ok := rule.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("cron %q: %s", text, usage)
	}
	return spec, nil
}

// loadZone returns a time zone. Local is the zone of the machine that happens to lead.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" || len(name) > maxZone {
		return nil, fmt.Errorf("timeZone %.70q: use a name such as Europe/Berlin, or nothing for UTC", name)
	}
	l, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("timeZone %q is not known: use a name such as Europe/Berlin, or nothing for UTC", name)
	}
	return l, nil
}
