package settings

import (
	"cmp"
	"time"

	"fairlead.dev/pkg/strictyaml"
)

// DefaultRetention is how long a model keeps a replica after its last request, if nothing else is set.
const DefaultRetention = 10 * time.Minute

// longRetention is a retention period that is probably a mistake.
const longRetention = 24 * time.Hour

// Keys of entries for all models. Releases from v0.5 use the second.
const (
	keyDefaults = "__defaults__"
	keyDefault  = "default"
)

// zeroDocument is an entry of model-scale-to-zero-config.
type zeroDocument struct {
	identity

	Enable       *bool             `yaml:"enableScaleToZero"`
	OldEnable    *bool             `yaml:"enable_scale_to_zero"`
	Retention    strictyaml.Scalar `yaml:"retentionPeriod"`
	OldRetention strictyaml.Scalar `yaml:"retention_period"`
	WaitingCost  strictyaml.Scalar `yaml:"waitingCost"` // per hour, as the costs of variants
}

// zeroEntry is what an entry sets.
type zeroEntry struct {
	enabled   *bool
	retention time.Duration // 0: not set
	waiting   *int64        // millionths per hour
}

type zero struct {
	defaults zeroEntry
	models   map[modelName]zeroEntry
}

func parseZero(data map[string]string, w *warnings) zero {
	result, claimed := zero{models: map[modelName]zeroEntry{}}, modelKeys{}
	_, defaults := data[keyDefaults]
	for _, key := range sortedKeys(data) {
		document, valid := decodeEntry(key, data[key], zeroDocument{}, w)
		if !valid {
			continue
		}
		name := document.modelName()
		entry := zeroEntry{
			enabled:   cmp.Or(document.Enable, document.OldEnable),
			retention: parseRetention(key, string(cmp.Or(document.Retention, document.OldRetention)), w),
			waiting:   parseWaitingCost(key, string(document.WaitingCost), w),
		}
		switch {
		case key == keyDefaults:
			result.defaults = entry
		case key == keyDefault && name.model == "" && defaults:
			w.addWarning(ReasonInvalid, key, "ignored: %s is in force; remove one of them", keyDefaults)
		case key == keyDefault && name.model == "":
			result.defaults = entry
		case claimed.claimModel(key, name, w):
			result.models[name] = entry
		}
	}
	return result
}

// parseRetention returns 0 for a text that is not a period.
func parseRetention(key, text string, w *warnings) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil || d <= 0:
		w.addWarning(ReasonInvalid, key, "ignored the retention period %q: set a positive duration, for example 10m", quoteText(text))
		return 0
	case d > longRetention:
		w.addWarning(ReasonInvalid, key, "the retention period %s is longer than 24h: models will rarely have no replicas; set a shorter one", d)
	}
	return d
}

// parseWaitingCost returns nil for a text that is not a cost.
func parseWaitingCost(key, text string, w *warnings) *int64 {
	if text == "" {
		return nil
	}
	amount, err := ParseAmount(text)
	if err != nil {
		w.addWarning(ReasonInvalid, key, "ignored waitingCost %s: set what an hour costs in which requests wait for the model, in the unit of the costs of variants, for example 25.0", err)
		return nil
	}
	return &amount
}

// entryOf takes each field from the most precise entry that sets it.
func (z *zero) entryOf(namespace, model string) zeroEntry {
	exact, usual := z.models[modelName{namespace, model}], z.models[modelName{"", model}]
	return zeroEntry{
		enabled:   cmp.Or(exact.enabled, usual.enabled, z.defaults.enabled),
		retention: cmp.Or(exact.retention, usual.retention, z.defaults.retention),
		waiting:   cmp.Or(exact.waiting, usual.waiting, z.defaults.waiting),
	}
}
