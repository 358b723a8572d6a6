package settings

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// build returns the settings that one ConfigMap gives, and its warnings.
func build(kind Kind, data map[string]string) (*Settings, []Warning) {
	b := NewBuilder(Options{Namespace: "system"})
	w := b.SetSources(kind, Source{Name: kind.Names()[0], Data: data})
	return b.Settings(), w
}

// assertWarnings compares the warnings with their beginnings.
func assertWarnings(t *testing.T, want []string, got []Warning) {
	t.Helper()
	require.Len(t, got, len(want), "%v", got)
	for i, w := range want {
		assert.True(t, strings.HasPrefix(got[i].String(), w), "%s\n%s", w, got[i])
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	s := NewBuilder(Options{Namespace: "system"}).Settings()
	assert.Equal(t, time.Minute, s.Interval())
	assert.Zero(t, s.Prometheus())
	enabled, retention := s.ScaleToZero("a", "m")
	assert.False(t, enabled)
	assert.Equal(t, 10*time.Minute, retention)
	assert.Nil(t, s.Saturation("a", "m"), "without a ConfigMap there are none")
	assert.Empty(t, s.Limits([]string{"a"}))
	assert.Equal(t, 1000, s.MaxVariants("a"))
	_, known := s.Prices()["A100"]
	assert.False(t, known)
	_, problem := s.Class("a", "m", "")
	require.NotNil(t, problem)
	assert.Equal(t, ReasonNoClass, problem.Reason)
}

func TestSettingsDoNotChange(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Options{Namespace: "system"})
	b.SetSources(Classes, Source{Name: "service-classes-config"})
	before := b.Settings()
	assert.Equal(t, "service-classes-config", before.ConfigMap(Classes))
	b.SetSources(Classes)
	assert.Equal(t, "service-classes-config", before.ConfigMap(Classes))
	assert.Empty(t, b.Settings().ConfigMap(Classes))
}

func TestInterval(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want time.Duration
		warn string
	}{
		{text: "", want: time.Minute},
		{text: "60s", want: time.Minute},
		{text: " 60s\n", want: time.Minute},
		{text: "9s", want: 10 * time.Second, warn: `key "GLOBAL_OPT_INTERVAL": "9s" is too short, 10s is in force: set a duration from 10s to 10m`},
		{text: "10s", want: 10 * time.Second},
		{text: "2m30s", want: 150 * time.Second},
		{text: "10m", want: 10 * time.Minute},
		{text: "11m", want: 10 * time.Minute, warn: `key "GLOBAL_OPT_INTERVAL": "11m" is too long, 10m0s is in force`},
		{text: "0", want: time.Minute, warn: `key "GLOBAL_OPT_INTERVAL": "0" is not positive, 1m0s is in force`},
		{text: "0s", want: time.Minute, warn: `key "GLOBAL_OPT_INTERVAL": "0s" is not positive`},
		{text: "-1s", want: time.Minute, warn: `key "GLOBAL_OPT_INTERVAL": "-1s" is not positive`},
		{text: "-20m", want: time.Minute, warn: `key "GLOBAL_OPT_INTERVAL": "-20m" is not positive`},
		{text: "abc", want: time.Minute, warn: `key "GLOBAL_OPT_INTERVAL": "abc" is not a duration, 1m0s is in force`},
		{text: "60", want: time.Minute, warn: `key "GLOBAL_OPT_INTERVAL": "60" is not a duration`},
		{text: strings.Repeat("9", 5000) + "h", want: time.Minute, warn: `key "GLOBAL_OPT_INTERVAL": "999`},
	}
	for _, tt := range tests {
		t.Run(tt.text[:min(len(tt.text), 10)], func(t *testing.T) {
			t.Parallel()
			s, w := build(Optimization, map[string]string{keyInterval: tt.text})
			assert.Equal(t, tt.want, s.Interval())
			if tt.warn == "" {
				assert.Empty(t, w)
				return
			}
			assertWarnings(t, []string{tt.warn}, w)
			assert.Less(t, len(w[0].String()), 500)
		})
	}
}

func TestOptimizationConfig(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		data        map[string]string
		environment map[string]string
		enabled     bool
		interval    time.Duration
		url         string
		warn        []string
	}{
		{name: "nothing", interval: time.Minute},
		{
			name: "all", data: map[string]string{keyScaleToZero: "True", keyInterval: "30s", keyBaseURL: "https://p:9090/"},
			enabled: true, interval: 30 * time.Second, url: "https://p:9090",
		},
		{
			name: "neither true nor false", data: map[string]string{keyScaleToZero: "maybe", keyInterval: "30s"},
			interval: 30 * time.Second, warn: []string{`key "WVA_SCALE_TO_ZERO": "maybe" is neither true nor false, false is in force`},
		},
		{
			name: "the environment", data: map[string]string{keyScaleToZero: "false", keyBaseURL: "https://a"},
			environment: map[string]string{keyScaleToZero: "true", keyBaseURL: "https://a", keyInterval: "30s"},
			enabled:     true, interval: time.Minute, url: "https://a", warn: []string{`key "WVA_SCALE_TO_ZERO": ignored: the environment variable`},
		},
		{
			name:    "a file",
			data:    map[string]string{keyFile: "GLOBAL_OPT_INTERVAL: 20s\nWVA_SCALE_TO_ZERO: true\nLEADER_ELECT: true\nPROMETHEUS_BASE_URL: https://file\n", keyInterval: "30s"},
			enabled: true, interval: 30 * time.Second, url: "https://file", warn: []string{`key "config.yaml": ignored LEADER_ELECT: a flag of the program sets it`},
		},
		{
			name: "a bad file", data: map[string]string{keyFile: "a: [", keyInterval: "30s"},
			interval: 30 * time.Second, warn: []string{`key "config.yaml": ignored: line 1, column 1: it is not YAML: `},
		},
		{
			name: "an unknown key", data: map[string]string{"GLOBAL_OPT_INTERVALL": "30s"},
			interval: time.Minute, warn: []string{`ignored GLOBAL_OPT_INTERVALL: unknown key: did you mean "GLOBAL_OPT_INTERVAL"?`},
		},
		{
			name: "without TLS", data: map[string]string{keyBaseURL: "http://user:pass@p"},
			interval: time.Minute, warn: []string{`key "PROMETHEUS_BASE_URL": ignored: the address must begin with https://`},
		},
		{
			name: "no address", data: map[string]string{keyBaseURL: "https://"},
			interval: time.Minute, warn: []string{`key "PROMETHEUS_BASE_URL": ignored: not an address`},
		},
		{
			name: "half of a pair", data: map[string]string{keyBaseURL: "https://p", keyClientKey: "/key"},
			interval: time.Minute, url: "https://p", warn: []string{`key "PROMETHEUS_CLIENT_CERT_PATH": ignored: set both`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := NewBuilder(Options{Environment: func(name string) string { return tt.environment[name] }})
			w := b.SetSources(Optimization, Source{Name: "c", Data: tt.data})
			s := b.Settings()
			enabled, _ := s.ScaleToZero("a", "m")
			assert.Equal(t, tt.enabled, enabled)
			assert.Equal(t, tt.interval, s.Interval())
			assert.Equal(t, tt.url, s.Prometheus().BaseURL)
			assert.Empty(t, s.Prometheus().ClientKeyPath)
			assertWarnings(t, tt.warn, w)
			for _, one := range w {
				assert.NotContains(t, one.String(), "pass@")
			}
		})
	}
	b := NewBuilder(Options{AllowHTTP: true})
	assert.Empty(t, b.SetSources(Optimization, Source{Name: "c", Data: map[string]string{keyBaseURL: "http://p"}}))
	assert.Equal(t, "http://p", b.Settings().Prometheus().BaseURL)
}

func TestPrometheusIsImmutable(t *testing.T) {
	t.Parallel()
	all := map[string]string{
		keyBaseURL: "https://a", keySkipVerify: "true", keyCACert: "/ca", keyClientCert: "/cert", keyClientKey: "/key", keyServerName: "prometheus",
		keyBearerToken: "first", keyTokenPath: "/token",
	}
	want := Prometheus{
		BaseURL: "https://a", InsecureSkipVerify: true, CACertPath: "/ca", ClientCertPath: "/cert", ClientKeyPath: "/key", ServerName: "prometheus",
		BearerToken: "first", TokenPath: "/token",
	}
	b := NewBuilder(Options{})
	b.SetSources(Optimization, Source{Name: "c", Data: map[string]string{keyServerName: "early"}})
	assert.Empty(t, b.SetSources(Optimization, Source{Name: "c", Data: all}), "there was no address before")
	assert.Equal(t, want, b.Settings().Prometheus())

	tests := map[string]string{keyBaseURL: "https://b", keySkipVerify: "false", keyCACert: "/b", keyClientCert: "/b", keyClientKey: "/b", keyServerName: "b"}
	for key, value := range tests {
		changed := maps.Clone(all)
		changed[key] = value
		w := b.SetSources(Optimization, Source{Name: "c", Data: changed})
		assertWarnings(t, []string{fmt.Sprintf("key %q: ignored a change: this value cannot change while the controller runs", key)}, w)
		assert.Equal(t, "ImmutableConfigChangeRejected", w[0].Reason)
		assert.Equal(t, want, b.Settings().Prometheus())
	}
	changed := maps.Clone(all)
	changed[keyBearerToken], changed[keyTokenPath], changed[keyInterval] = "second", "/other", "30s"
	want.BearerToken, want.TokenPath = "second", "/other"
	assert.Empty(t, b.SetSources(Optimization, Source{Name: "c", Data: changed}), "tokens change, and so does all else")
	assert.Equal(t, want, b.Settings().Prometheus())
	assert.Equal(t, 30*time.Second, b.Settings().Interval())

	assert.Empty(t, b.SetSources(Optimization), "deleted")
	assert.Equal(t, want, b.Settings().Prometheus())
	assert.Equal(t, time.Minute, b.Settings().Interval())
}

func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	p := Prometheus{BaseURL: "https://a", BearerToken: "hidden"}
	text, err := json.Marshal(p)
	require.NoError(t, err)
	for _, printed := range []string{fmt.Sprint(p), fmt.Sprintf("%+v", p), fmt.Sprintf("%#v", p), string(text)} {
		assert.NotContains(t, printed, "hidden")
		assert.Contains(t, printed, "[redacted]")
	}
	assert.Empty(t, Secret("").String())
}

func TestParseAmount(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "0.0": 0, "10": 10_000_000, "40.00": 40_000_000, "8.5": 8_500_000, " 8.5\n": 8_500_000, "0.000001": 1, "0.0000004": 0, "0.0000005": 1,
		"1.9999999": 2_000_000, "007.10": 7_100_000, "999999999999.999999": 999_999_999_999_999_999, "00000000000000000000000001": 1_000_000,
	} {
		got, err := ParseAmount(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", " ", ".", "5.", ".5", "-1", "+1", "1e3", "1,5", "1.2.3", "0x10", "NaN", "Inf", "1_000", "١", "1000000000000", strings.Repeat("9", 1<<20)} {
		_, err := ParseAmount(text)
		require.Error(t, err, text)
		assert.Less(t, len(err.Error()), 300)
	}
}

func TestPrices(t *testing.T) {
	t.Parallel()
	s, w := build(Accelerators, map[string]string{
		"A100": `{"device":"NVIDIA-A100-PCIE-80GB","cost":"40.00"}`, "MI300X": `{"device": "AMD-MI300X-192GB", "cost": "65.00"}`, "free": `{"cost":"0"}`,
		"number": `{"cost":23.5}`, "yaml": "device: x\ncost: 100",
		"a-json": `{"cost":`, "b-nan": `{"cost":"NaN"}`, "c-negative": `{"cost":"-1"}`, "d-none": `{"device":"x"}`, "e-huge": `{"cost":"1000000.01"}`,
		"f-list": `["40"]`, "g-nested": `{"cost":{"a":1}}`, "h-huge": `{"cost":"1000000000000000000000000000000"}`, "i-extra": `{"cost":"1","price":"2"}`, "j-empty": "",
	})
	for name, want := range map[string]int64{"A100": 40_000_000, "MI300X": 65_000_000, "free": 0, "number": 23_500_000, "yaml": 100_000_000, "i-extra": 1_000_000} {
		got, known := s.Prices()[name]
		assert.True(t, known, name)
		assert.Equal(t, want, got, name)
	}
	for _, name := range []string{"a-json", "b-nan", "c-negative", "d-none", "e-huge", "f-list", "g-nested", "h-huge", "j-empty", "H100", ""} {
		_, known := s.Prices()[name]
		assert.False(t, known, name)
	}
	assertWarnings(t, []string{
		`key "a-json": ignored: line 1, column 1: it is not YAML: `, `key "b-nan": ignored: the cost "NaN" is not a decimal number, as 10 or 10.50: set it in cents per hour and card`,
		`key "c-negative": ignored: the cost "-1"`, `key "d-none": ignored: the cost ""`, `key "e-huge": ignored: the cost "1000000.01" is more than 1000000 cents`,
		`key "f-list": ignored: line 1, column 1: a list has no fields`, `key "g-nested": ignored`, `key "h-huge": ignored: the cost "1000000000000000000000000000000" is too large`,
		`key "i-extra": ignored line 1, column 13: price: unknown field: use one of device, cost`, `key "j-empty": ignored: the cost ""`,
	}, w)
}

func TestWarningsAreBounded(t *testing.T) {
	t.Parallel()
	data := map[string]string{}
	for i := range 500 {
		data[fmt.Sprintf("key-%04d", i)] = strings.Repeat("bad ", 50)
	}
	for _, kind := range []Kind{Optimization, Accelerators, Classes, Zero, Saturation, Limits} {
		_, w := build(kind, data)
		require.Len(t, w, maxWarnings+1, kind)
		assert.Equal(t, "490 more problems: repair these to see them", w[maxWarnings].String())
		for _, one := range w {
			assert.Less(t, len(one.String()), 600)
		}
	}
}

// TestDocumentedKeys: what releases of the workload-variant-autoscaler document is read, or named with the reason in plain words.
func TestDocumentedKeys(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		kind Kind
		data map[string]string
		want []string
	}{
		{
			"chart 0.5", Optimization, map[string]string{
				"PROMETHEUS_BASE_URL": "https://p", "GLOBAL_OPT_INTERVAL": "60s", "WVA_SCALE_TO_ZERO": "false", "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY": "true",
				"EPP_METRIC_READER_BEARER_TOKEN": "", "PROMETHEUS_METRICS_CACHE_TTL": "30s", "PROMETHEUS_METRICS_CACHE_ENABLED": "true", "WVA_LIMITED_MODE": "false", "WVA_NODE_SELECTOR": "",
			},
			[]string{
				`ignored WVA_LIMITED_MODE, WVA_NODE_SELECTOR: enableLimiter in the entry default of wva-saturation-scaling-config limits variants to the nodes that their pod templates select; it can be removed`,
				`ignored PROMETHEUS_METRICS_CACHE_ENABLED, PROMETHEUS_METRICS_CACHE_TTL: the program keeps no metrics between passes; it can be removed`,
				`ignored EPP_METRIC_READER_BEARER_TOKEN: the program reads the metrics of the picker from Prometheus; it can be removed`,
			},
		},
		{
			"the file of later charts", Optimization, map[string]string{keyFile: "PROMETHEUS_BASE_URL: https://p\nWATCH_NAMESPACE: models\nV: 2\nSCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY: 10\n"},
			[]string{
				`key "config.yaml": ignored V: a flag of the program sets it; it can be removed`,
				`key "config.yaml": ignored SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY: models at zero get`,
				`key "config.yaml": ignored WATCH_NAMESPACE: variants of all namespaces count`,
			},
		},
		{"release 0.0", Optimization, map[string]string{"GLOBAL_OPT_TRIGGER": "false"}, []string{`ignored GLOBAL_OPT_TRIGGER: a pass follows each change`}},
		{"what 0.9 adds", Optimization, map[string]string{"config.yaml": "PROMETHEUS_ALLOW_HTTP: 'true'\nEXPERIMENTAL_COORDINATOR_ENABLED: 'false'\nCOORDINATOR_INTERVAL: 15s"}, []string{
			`key "config.yaml": ignored PROMETHEUS_ALLOW_HTTP: the flag --allow-http-prometheus permits it; it can be removed`,
			`key "config.yaml": ignored COORDINATOR_INTERVAL, EXPERIMENTAL_COORDINATOR_ENABLED: the program writes no bounds of autoscalers; it can be removed`,
		}},
		{"thresholds of 0.9", Saturation, map[string]string{"default": "{enableRescale: false}"}, []string{
			`key "default": ignored enableRescale: models with the better priority get what limits leave; it can be removed`,
		}},
		{"classes of 0.0", Classes, map[string]string{"c": "data: [{model: m, slo-itl: 30, slo-ttw: 500}]"}, []string{`key "c": ignored data[0].slo-ttw: slo-ttft has the wait, too; it can be removed`}},
		{
			"later thresholds", Saturation, map[string]string{"default": "analyzers: []\nscaleDownBoundary: 0.7\nlimiters: []\nscaleToZero: {enabled: true}"},
			[]string{`key "default": ignored limiters: limits`, `key "default": ignored scaleToZero: the ConfigMap model-scale-to-zero-config`, `key "default": ignored analyzers, scaleDownBoundary: what`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w := build(tt.kind, tt.data)
			assertWarnings(t, tt.want, w)
			for _, warning := range w {
				assert.Equal(t, ReasonUnknown, warning.Reason, "nothing is wrong")
				assert.NotContains(t, warning.Message, "json")
			}
			if tt.kind == Classes {
				class, problem := s.Class("a", "m", "")
				require.Nil(t, problem)
				assert.InDelta(t, 30, class.Targets.ITL, 0, "slo-itl is slo-tpot")
			}
		})
	}
}

// TestLooseSpellings: texts that sigs.k8s.io/yaml reads stay valid, because entries were written for it.
func TestLooseSpellings(t *testing.T) {
	t.Parallel()
	s, w := build(Zero, map[string]string{"a": "ModelID: a\nenableScaleToZero: yes\nretentionPeriod: 5m\n---\nmore: [", "b": "&b {modelID: b, enableScaleToZero: ON}"})
	assertWarnings(t, []string{`key "a": there is more than one document: only the first one is read`}, w)
	for _, model := range []string{"a", "b"} {
		enabled, _ := s.ScaleToZero("ns", model)
		assert.True(t, enabled, model)
	}
	prices, w := build(Accelerators, map[string]string{"a": "{Device: A, cost: 1e3}", "b": "&x cost: .5"})
	assert.Empty(t, w)
	assert.Equal(t, map[string]int64{"a": 1_000_000_000, "b": 500_000}, prices.Prices())
	classes, w := build(Classes, map[string]string{"c": "data:\n- &m {model: m, slo-ttft: 500}\n- {<<: *m, namespace: ns, slo-tpot: 20}\n"})
	assert.Empty(t, w)
	class, problem := classes.Class("ns", "m", "c")
	require.Nil(t, problem)
	assert.Equal(t, snapshot.Targets{TTFT: 500, ITL: 20}, class.Targets)
	limits, w := build(Limits, map[string]string{"l": "cards: 8.0"})
	assert.Empty(t, w)
	assert.Len(t, limits.Limits(nil), 1)
}

// TestAllProblemsAtOnce: each problem of an entry has its line and its path, and the nearest name.
func TestAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, w := build(Zero, map[string]string{"a": "modelId: m\nenableScaleToZero: maybe\nretentionPeriods: 5m\nnamespace: [x]"})
	assertWarnings(t, []string{
		`key "a": ignored line 3, column 1: retentionPeriods: unknown field: did you mean "retentionPeriod"?`,
		`key "a": ignored: line 2, column 20: enableScaleToZero: "maybe" is neither true nor false`,
		`key "a": ignored: line 4, column 12: namespace: a list is not a string`,
	}, w)
	_, w = build(Limits, map[string]string{"l": "cards: -1\nreplicas: -1\npriority: 0"})
	assertWarnings(t, []string{
		`key "l": this limit is invalid: line 1, column 8: cards: -1 is not from 0`, `key "l": this limit is invalid: line 2, column 11: replicas: -1 is not from 0`,
		`key "l": this limit is invalid: line 3, column 11: priority: 0 is not from 1 to 100`,
	}, w)
	_, w = build(Optimization, map[string]string{keyFile: "V: 2\nGLOBAL_OPT_INTERVAL: [1]\nWVA_SCALE_TO_ZER: true\n"})
	assertWarnings(t, []string{
		`key "config.yaml": ignored line 3, column 19: WVA_SCALE_TO_ZER: unknown field: did you mean "WVA_SCALE_TO_ZERO"?`,
		`key "config.yaml": ignored V: a flag of the program sets it`, `key "config.yaml": ignored: line 2, column 22: GLOBAL_OPT_INTERVAL: a list is not a string`,
	}, w)
}
