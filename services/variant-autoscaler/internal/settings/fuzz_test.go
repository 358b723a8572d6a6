package settings

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// seeds are texts that parsers of YAML and numbers find hard.
var seeds = []string{
	"", "a: [", "- a", "a: &x [*x]", "a: &a [1]\nb: *a", "{}", "null", "1e400", "cost: .nan", "\xff\xfe", "? : ", strings.Repeat("[", 200), "modelID: m\nmodelID: n",
	"modelID: m\nenableScaleToZero: true\nretentionPeriod: 5m", premium, freemium, `{"device":"x","cost":"40.00"}`, "namespace: \"*\"\ncards: 8\ncost: 5\nvariants: 2",
	"kvCacheThreshold: 0.9\nmodel_id: m", "GLOBAL_OPT_INTERVAL: 20s", "60s", "-1s", "https://user@host/path?x", "data: [{model: m, slo-ttft: 5}, 7, null]",
}

// fuzz feeds two entries to a parser, and checks what holds for all of them.
func fuzz(f *testing.F, kind Kind, keys [2]string, check func(t *testing.T, s *Settings)) {
	f.Helper()
	for i, text := range seeds {
		f.Add(text, seeds[(i+1)%len(seeds)])
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		data := map[string]string{keys[0]: one, keys[1]: two}
		b := NewBuilder(Options{})
		w := b.SetSources(kind, Source{Name: "c", Data: data})
		assert.LessOrEqual(t, len(w), maxWarnings+1)
		for _, text := range w {
			assert.True(t, utf8.ValidString(text.String()))
			assert.NotContains(t, text.String(), "\n")
			assert.Less(t, len(text.String()), 1024, "it fits into an Event")
		}
		s := b.Settings()
		check(t, s)
		b.SetSources(kind, Source{Name: "c", Data: data})
		assert.Equal(t, s, b.Settings(), "the same content gives the same settings")
	})
}

func FuzzOptimization(f *testing.F) {
	fuzz(f, Optimization, [2]string{keyInterval, keyFile}, func(t *testing.T, s *Settings) {
		t.Helper()
		assert.GreaterOrEqual(t, s.Interval(), MinInterval)
		assert.LessOrEqual(t, s.Interval(), MaxInterval)
	})
}

func FuzzPrometheus(f *testing.F) {
	fuzz(f, Optimization, [2]string{keyBaseURL, keySkipVerify}, func(t *testing.T, s *Settings) {
		t.Helper()
		if u := s.Prometheus().BaseURL; u != "" {
			assert.True(t, strings.HasPrefix(strings.ToLower(u), "https://"), u)
		}
	})
}

func FuzzAccelerators(f *testing.F) {
	fuzz(f, Accelerators, [2]string{"A100", "H100"}, func(t *testing.T, s *Settings) {
		t.Helper()
		for name, price := range s.prices {
			assert.Contains(t, []string{"A100", "H100"}, name)
			assert.GreaterOrEqual(t, price, int64(0))
			assert.LessOrEqual(t, price, int64(maxPrice))
		}
	})
}

func FuzzClasses(f *testing.F) {
	fuzz(f, Classes, [2]string{"premium.yaml", "freemium.yaml"}, func(t *testing.T, s *Settings) {
		t.Helper()
		for name := range s.classes.byModel {
			class, problem := s.Class(name.namespace, name.model, "")
			if problem != nil {
				assert.Equal(t, ReasonInvalid, problem.Reason)
				continue
			}
			assert.GreaterOrEqual(t, class.Priority, 1)
			assert.LessOrEqual(t, class.Priority, LowestPriority)
			assert.Greater(t, class.Targets.TTFT+class.Targets.ITL, 0.0)
		}
	})
}

func FuzzZero(f *testing.F) {
	fuzz(f, Zero, [2]string{keyDefaults, "model.m"}, func(t *testing.T, s *Settings) {
		t.Helper()
		_, retention := s.ScaleToZero("ns", "m")
		assert.Positive(t, retention)
	})
}

func FuzzSaturation(f *testing.F) {
	fuzz(f, Saturation, [2]string{keyDefault, "m"}, func(t *testing.T, s *Settings) {
		t.Helper()
		for name := range s.saturation.models {
			got := s.Saturation(name.namespace, name.model)
			require.NoError(t, validateThresholds(got))
		}
		got := s.Saturation("ns", "m")
		require.NoError(t, validateThresholds(got))
	})
}

func FuzzLimits(f *testing.F) {
	fuzz(f, Limits, [2]string{"a", "b"}, func(t *testing.T, s *Settings) {
		t.Helper()
		for _, limit := range s.Limits([]string{"ns", "*"}) {
			assert.GreaterOrEqual(t, limit.Amount, int64(0))
			assert.NotEmpty(t, limit.Unit)
		}
		assert.GreaterOrEqual(t, s.MaxVariants("ns"), 0)
	})
}

func FuzzParseAmount(f *testing.F) {
	for _, text := range []string{"10", "0.5", "1e3", "999999999999.9999999", "-1", "."} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if amount, err := ParseAmount(text); err == nil {
			assert.GreaterOrEqual(t, amount, int64(0))
			assert.LessOrEqual(t, amount, int64(1e18))
		}
	})
}
