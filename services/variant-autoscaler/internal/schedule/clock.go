package schedule

import (
	"time"

	"github.com/robfig/cron/v3"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Clock tells which entries are in force at a time. It reads each expression and each zone once: ten thousand variants have few. It is not
// safe for concurrent use.
type Clock struct {
	at    time.Time
	rules map[string]*cron.SpecSchedule // nil: cannot be read
	zones map[string]*time.Location
}

// NewClock returns a Clock for a time.
func NewClock(at time.Time) *Clock {
	return &Clock{at: at, rules: map[string]*cron.SpecSchedule{}, zones: map[string]*time.Location{}}
}

// LastInForce returns the last entry that is in force, or nil. An invalid entry has no effect: Read refuses it.
func (c *Clock) LastInForce(entries []snapshot.Schedule) *snapshot.Schedule {
	for i := len(entries) - 1; i >= 0; i-- {
		if c.inForce(&entries[i]) {
			return &entries[i]
		}
	}
	return nil
}

func (c *Clock) inForce(s *snapshot.Schedule) bool {
	rule, found := c.rules[s.Cron]
	if !found {
		rule, _ = parseCron(s.Cron)
		c.rules[s.Cron] = rule
	}
	l, found := c.zones[s.TimeZone]
	if !found {
		l, _ = loadZone(s.TimeZone)
		c.zones[s.TimeZone] = l
	}
	if rule == nil || l == nil {
		return false
	}
	begin := lastBegin(rule, c.at.In(l))
	return !begin.IsZero() && c.at.Sub(begin) < s.Duration
}

// lastBegin returns the last time of an expression up to a time, or zero if there was none in maxDuration.
func lastBegin(rule *cron.SpecSchedule, at time.Time) time.Time {
	const days = int(maxDuration / (24 * time.Hour))
	year, month, day := at.Date()
	for back := range days + 2 { // clocks may have been set back meanwhile
		date := time.Date(year, month, day-back, 0, 0, 0, 0, time.UTC)
		if !matchesDate(rule, date) {
			continue
		}
		for hour := 23; hour >= 0; hour-- {
			if rule.Hour&(1<<hour) == 0 {
				continue
			}
			for minute := 59; minute >= 0; minute-- {
				if rule.Minute&(1<<minute) == 0 {
					continue
				}
				wall := date.Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute)
				if begin := instantOf(wall, at.Location()); !begin.After(at) {
					return begin
				}
			}
		}
	}
	return time.Time{}
}

// matchesDate reports whether an expression has times on a date. As in cron, either of the days of month and week suffices if both are
// restricted.
func matchesDate(rule *cron.SpecSchedule, date time.Time) bool {
	const star = 1 << 63
	ofMonth, ofWeek := rule.Dom&(1<<date.Day()) != 0, rule.Dow&(1<<date.Weekday()) != 0
	switch {
	case rule.Month&(1<<date.Month()) == 0:
		return false
	case rule.Dom&star != 0 || rule.Dow&star != 0:
		return ofMonth && ofWeek
	}
	return ofMonth || ofWeek
}

// instantOf returns when clocks in a zone show a time, which is given as if they were in UTC: the first time that they do, or when they
// have skipped it. The package time promises neither.
func instantOf(wall time.Time, l *time.Location) time.Time {
	const far = 24 * time.Hour // from a change of the clocks to the next
	_, before := wall.Add(-far).In(l).Zone()
	_, after := wall.Add(far).In(l).Zone()
	early, late := wall.Add(-time.Duration(before)*time.Second).In(l), wall.Add(-time.Duration(after)*time.Second).In(l)
	if _, offset := early.Zone(); offset == before {
		return early
	}
	if _, offset := late.Zone(); offset == after {
		return late
	}
	changed, _ := early.ZoneBounds()
	return changed
}
