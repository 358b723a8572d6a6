package settings

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/pkg/strictyaml"
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
	var unknown []unknownName
	for _, key := range sortedKeys(data) {
		switch {
		case isOptimization(key):
			values[key] = strings.TrimSpace(data[key])
		case key != keyFile:
			unknown = append(unknown,
				unknownName{name: key, path: key, problem: key + ": unknown key: " + strictyaml.Hint(key, optimizationKeys)})
		}
	}
	w.addUnknown("", unknown)
	result := optimization{interval: parseInterval(values[keyInterval], w)}
	for _, key := range optimizationKeys[1:] {
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

// optimizationKeys are the keys that the program reads.
var optimizationKeys = append([]string{keyInterval, keyScaleToZero}, prometheusKeys...)

func isOptimization(key string) bool { return slices.Contains(optimizationKeys, key) }

// parseFile returns the known keys of the file.
func parseFile(data map[string]string, w *warnings) map[string]string {
	values := map[string]string{}
	text, found := data[keyFile]
	if !found {
		return values
	}
	file, document, err := decodeText(text, map[string]strictyaml.Raw{}, nil)
	if err != nil {
		w.addProblems(keyFile, "ignored", problemsOf(err))
		return values
	}
	var unknown []unknownName
	for _, key := range slices.Sorted(maps.Keys(file)) {
		var value strictyaml.Scalar
		switch {
		case isOptimization(key):
			document.DecodeAt(key, file[key], &value)
			values[key] = strings.TrimSpace(string(value))
		case effectOf(key) != "":
			unknown = append(unknown, unknownName{name: key, path: key})
		default:
			document.Warnf(key, "unknown field: %s", strictyaml.Hint(key, optimizationKeys))
		}
	}
	for _, problem := range document.Warnings() {
		w.addWarning(ReasonUnknown, keyFile, "ignored %s", quoteText(problem.String()))
	}
	w.addUnknown(keyFile, unknown)
	w.addProblems(keyFile, "ignored", problemsOf(document.AllProblems()))
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
