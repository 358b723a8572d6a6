package settings

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Keys of the optimization config.
const (
	keyInterval    = "GLOBAL_OPT_INTERVAL"
	keyScaleToZero = "WVA_SCALE_TO_ZERO"
	// keyFile is a file with the other keys, as releases from v0.5 mount it. Keys beside it win.
	keyFile = "config.yaml"
)

// Bounds of the interval, as the workload-variant-autoscaler documents them.
const (
	DefaultInterval = time.Minute
	MinInterval     = 10 * time.Second
	MaxInterval     = 10 * time.Minute
)

// optimization is the content of the optimization config.
type optimization struct {
	interval    time.Duration
	scaleToZero bool
	prometheus  Prometheus
}

func parseOptimization(data map[string]string, o Options, w *warnings) optimization {
	values := parseFile(data, w)
	var unknown []string
	for _, key := range sortedKeys(data) {
		switch {
		case isOptimization(key):
			values[key] = strings.TrimSpace(data[key])
		case key != keyFile:
			unknown = append(unknown, key)
		}
	}
	w.addUnknown("", "", unknown)
	result := optimization{interval: parseInterval(values[keyInterval], w)}
	for _, key := range append([]string{keyScaleToZero}, prometheusKeys...) {
		if set := o.Environment(key); set != "" {
			if value := values[key]; value != "" && value != set {
				w.addWarning(ReasonUnknown, key, "ignored: the environment variable of the same name is in force; remove one of them")
			}
			values[key] = set
		}
	}
	result.scaleToZero = parseBool(keyScaleToZero, values[keyScaleToZero], w)
	result.prometheus = parsePrometheus(values, o.AllowHTTP, w)
	return result
}

func isOptimization(key string) bool {
	return key == keyInterval || key == keyScaleToZero || isPrometheus(key)
}

// parseFile returns the known keys of the file.
func parseFile(data map[string]string, w *warnings) map[string]string {
	values := map[string]string{}
	text, found := data[keyFile]
	if !found {
		return values
	}
	file, valid := decodeEntry(keyFile, text, map[string]any{}, w)
	if !valid {
		return values
	}
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(file)) {
		if !isOptimization(key) {
			unknown = append(unknown, key)
			continue
		}
		switch value := file[key].(type) {
		case string:
			values[key] = strings.TrimSpace(value)
		case bool, float64, int64:
			values[key] = fmt.Sprint(value)
		}
	}
	w.addUnknown(keyFile, "", unknown)
	return values
}

// parseInterval returns the interval that is in force for a text.
func parseInterval(text string, w *warnings) time.Duration {
	const advice = "set a duration from 10s to 10m, for example 60s"
	if text == "" {
		return DefaultInterval
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		w.addWarning(ReasonInvalid, keyInterval, "%q is not a duration, %s is in force: %s", quoteText(text), DefaultInterval, advice)
		return DefaultInterval
	case d <= 0:
		w.addWarning(ReasonInvalid, keyInterval, "%q is not positive, %s is in force: %s", quoteText(text), DefaultInterval, advice)
		return DefaultInterval
	case d < MinInterval:
		w.addWarning(ReasonInvalid, keyInterval, "%q is too short, %s is in force: %s", quoteText(text), MinInterval, advice)
	case d > MaxInterval:
		w.addWarning(ReasonInvalid, keyInterval, "%q is too long, %s is in force: %s", quoteText(text), MaxInterval, advice)
	}
	return min(max(d, MinInterval), MaxInterval)
}

func parseBool(key, text string, w *warnings) bool {
	if text == "" {
		return false
	}
	value, err := strconv.ParseBool(strings.ToLower(text))
	if err != nil {
		w.addWarning(ReasonInvalid, key, "%q is neither true nor false, false is in force: set one of them", quoteText(text))
	}
	return value
}
