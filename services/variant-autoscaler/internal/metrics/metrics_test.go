package metrics

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// labelsOfChat are those of chat, as Prometheus writes them.
const labelsOfChat = `accelerator_type="H100",%snamespace="a",%starget_kind="Deployment",target_name="chat-decode",variant_name="chat"`

// gathered returns the series of a metric, as `labels value`.
func gathered(t *testing.T, r prometheus.Gatherer, metric string) []string {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	var series []string
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			var pairs []string
			for _, l := range m.GetLabel() {
				pairs = append(pairs, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			series = append(series, fmt.Sprintf("%s %v", strings.Join(pairs, ","), m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}
	return series
}

func names(t *testing.T, r prometheus.Gatherer, prefix string) []string {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	var found []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), prefix) {
			found = append(found, f.GetName())
		}
	}
	return found
}

func TestSeriesOfAVariant(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, "")
	assert.Empty(t, names(t, r, "wva"), "nothing before the first decision")
	m.Publish([]decision.ActedVariant{chat()})

	all := fmt.Sprintf(labelsOfChat, "", "")
	assert.Equal(t, []string{all + " 3"}, gathered(t, r, "wva_desired_replicas"))
	assert.Equal(t, []string{all + " 2"}, gathered(t, r, "wva_current_replicas"))
	assert.Equal(t, []string{all + " 1.5"}, gathered(t, r, "wva_desired_ratio"))
	withModel := fmt.Sprintf(labelsOfChat, `model_name="meta/llama-3.1-8b",`, "")
	assert.Equal(t, []string{withModel + " 0.25"}, gathered(t, r, "wva_predicted_ttft_seconds"))
	assert.Equal(t, []string{withModel + " 0.02"}, gathered(t, r, "wva_predicted_itl_seconds"))
	assert.Equal(t, []string{`accelerator_type="H100",direction="up",` + fmt.Sprintf(labelsOfChat, "", `reason="Optimal",`)[len(`accelerator_type="H100",`):] + " 1"},
		gathered(t, r, "wva_replica_scaling_total"))
	assert.Empty(t, names(t, r, "wva_conflict"))
	assert.Empty(t, names(t, r, "wva_deployment"))
}

func TestInstance(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	New(r, " blue ").Publish([]decision.ActedVariant{chat()})
	assert.Equal(t, []string{fmt.Sprintf(labelsOfChat, `controller_instance="blue",`, "") + " 3"}, gathered(t, r, "wva_desired_replicas"))
}

func TestRatioWithoutCurrentReplicas(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	v := chat()
	v.Now = 0
	New(r, "").Publish([]decision.ActedVariant{v})
	assert.Equal(t, []string{fmt.Sprintf(labelsOfChat, "", "") + " 3"}, gathered(t, r, "wva_desired_ratio"))
}

func TestZeroIsADecision(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	v := chat()
	v.Desired = 0
	New(r, "").Publish([]decision.ActedVariant{v})
	assert.Equal(t, []string{fmt.Sprintf(labelsOfChat, "", "") + " 0"}, gathered(t, r, "wva_desired_replicas"))
}

func TestPredictionsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, p := range []*decision.Predicted{nil, {}, {TTFT: math.NaN(), ITL: math.Inf(1)}, {TTFT: -1, ITL: math.Inf(-1)}} {
		r := prometheus.NewPedanticRegistry()
		v := chat()
		v.Predicted = p
		New(r, "").Publish([]decision.ActedVariant{v})
		assert.Empty(t, names(t, r, "wva_predicted"), "%v", p)
	}
}

func TestPublishReplacesTheSet(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, "")
	removed, changed := chat(), chat()
	removed.Name = "removed"
	m.Publish([]decision.ActedVariant{chat(), removed})
	changed.Accelerator = "A100"
	m.Publish([]decision.ActedVariant{changed})
	for _, metric := range names(t, r, "wva") {
		series := gathered(t, r, metric)
		require.Len(t, series, 1, metric)
		assert.Contains(t, series[0], `accelerator_type="A100"`, metric)
		assert.Contains(t, series[0], `variant_name="chat"`, metric)
	}
	m.Publish(nil)
	assert.Empty(t, names(t, r, "wva"))
}

func TestAScrapeSeesOneSet(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, "")
	of := func(accelerator string) []decision.ActedVariant {
		variants := make([]decision.ActedVariant, 50)
		for i := range variants {
			variants[i] = chat()
			variants[i].Name, variants[i].Accelerator = fmt.Sprint("v", i), accelerator
		}
		return variants
	}
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for i := range 200 {
			m.Publish(of([]string{"A100", "H100"}[i%2]))
		}
	})
	for range 100 {
		series := strings.Join(gathered(t, r, "wva_desired_replicas"), "\n")
		mixed := strings.Contains(series, "A100") && strings.Contains(series, "H100")
		assert.False(t, mixed)
		assert.Contains(t, []int{0, 50}, strings.Count(series, "variant_name"))
	}
	publishing.Wait()
}

func TestScalingIsCounted(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, "")
	step := func(from, to int, reason decision.Reason) {
		v := chat()
		v.Previous, v.Desired, v.Reason = from, to, reason
		m.Publish([]decision.ActedVariant{v})
	}
	step(2, 3, decision.Optimal)
	step(3, 3, decision.Optimal)
	step(3, 5, decision.Optimal)
	step(5, 4, decision.Stabilized)
	counts := gathered(t, r, "wva_replica_scaling_total")
	require.Len(t, counts, 2)
	assert.Contains(t, counts[0], `direction="down"`)
	assert.Contains(t, counts[0], `reason="Stabilized"`)
	assert.True(t, strings.HasSuffix(counts[0], " 1"), counts[0])
	assert.Contains(t, counts[1], `direction="up"`)
	assert.True(t, strings.HasSuffix(counts[1], " 2"), counts[1])

	first := chat()
	first.Name, first.Decided = "first", false
	m.Publish([]decision.ActedVariant{first})
	assert.Empty(t, gathered(t, r, "wva_replica_scaling_total"), "the counters of a removed variant end, and a first decision changes nothing")
}

func TestOnlyTheWinnerOfAConflictHasDesiredReplicas(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, "")
	winner, loser := chat(), chat()
	winner.Resolution = decision.Winner
	loser.Name, loser.Resolution = "loser", decision.Suppressed
	for range 3 {
		m.Publish([]decision.ActedVariant{winner, loser})
	}
	for _, metric := range []string{"wva_desired_replicas", "wva_current_replicas", "wva_desired_ratio"} {
		series := gathered(t, r, metric)
		require.Len(t, series, 1, metric)
		assert.Contains(t, series[0], `variant_name="chat"`)
	}
	status := gathered(t, r, "wva_conflict_resolution_status")
	require.Len(t, status, 2)
	assert.Contains(t, status[0], `resolution="suppressed"`)
	assert.True(t, strings.HasSuffix(status[0], `variant_name="loser" 0`), status[0])
	assert.True(t, strings.HasSuffix(status[1], `variant_name="chat" 1`), status[1])
	assert.Equal(t, []string{`accelerator_type="H100",namespace="a",target_kind="Deployment",target_name="chat-decode",variant_name="loser" 1`},
		gathered(t, r, "wva_deployment_target_conflicts_total"), "a conflict that lasts is one")

	loser.Resolution = decision.NoConflict
	m.Publish([]decision.ActedVariant{loser})
	loser.Resolution = decision.Suppressed
	m.Publish([]decision.ActedVariant{loser})
	assert.True(t, strings.HasSuffix(gathered(t, r, "wva_deployment_target_conflicts_total")[0], " 2"))
}

func TestLabels(t *testing.T) {
	t.Parallel()
	tests := []struct{ give, want string }{
		{give: "", want: "unknown"},
		{give: " \t\n", want: "unknown"},
		{give: " H100 ", want: "H100"},
		{give: strings.Repeat("a", 128), want: strings.Repeat("a", 128)},
		{give: strings.Repeat("a", 129), want: strings.Repeat("a", 128)},
		{give: strings.Repeat("a", 127) + "é", want: strings.Repeat("a", 127)},
		{give: strings.Repeat("a", 126) + "é", want: strings.Repeat("a", 126) + "é"},
		{give: strings.Repeat("a", 100) + strings.Repeat(" ", 50) + "b", want: strings.Repeat("a", 100)},
		{give: "a\xffb", want: "a\uFFFDb"},
		{give: strings.Repeat("\xf0\x9f\x98", 60), want: "\uFFFD"},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, labelValue(tt.give))
	}
}

func FuzzLabel(f *testing.F) {
	f.Add("a")
	f.Add(strings.Repeat("é", 100))
	f.Add(strings.Repeat("\x80", 200))
	f.Fuzz(func(t *testing.T, text string) {
		got := labelValue(text)
		assert.True(t, utf8.ValidString(got))
		assert.NotEmpty(t, got)
		assert.LessOrEqual(t, len(got), maxLabel)
		assert.Equal(t, got, labelValue(got))
	})
}

func TestNamesThatAreEqualOnceTheyAreCut(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, "")
	first, second := chat(), chat()
	first.Name, second.Name = strings.Repeat("a", 130)+"1", strings.Repeat("a", 130)+"2"
	second.Desired = 9
	m.Publish([]decision.ActedVariant{first, second})
	series := gathered(t, r, "wva_desired_replicas")
	require.Len(t, series, 1, "a scrape with a duplicate fails as a whole")
	assert.True(t, strings.HasSuffix(series[0], " 3"))
	assert.Equal(t, []string{" 1"}, gathered(t, r, "fairlead_autoscaler_variants_without_series"))
}

func TestClear(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := everything(t, r)
	m.EndTerm()
	assert.Empty(t, names(t, r, "wva"))
	for _, metric := range []string{"cost_per_hour", "cost_gap_per_hour", "share", "demand_requests_per_second", "groups", "variants", "variant_problems", "last_success_timestamp_seconds"} {
		assert.Empty(t, gathered(t, r, "fairlead_autoscaler_"+metric), metric)
	}
	assert.NotEmpty(t, names(t, r, "fairlead_autoscaler_passes_total"), "counters of the process stay")

	again := chat()
	again.Previous = again.Desired
	m.Publish([]decision.ActedVariant{again})
	assert.Len(t, gathered(t, r, "wva_desired_replicas"), 1)
	assert.Empty(t, gathered(t, r, "wva_replica_scaling_total"), "the counters of the last term ended with it")
}

func TestDecided(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, "")
	m.ObserveDecision(decided())
	want := map[string][]string{
		"demand_requests_per_second": {`model="llama",namespace="a",pool="p",role="" 12.5`, `model="qwen",namespace="b",pool="unknown",role="decode" 1`},
		"share": {
			`model="llama",namespace="a",plan="acted",pool="p",role="" 0.9`, `model="llama",namespace="a",plan="optimal",pool="p",role="" 1`,
			`model="qwen",namespace="b",plan="acted",pool="unknown",role="decode" 0.5`, `model="qwen",namespace="b",plan="optimal",pool="unknown",role="decode" 0.5`,
		},
		"cost_per_hour":     {`plan="acted" 40`, `plan="optimal" 30.5`},
		"cost_gap_per_hour": {" 0.5"},
		"groups":            {" 2"},
		"variants":          {`reason="Excluded" 1`, `reason="Optimal" 2`},
		"variant_problems":  {`reason="TargetNotFound" 1`},
	}
	for metric, series := range want {
		assert.Equal(t, series, gathered(t, r, "fairlead_autoscaler_"+metric), metric)
	}
	m.ObserveDecision(&snapshot.Snapshot{}, &decision.Decision{})
	assert.Empty(t, gathered(t, r, "fairlead_autoscaler_demand_requests_per_second"))
	assert.Equal(t, []string{" 0"}, gathered(t, r, "fairlead_autoscaler_groups"))
}

func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, "")
	s, d := &snapshot.Snapshot{}, &decision.Decision{}
	for i := range maxGroups + 10 {
		s.Groups = append(s.Groups, snapshot.Group{Namespace: "a", Model: fmt.Sprint("m", i/2*2)}) // each name twice
		d.Groups = append(d.Groups, decision.Group{})
	}
	m.ObserveDecision(s, d)
	assert.Len(t, gathered(t, r, "fairlead_autoscaler_demand_requests_per_second"), (maxGroups+10)/2)
	for i := range s.Groups {
		s.Groups[i].Model = fmt.Sprint("m", i)
	}
	m.ObserveDecision(s, d)
	assert.Len(t, gathered(t, r, "fairlead_autoscaler_demand_requests_per_second"), maxGroups)
	assert.Equal(t, []string{fmt.Sprint(" ", maxGroups+10)}, gathered(t, r, "fairlead_autoscaler_groups"))
}

func TestPasses(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, "")
	end := time.Unix(1000, 500_000_000)
	m.CountPass("success", 0)
	m.MarkSuccess(end)
	m.CountPass("error", 0)
	assert.Equal(t, []string{`result="error" 1`, `result="success" 1`}, gathered(t, r, "fairlead_autoscaler_passes_total"))
	assert.Equal(t, []string{" 1000.5"}, gathered(t, r, "fairlead_autoscaler_last_success_timestamp_seconds"), "a failed pass is none")
	m.SetInterval(90 * time.Second)
	assert.InDelta(t, 90, testutil.ToFloat64(m.interval), 0)
}

func TestConfigured(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, "")
	m.Configured("fairlead/a", "")
	m.Configured("fairlead/b", "invalid")
	assert.Equal(t, []string{`config_map="fairlead/a" 1`, `config_map="fairlead/b" 0`}, gathered(t, r, "fairlead_autoscaler_config_valid"))
}

func TestScalerMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, "")
	m.CountAnswer("GetMetrics", "Unavailable")
	m.SetStreams(4)
	assert.Equal(t, []string{`code="Unavailable",method="GetMetrics" 1`}, gathered(t, r, "fairlead_autoscaler_scaler_requests_total"))
	assert.Equal(t, []string{" 4"}, gathered(t, r, "fairlead_autoscaler_scaler_streams"))
}
