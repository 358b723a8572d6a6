package settings

import (
	"errors"
	"fmt"
)

// Thresholds decide when servers without a profile count as saturated.
type Thresholds struct {
	KVCache       float64 `json:"kvCacheThreshold"` // part of the cache in use from which a server is saturated
	QueueLength   float64 `json:"queueLengthThreshold"`
	KVSpare       float64 `json:"kvSpareTrigger"` // average part that is left, below which replicas are added
	QueueSpare    float64 `json:"queueSpareTrigger"`
	EnableLimiter bool    `json:"enableLimiter"`
	Analyzer      string  `json:"analyzerName"`
	ScaleUp       float64 `json:"scaleUpThreshold"`
	ScaleDown     float64 `json:"scaleDownBoundary"`
}

// DefaultThresholds are those of the workload-variant-autoscaler.
func DefaultThresholds() Thresholds {
	return Thresholds{KVCache: 0.80, QueueLength: 5, KVSpare: 0.1, QueueSpare: 3, ScaleUp: 0.85, ScaleDown: 0.70} //nolint:mnd // documented there
}

// maxQueue is more than a server can have queued.
const maxQueue = 1e6

func (t *Thresholds) validate() error {
	for _, ratio := range []struct {
		name  string
		value float64
	}{
		{"kvCacheThreshold", t.KVCache}, {"kvSpareTrigger", t.KVSpare}, {"scaleUpThreshold", t.ScaleUp}, {"scaleDownBoundary", t.ScaleDown},
	} {
		if !(ratio.value >= 0 && ratio.value <= 1) {
			return fmt.Errorf("%s is not from 0 to 1", ratio.name)
		}
	}
	switch {
	case !(t.QueueLength >= 0 && t.QueueLength <= maxQueue):
		return fmt.Errorf("queueLengthThreshold is not from 0 to %d", int(maxQueue))
	case !(t.QueueSpare >= 0 && t.QueueSpare <= maxQueue):
		return fmt.Errorf("queueSpareTrigger is not from 0 to %d", int(maxQueue))
	case t.KVCache < t.KVSpare:
		return errors.New("kvCacheThreshold is less than kvSpareTrigger")
	case t.ScaleUp <= t.ScaleDown:
		return errors.New("scaleUpThreshold is not more than scaleDownBoundary")
	}
	return nil
}

// saturationDocument is an entry of the saturation config.
type saturationDocument struct {
	identity
	Thresholds
}

type saturation struct {
	defaults Thresholds
	models   map[modelName]Thresholds
}

// parseSaturation decodes the entry of all models first: the others inherit what they do not set.
func parseSaturation(data map[string]string, w *warnings) saturation {
	result, claimed := saturation{defaults: DefaultThresholds(), models: map[modelName]Thresholds{}}, claims{}
	if text, found := data[keyDefault]; found {
		if document, valid := parseThresholds(keyDefault, text, result.defaults, w); valid {
			result.defaults = document.Thresholds
		}
	}
	for _, key := range sortedKeys(data) {
		if key == keyDefault {
			continue
		}
		document, valid := parseThresholds(key, data[key], result.defaults, w)
		if valid && claimed.claim(key, document.name(), w) {
			result.models[document.name()] = document.Thresholds
		}
	}
	return result
}

func parseThresholds(key, text string, inherited Thresholds, w *warnings) (saturationDocument, bool) {
	document, valid := decodeEntry(key, text, saturationDocument{Thresholds: inherited}, w)
	if !valid {
		return document, false
	}
	if err := document.validate(); err != nil {
		w.add(ReasonInvalid, key, "ignored: %s; correct it", err)
		return document, false
	}
	return document, true
}

func (s *saturation) find(namespace, model string) Thresholds {
	for _, name := range []modelName{{namespace, model}, {"", model}} {
		if t, found := s.models[name]; found {
			return t
		}
	}
	return s.defaults
}
