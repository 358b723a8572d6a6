package settings

import (
	"errors"
	"fmt"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// DefaultThresholds are those of the workload-variant-autoscaler, for what an entry does not set.
func DefaultThresholds() snapshot.Thresholds {
	return snapshot.Thresholds{KVCache: 0.80, QueueLength: 5, KVSpare: 0.1, QueueSpare: 3} // documented there
}

// maxQueue is more than a server can have queued.
const maxQueue = 1e6

func validateThresholds(t *snapshot.Thresholds) error {
	for _, ratio := range []struct {
		name  string
		value float64
	}{
		{"kvCacheThreshold", t.KVCache}, {"kvSpareTrigger", t.KVSpare},
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
	}
	return nil
}

// saturationDocument is an entry of the saturation config. Released versions have more fields: see withoutEffect.
type saturationDocument struct {
	identity
	snapshot.Thresholds
	// Limiter limits variants to the accelerators that nodes have free. It counts in the entry of all models only.
	Limiter *bool `yaml:"enableLimiter"`
}

type saturation struct {
	defaults snapshot.Thresholds
	limiter  bool
	models   map[modelName]snapshot.Thresholds
}

// parseSaturation decodes the entry of all models first: the others inherit what they do not set.
func parseSaturation(data map[string]string, w *warnings) saturation {
	result, claimed := saturation{defaults: DefaultThresholds(), models: map[modelName]snapshot.Thresholds{}}, modelKeys{}
	if text, found := data[keyDefault]; found {
		if document, valid := parseThresholds(keyDefault, text, result.defaults, w); valid {
			result.defaults = document.Thresholds
			result.limiter = document.Limiter != nil && *document.Limiter
		}
	}
	for _, key := range sortedKeys(data) {
		if key == keyDefault {
			continue
		}
		document, valid := parseThresholds(key, data[key], result.defaults, w)
		if valid && document.Limiter != nil {
			w.addWarning(ReasonUnknown, key, "ignored enableLimiter: nodes are limited for all models or for none; set it in the entry %q",
				keyDefault)
		}
		if valid && claimed.claimModel(key, document.modelName(), w) {
			result.models[document.modelName()] = document.Thresholds
		}
	}
	return result
}

func parseThresholds(key, text string, inherited snapshot.Thresholds, w *warnings) (saturationDocument, bool) {
	document, valid := decodeEntry(key, text, saturationDocument{Thresholds: inherited}, w)
	if !valid {
		return document, false
	}
	if err := validateThresholds(&document.Thresholds); err != nil {
		w.addWarning(ReasonInvalid, key, "ignored: %s; correct it", err)
		return document, false
	}
	return document, true
}

func (s *saturation) thresholdsOf(namespace, model string) snapshot.Thresholds {
	for _, name := range []modelName{{namespace, model}, {"", model}} {
		if t, found := s.models[name]; found {
			return t
		}
	}
	return s.defaults
}
