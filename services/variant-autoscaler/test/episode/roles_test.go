package episode

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/pass"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// roleReplicas is what was decided for prefill and decode servers at a time.
type roleReplicas struct {
	at              float64
	prefill, decode int
}

// recordRoles returns options that record the decisions on both roles.
func recordRoles(into *[]roleReplicas) Options {
	return Options{Trace: func(o *pass.Outcome, now float64) {
		d := roleReplicas{at: now}
		for g := range o.Snapshot.Groups {
			for i := range o.Decision.Groups[g].Variants {
				switch n := o.Decision.Groups[g].Variants[i].Desired; o.Snapshot.Groups[g].Role {
				case snapshot.Prefill:
					d.prefill += n
				case snapshot.Decode:
					d.decode += n
				}
			}
		}
		*into = append(*into, d)
	}}
}

// TestPrefillHeavy: with nothing but what it learns, this service completes more requests than published, 818 of 2316. The published law
// has the tokens per second of a prefill server from a calibration.
func TestPrefillHeavy(t *testing.T) {
	t.Parallel()
	s := PrefillHeavyScenario(Qwen32(), 1)
	require.Len(t, s.Arrivals, 2316)
	static := Run(s, NewStatic, 1, 1)
	assert.InDelta(t, 116, static.Completed, 3, "the published result of static servers")
	var decisions []roleReplicas
	ours := Run(s, NewFairlead(recordRoles(&decisions)), 1, 1)
	assert.GreaterOrEqual(t, ours.Completed, 900)
	require.NotEmpty(t, decisions)
	for _, d := range decisions {
		assert.Equal(t, 1, d.decode, "at %.0f s: one decode server has room for all", d.at)
	}
}

// turnToDecode is a load of long prompts and short answers that turns into one of short prompts and long answers.
func turnToDecode(seed uint64) *Scenario {
	s := DisaggregatedScenario(Qwen32(), 1./15_000, seed)
	long, _ := PoissonArrivals([]Phase{{turn, 4}}, 8192, 64, 0.3, seed)
	short, _ := PoissonArrivals([]Phase{{900, 6}}, 256, 1024, 0.3, seed+1)
	for i := range short {
		short[i].At += turn
	}
	s.Arrivals, s.End = append(long, short...), turn+900
	return s
}

const turn = 1200 // seconds

// TestTurnToDecode: prefill servers go within one stabilization window.
func TestTurnToDecode(t *testing.T) {
	t.Parallel()
	const window = 300
	var decisions []roleReplicas
	result := Run(turnToDecode(1), NewFairlead(recordRoles(&decisions)), 4, 1)
	assert.GreaterOrEqual(t, result.AttainedShare(), 0.9)
	assert.Zero(t, result.Cut)
	before, after := roleReplicas{}, roleReplicas{}
	for _, d := range decisions {
		if d.at < turn {
			before = d
		}
		if d.at < turn+window {
			after = d
		}
	}
	assert.GreaterOrEqual(t, before.prefill, 4)
	assert.Equal(t, 1, before.decode)
	assert.LessOrEqual(t, after.prefill, before.prefill/2, "within one window")
	assert.Greater(t, after.decode, before.decode)
}

// TestDecodeIsFull: decode servers have reached their maximum. Prefill servers keep the KV caches of those that wait for them, have no
// room, and let others wait. More of them would not help.
func TestDecodeIsFull(t *testing.T) {
	t.Parallel()
	s := DisaggregatedScenario(Qwen32(), 1./15_000, 1)
	s.Variants[1].Max = 1
	s.Arrivals, s.End = PoissonArrivals([]Phase{{900, 6}}, 2048, 1024, 0.3, 1)
	var decisions []roleReplicas
	waiting := 0.0
	o := recordRoles(&decisions)
	record := o.Trace
	o.Trace = func(outcome *pass.Outcome, now float64) {
		record(outcome, now)
		for i := range outcome.Snapshot.Groups {
			waiting = max(waiting, outcome.Snapshot.Groups[i].Load.Waiting)
		}
	}
	Run(s, NewFairlead(o), 2, 1)
	require.NotEmpty(t, decisions)
	assert.Positive(t, waiting)
	for _, d := range decisions {
		assert.LessOrEqual(t, d.prefill, 2, "at %.0f s", d.at)
	}
}

// BenchmarkRoles prints the table of prefill and decode servers.
func BenchmarkRoles(b *testing.B) {
	const seeds = 24
	for range b.N {
		fmt.Println("| load | servers | completed, median | worst | within both, median | worst | replicas, median |")
		fmt.Println("|---|---|---|---|---|---|---|")
		for _, l := range []struct {
			name    string
			load    func(seed uint64) *Scenario
			with    func(s *Scenario) scaler
			servers string
			first   []int
		}{
			{"prefill-heavy", heavy, NewStatic, "static, 1 and 1", []int{1, 1}},
			{"prefill-heavy", heavy, NewStatic, "static, 4 and 1", []int{4, 1}},
			{"prefill-heavy", heavy, NewFairlead(Options{}), "Fairlead, defaults", []int{1, 1}},
			{"turns to decode", turnToDecode, NewStatic, "static, 5 and 6", []int{5, 6}},
			{"turns to decode", turnToDecode, NewFairlead(Options{}), "Fairlead, defaults", []int{4, 1}},
		} {
			var completed, within, replicas []float64
			for seed := range uint64(seeds) {
				r := Run(l.load(seed), l.with, l.first...)
				completed, within, replicas = append(completed, float64(r.Completed)), append(within, 100*r.AttainedShare()),
					append(replicas, r.MeanReplicas())
			}
			slices.Sort(completed)
			slices.Sort(within)
			slices.Sort(replicas)
			inTime, worst := "-", "-"
			if l.load(0).Patience > 0 {
				inTime, worst = fmt.Sprintf("%.0f of %d", completed[seeds/2], len(l.load(0).Arrivals)), fmt.Sprintf("%.0f", completed[0])
			}
			fmt.Printf("| %s | %s | %s | %s | %.1f %% | %.1f %% | %.2f |\n",
				l.name, l.servers, inTime, worst, within[seeds/2], within[0], replicas[seeds/2])
		}
	}
}

func heavy(seed uint64) *Scenario { return PrefillHeavyScenario(Qwen32(), seed) }
