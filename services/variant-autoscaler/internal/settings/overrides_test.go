package settings

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

func TestZero(t *testing.T) {
	t.Parallel()
	const on, off = "enableScaleToZero: true", "enableScaleToZero: false"
	tests := []struct {
		name        string
		data        map[string]string
		environment string
		enabled     bool
		retention   time.Duration
		warn        []string
	}{
		{name: "built in", retention: 10 * time.Minute},
		{name: "the switch for all", environment: "true", enabled: true, retention: 10 * time.Minute},
		{name: "defaults", data: map[string]string{"__defaults__": on + "\nretentionPeriod: 15m"}, enabled: true, retention: 15 * time.Minute},
		{name: "defaults before the switch", environment: "true", data: map[string]string{"__defaults__": off}, retention: 10 * time.Minute},
		{
			name: "each field by itself: the model sets one", enabled: true, retention: 5 * time.Minute,
			data: map[string]string{"__defaults__": on + "\nretentionPeriod: 15m", "model.m": "modelID: m\nretentionPeriod: 5m"},
		},
		{
			name: "each field by itself: three levels", enabled: false, retention: 5 * time.Minute,
			data: map[string]string{"__defaults__": "retentionPeriod: 15m", "model.m": "modelID: m\nretentionPeriod: 5m\n" + on, "model.ns.m": "modelID: m\nnamespace: ns\n" + off},
		},
		{
			name: "the namespace wins", enabled: true, retention: time.Minute,
			data: map[string]string{"model.a": "modelID: m\nnamespace: ns\nretentionPeriod: 1m\n" + on, "model.b": "modelID: m\nretentionPeriod: 2m\n" + off},
		},
		{
			name: "another namespace and another model", retention: 10 * time.Minute,
			data: map[string]string{"model.a": "modelID: m\nnamespace: other\n" + on, "model.b": "modelID: M\n" + on},
		},
		{name: "JSON", data: map[string]string{"model.m": `{"modelID":"m","enableScaleToZero":true,"retentionPeriod":"90s"}`}, enabled: true, retention: 90 * time.Second},
		{
			name: "the newer spelling", enabled: true, retention: 3 * time.Minute,
			data: map[string]string{"default": "retention_period: 3m", "any": "model_id: m\nnamespace: ns\nenable_scale_to_zero: true"},
		},
		{
			name: "both defaults", retention: time.Minute, warn: []string{`key "default": ignored: __defaults__ is in force`},
			data: map[string]string{"__defaults__": "retentionPeriod: 1m", "default": "retention_period: 3m"},
		},
		{name: "a model under the key default", data: map[string]string{"__defaults__": off, "default": "modelID: m\n" + on}, enabled: true, retention: 10 * time.Minute},
		{
			name: "no model", retention: 10 * time.Minute, warn: []string{`key "model.m": ignored: it names no model; set modelID`},
			data: map[string]string{"model.m": on},
		},
		{
			name: "twice: the smaller key wins", enabled: true, retention: 10 * time.Minute,
			warn: []string{`key "model.b": ignored: "model.a" is about model "m", too; remove one of them`},
			data: map[string]string{"model.b": "modelID: m\n" + off, "model.a": "modelID: m\n" + on},
		},
		{
			name: "the same model in a namespace is no duplicate", retention: 10 * time.Minute,
			data: map[string]string{"model.a": "modelID: m\n" + on, "model.b": "modelID: m\nnamespace: ns\n" + off},
		},
		{
			name: "bad periods fall to the next level", retention: 7 * time.Minute,
			warn: []string{`key "a": ignored the retention period "0s": set a positive duration`, `key "b": ignored the retention period "soon"`},
			data: map[string]string{"__defaults__": "retentionPeriod: 7m", "a": "modelID: m\nnamespace: ns\nretentionPeriod: 0s", "b": "modelID: m\nretentionPeriod: soon"},
		},
		{
			name: "a number has no unit", retention: 10 * time.Minute, warn: []string{`key "a": ignored the retention period "300"`},
			data: map[string]string{"a": "modelID: m\nretentionPeriod: 300"},
		},
		{
			name: "negative", retention: 10 * time.Minute, warn: []string{`key "__defaults__": ignored the retention period "-5m"`},
			data: map[string]string{"__defaults__": "retentionPeriod: -5m"},
		},
		{
			name: "long", retention: 25 * time.Hour, warn: []string{`key "__defaults__": the retention period 25h0m0s is longer than 24h`},
			data: map[string]string{"__defaults__": "retentionPeriod: 25h"},
		},
		{name: "a day", retention: 24 * time.Hour, data: map[string]string{"__defaults__": "retentionPeriod: 24h"}},
		{
			name: "bad YAML costs itself only", enabled: true, retention: 10 * time.Minute, warn: []string{`key "a": ignored: line 1, column 1: it is not YAML: `, `key "b": ignored: line 1, column 20: enableScaleToZero: "7" is neither true nor false`},
			data: map[string]string{"a": "modelID: [", "b": "enableScaleToZero: 7", "c": "modelID: m\n" + on},
		},
		{
			name: "an unknown field", enabled: true, retention: 10 * time.Minute, warn: []string{`key "c": ignored line 2, column 1: retention: unknown field: use one of modelID, `},
			data: map[string]string{"c": "modelID: m\nretention: 5m\n" + on},
		},
		{name: "an empty value", retention: 10 * time.Minute, data: map[string]string{"__defaults__": ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := NewBuilder(Options{})
			require.Empty(t, b.SetSources(Optimization, Source{Name: "c", Data: map[string]string{keyScaleToZero: tt.environment}}))
			assertWarnings(t, tt.warn, b.SetSources(Zero, Source{Name: "z", Data: tt.data}))
			enabled, retention := b.Settings().ScaleToZero("ns", "m")
			assert.Equal(t, tt.enabled, enabled)
			assert.Equal(t, tt.retention, retention)
		})
	}
}

func TestKeysThatCollide(t *testing.T) {
	t.Parallel()
	s, w := build(Zero, map[string]string{"model.a.b.c": "modelID: a/b.c\nenableScaleToZero: true", "model.a.b.c-2": "modelID: a.b/c\nenableScaleToZero: false"})
	assert.Empty(t, w)
	enabled, _ := s.ScaleToZero("ns", "a/b.c")
	assert.True(t, enabled)
	enabled, _ = s.ScaleToZero("ns", "a.b/c")
	assert.False(t, enabled)
}

func TestSaturation(t *testing.T) {
	t.Parallel()
	with := func(change func(t *snapshot.Thresholds)) snapshot.Thresholds {
		d := DefaultThresholds()
		change(&d)
		return d
	}
	tests := []struct {
		name string
		data map[string]string
		want snapshot.Thresholds
		warn []string
	}{
		{name: "built in", data: map[string]string{}, want: snapshot.Thresholds{KVCache: 0.80, QueueLength: 5, KVSpare: 0.1, QueueSpare: 3}},
		{
			name: "default", data: map[string]string{"default": "kvCacheThreshold: 0.9\nqueueSpareTrigger: 0"},
			want: with(func(t *snapshot.Thresholds) { t.KVCache, t.QueueSpare = 0.9, 0 }),
		},
		{
			name: "a model inherits what it does not set", data: map[string]string{"default": "kvCacheThreshold: 0.9", "a": "model_id: m\nqueueLengthThreshold: 7"},
			want: with(func(t *snapshot.Thresholds) { t.KVCache, t.QueueLength = 0.9, 7 }),
		},
		{
			name: "the namespace wins, and inherits from default", data: map[string]string{"a": "model_id: m\nkvCacheThreshold: 0.5", "b": "model_id: m\nnamespace: ns\nkvSpareTrigger: 0.2"},
			want: with(func(t *snapshot.Thresholds) { t.KVSpare = 0.2 }),
		},
		{
			name: "a bad default costs itself only", data: map[string]string{"default": "kvCacheThreshold: 1.1", "a": "model_id: m\nqueueLengthThreshold: 7"},
			want: with(func(t *snapshot.Thresholds) { t.QueueLength = 7 }), warn: []string{`key "default": ignored: kvCacheThreshold is not from 0 to 1; correct it`},
		},
		{
			name: "a bad model costs itself only", data: map[string]string{"default": "queueSpareTrigger: 2", "a": "model_id: m\nkvCacheThreshold: 0.05", "b": "model_id: m\nnamespace: ns\nx: ["},
			want: with(func(t *snapshot.Thresholds) { t.QueueSpare = 2 }),
			warn: []string{`key "a": ignored: kvCacheThreshold is less than kvSpareTrigger`, `key "b": ignored: line 3, column 1: it is not YAML: `},
		},
		{
			name: "what has no effect", data: map[string]string{"default": "kvCacheThreshold: 0.9\nanalyzerName: saturation\nscaleUpThreshold: 0.8\nenableRescale: false"},
			want: with(func(t *snapshot.Thresholds) { t.KVCache = 0.9 }), warn: []string{
				`key "default": ignored enableRescale: models with the better priority get what limits leave; it can be removed`,
				`key "default": ignored analyzerName, scaleUpThreshold: what a replica serves is learned, and the four thresholds add replicas to the plan; it can be removed`,
			},
		},
		{
			name: "spare above the threshold", data: map[string]string{"default": "kvSpareTrigger: 0.81"}, want: DefaultThresholds(),
			warn: []string{`key "default": ignored: kvCacheThreshold is less than kvSpareTrigger`},
		},
		{
			name: "negative queues", data: map[string]string{"a": "model_id: m\nqueueLengthThreshold: -1", "b": "model_id: m\nqueueSpareTrigger: -1"}, want: DefaultThresholds(),
			warn: []string{`key "a": ignored: queueLengthThreshold is not from 0`, `key "b": ignored: queueSpareTrigger is not from 0`},
		},
		{
			name: "huge queues", data: map[string]string{"a": "model_id: m\nqueueLengthThreshold: 1e7"}, want: DefaultThresholds(),
			warn: []string{`key "a": ignored: queueLengthThreshold is not from 0`},
		},
		{
			name: "twice", data: map[string]string{"b": "modelID: m\nqueueSpareTrigger: 1", "a": "model_id: m\nqueueSpareTrigger: 2"},
			want: with(func(t *snapshot.Thresholds) { t.QueueSpare = 2 }), warn: []string{`key "b": ignored: "a" is about model "m", too`},
		},
		{name: "no model", data: map[string]string{"a": "namespace: ns"}, want: DefaultThresholds(), warn: []string{`key "a": ignored: it names no model`}},
		{
			name: "later fields", data: map[string]string{"default": "queueSpareTrigger: 2\npriority: 1"}, want: with(func(t *snapshot.Thresholds) { t.QueueSpare = 2 }),
			warn: []string{`key "default": ignored priority: priorities are those of service classes`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w := build(Saturation, tt.data)
			assertWarnings(t, tt.warn, w)
			assert.Equal(t, &tt.want, s.Saturation("ns", "m"))
		})
	}
}

// TestLimiter: one entry decides for all models.
func TestLimiter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"enableLimiter: true": true, "enableLimiter: false": false, "queueSpareTrigger: 2": false, "enableLimiter: 7": false} {
		s, _ := build(Saturation, map[string]string{"default": text})
		assert.Equal(t, want, s.Limiter(), text)
	}
	s, w := build(Saturation, map[string]string{"a": "modelID: m\nenableLimiter: true"})
	assert.False(t, s.Limiter())
	assertWarnings(t, []string{`key "a": ignored enableLimiter: nodes are limited for all models or for none; set it in the entry "default"`}, w)
}

// TestWaitingCost: it is inherited like the other fields, and 0 turns it off.
func TestWaitingCost(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Options{})
	warnings := b.SetSources(Zero, Source{Name: "z", Data: map[string]string{
		"__defaults__": "waitingCost: 25.5", "model.m": "modelID: m\nwaitingCost: 0", "model.p": "modelID: p\nwaitingCost: -1", "model.o": "modelID: o\nnamespace: ns\nwaitingCost: \"7\"",
	}})
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0].String(), "ignored waitingCost")
	s := b.Settings()
	for model, want := range map[string]int64{"m": 0, "p": 25_500_000, "o": 7_000_000, "other": 25_500_000} {
		assert.Equal(t, want, s.WaitingCost("ns", model), model)
	}
	assert.Zero(t, NewBuilder(Options{}).Settings().WaitingCost("ns", "m"), "off by default")
}
