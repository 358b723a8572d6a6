package settings

import (
	"errors"
	"fmt"

	"k8s.io/utils/ptr"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// DefaultThresholds are those of the workload-variant-autoscaler, for what an entry does not set.
func DefaultThresholds() snapshot.Thresholds {
	return snapshot.Thresholds{KVCache: 0.80, QueueLength: 5, KVSpare: 0.1, QueueSpare: 3} // documented there
}

// maxQueue is more than a server can have queued.
const maxQueue = 1e6

func validateThresholds(t *snapshot.Thresholds) error {
	for _, field := range []struct {
		name        string
		value, most float64
	}{
		{"kvCacheThreshold", t.KVCache, 1}, {"kvSpareTrigger", t.KVSpare, 1},
		{"queueLengthThreshold", t.QueueLength, maxQueue}, {"queueSpareTrigger", t.QueueSpare, maxQueue},
	} {
		if !(field.value >= 0 && field.value <= field.most) { // NaN is not in the range either
			return fmt.Errorf("%s is not from 0 to %.0f", field.name, field.most)
		}
	}
	if t.KVCache < t.KVSpare {
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
			result.limiter = ptr.Deref(document.Limiter, false)
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
