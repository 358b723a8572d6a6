package simulation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// What tests measure is shorter than what the benchmark does: the race detector makes a run ten times slower.
const (
	measuredOther = 8 * time.Second
)

// find returns a scenario of this name.
func find(t *testing.T, from []Scenario, name string) Scenario {
	t.Helper()
	i := slices.IndexFunc(from, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("there is no scenario %q", name)
	}
	return from[i]
}

// ratios is how a policy's time to the first token compares with another's.
type ratios struct{ mean, p99 float64 }

func compare(r, with Result) ratios {
	a, b := r.TTFT(), with.TTFT()
	return ratios{mean: float64(a.Mean) / float64(b.Mean), p99: float64(a.P99) / float64(b.P99)}
}

// medians are those of each figure.
func medians(all []ratios) ratios {
	var means, p99s []float64
	for _, r := range all {
		means, p99s = append(means, r.mean), append(p99s, r.p99)
	}
	return ratios{mean: median(means), p99: median(p99s)}
}

// The picker is compared with a policy that knows what will be, and two replicas that know nothing of each other with one.
func TestPickerIsNearGreedy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		want     ratios  // of one replica to greedy, at most
		replicas float64 // of two replicas' mean to that of one, at most
		rejected int     // tries that meet the dead server, at most
	}{
		{"uniform", ratios{1.05, 1.15}, 1.3, 0},
		{"zipf", ratios{1.15, 1.3}, 1.3, 0},
		{"multiturn", ratios{1.25, 1.3}, 1.3, 0},
		{"mixed", ratios{1.1, 1.05}, 1.3, 0},
		{"churn", ratios{1.3, 1.6}, 1.3, 10},
		{"slow", ratios{1.05, 1.15}, 1.3, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := find(t, Standard(), tt.name)
			s.Measured = max(9*time.Second, time.Duration(900/s.Workload.rate*float64(time.Second)))
			var one, two []ratios
			for seed := uint64(1); seed <= 3; seed++ {
				trace := s.Trace(seed)
				single := trace.Run(Picker(1, InTurn))
				one = append(one, compare(single, trace.Run(Greedy())))
				two = append(two, compare(trace.Run(Picker(2, InTurn)), single))
				assert.LessOrEqual(t, single.Rejected, tt.rejected)
				assert.Zero(t, single.Failed)
			}
			got := medians(one)
			assert.LessOrEqual(t, got.mean, tt.want.mean, "mean of one replica to greedy")
			assert.LessOrEqual(t, got.p99, tt.want.p99, "99th percentile of one replica to greedy")
			assert.LessOrEqual(t, medians(two).mean, tt.replicas, "mean of two replicas to one")
			fmt.Printf("%-30s %.2f %.2f  x2 %.2f  %v\n", tt.name, got.mean, got.p99, medians(two).mean, two)
		})
	}
}

func TestPickerIsNearGreedyInOtherFleets(t *testing.T) {
	t.Parallel()
	for _, s := range Others() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s.Measured = min(s.Measured, measuredOther)
			trace := s.Trace(1)
			g := trace.Run(Greedy())
			one := compare(trace.Run(Picker(1, InTurn)), g)
			two := compare(trace.Run(Picker(2, InTurn)), g)
			fmt.Printf("%-30s %.2f %.2f  x2 %.2f %.2f   n %d\n", s.Name, one.mean, one.p99, two.mean, two.p99, g.Requests())
		})
	}
}
