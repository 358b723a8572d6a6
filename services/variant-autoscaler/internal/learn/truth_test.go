//go:build long

package learn

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/steptime"
	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/test/modelserver"
)

// longChat has longer requests than "chat, ITL binds".
func longChat() world {
	w := worlds()[3]
	w.name, w.sizes, w.truth = "long chat, ITL binds", sizes{input: 1500, output: 500, spread: 0.5}, 4.2
	return w
}

// slowReplica has servers of which each fourth takes twice as long for everything.
func slowReplica() world {
	w := worlds()[7]
	w.name, w.truth = "overlap, one of four is slow", 8.2
	servers := 0
	w.server = func(r *rand.Rand) modelserver.Server {
		slow := 1.0
		if servers%4 == 0 {
			slow = 2
		}
		servers++
		return modelserver.NewStepServers(steptime.Realistic(), 256, w.cache, slow)(r)
	}
	return w
}

// meets reports whether replicas meet the targets at a rate per replica, in a long run.
func (w world) meets(rate float64, replicas int, seed uint64) bool {
	const warm, seconds = 600, 2000
	f := newFleet(w, replicas, seed)
	all := rate * float64(replicas)
	constant := func(float64) float64 { return all }
	f.run(warm, constant, all)
	before := make([]modelserver.Page, replicas)
	for i, s := range f.servers {
		s.Advance(f.now)
		before[i] = s.Read()
	}
	f.run(seconds, constant, all)
	var firsts []float64
	itl, tokens := 0.0, 0.0
	for i, s := range f.servers {
		s.Advance(f.now)
		p := s.Read()
		firsts = append(firsts, p.Firsts[len(before[i].Firsts):]...)
		for _, arrived := range p.Pending {
			firsts = append(firsts, max(f.now-arrived, 0))
		}
		itl += p.ITLSum - before[i].ITLSum
		tokens += p.ITLCount - before[i].ITLCount
	}
	if w.targets.ITL > 0 && 1e3*itl/tokens > w.targets.ITL {
		return false
	}
	return w.targets.TTFT == 0 || 1e3*quantile(firsts, w.targets.Percentile) <= w.targets.TTFT
}

// quantile returns a percentile, or the mean for 0.
func quantile(values []float64, percentile float64) float64 {
	if percentile == 0 {
		sum := 0.0
		for _, v := range values {
			sum += v
		}
		return sum / float64(len(values))
	}
	slices.Sort(values)
	return values[min(int(float64(len(values))*percentile/100), len(values)-1)]
}

// capacity searches for the largest rate per replica that meets the targets, with the mean of some seeds.
func (w world) capacity(replicas int) float64 {
	const seeds = 2
	sum := 0.0
	for seed := range uint64(seeds) {
		low, high := 0.0, 0.05
		for w.meets(high, replicas, seed+100) {
			low, high = high, high*2
		}
		for high-low > 0.02*high {
			if middle := (low + high) / 2; w.meets(middle, replicas, seed+100) {
				low = middle
			} else {
				high = middle
			}
		}
		sum += low
	}
	return sum / seeds
}

// TestSearchForTheTruth: worlds have the results of this search as constants, as it takes long.
func TestSearchForTheTruth(t *testing.T) {
	t.Parallel()
	w := worlds()[8]
	require.Equal(t, "queueing A100, mean", w.name)
	assert.InEpsilon(t, w.truth, w.capacity(1), 0.01)
}

// TestError states how far learned capacities are from true ones. Replicas are seen for an hour at a load that goes up and down. The
// number of slots shows only when all are taken: below, at most three times the largest batch seen is expected.
func TestError(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name            string
		low, high       float64
		minutes         int
		atLeast, atMost float64
		hidden          float64 // at most, where the slots are what limits
	}{
		{"first answers at low load", 0.1, 0.3, 10, 0.15, 0.9, 1.1},
		{"medium load", 0.4, 0.7, 60, 0.6, 1.15, 3.3},
		{"high load", 0.6, 0.9, 60, 0.8, 1.2, 1.5},
		{"overload", 0.9, 1.2, 60, 0.8, 1.2, 1.2},
	}
	for _, w := range worlds() {
		for _, tt := range tests {
			if w.slots {
				tt.atMost = tt.hidden
			}
			t.Run(w.name+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				f := newFleet(w, 1, 5)
				capacity, m := f.learn(New(), tt.minutes, day(w.truth, tt.low, tt.high), w.truth*tt.high)
				t.Logf("learned %.2f of the truth, proven %.2f, error %.2f", capacity/w.truth, float64(m.Proven)/1e6/w.truth, m.Error)
				assert.GreaterOrEqual(t, capacity/w.truth, tt.atLeast)
				assert.LessOrEqual(t, capacity/w.truth, tt.atMost)
				assert.LessOrEqual(t, float64(m.Proven)/1e6, w.truth*1.1, "nobody serves more than the truth")
				assert.LessOrEqual(t, m.Proven, Capacity(m, queueing.Traffic{Input: m.Input, Output: m.Output}, w.targets))
				assert.Less(t, m.Error, 0.25)
			})
		}
	}
}

// TestScalingFindsEveryCapacity is TestScalingFindsTheCapacity in other worlds.
func TestScalingFindsEveryCapacity(t *testing.T) {
	t.Parallel()
	for i, w := range worlds() {
		if i%2 == 1 && !w.slots || w.truth > 20 {
			continue // for time
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			testScaling(t, w)
		})
	}
}

func TestTrafficThatChanges(t *testing.T) {
	t.Parallel()
	w := worlds()[3]
	require.Equal(t, "chat, ITL binds", w.name)
	f, l := newFleet(w, 1, 9), New()
	before, m := f.learn(l, 60, day(w.truth, 0.4, 0.7), w.truth)
	proven := m.Proven
	heavier := longChat()
	truth := heavier.truth
	require.Less(t, truth, before/2)
	f.sizes = heavier.sizes
	capacity, m := f.learn(l, 10, day(truth, 0.4, 0.7), truth)
	assert.Less(t, m.Proven, proven/2, "what was proven with short requests is not proven with long ones")
	assert.InDelta(t, 1, capacity/truth, 0.25, "the law of the servers is known")
	fresh := newFleet(heavier, 1, 9)
	unknown, _ := fresh.learn(New(), 10, day(truth, 0.4, 0.7), truth)
	assert.GreaterOrEqual(t, capacity, unknown*0.95, "knowledge of other requests helps")
}

// TestSlowReplica: of four replicas, one takes twice as long for everything. The picker gives it less.
func TestSlowReplica(t *testing.T) {
	t.Parallel()
	w := slowReplica()
	f := newFleet(w, 4, 5)
	capacity, _ := f.learn(New(), 60, day(4*w.truth, 0.6, 0.9), 4*w.truth)
	assert.InDelta(t, 1, capacity/w.truth, 0.2)
}

// TestBadSamples: a tenth of the samples have one figure that is wrong by a factor of 3 either way, all of them vary by 10 %, and a
// quarter of the scrapes is lost.
func TestBadSamples(t *testing.T) {
	t.Parallel()
	for i, w := range worlds() {
		if w.targets.Percentile == 0 || i%2 == 1 || w.truth > 20 {
			continue // for time
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(w, 1, 5)
			r := rand.New(rand.NewPCG(4, 4))
			f.distort = func(s *snapshot.Sample) {
				figures := []*float64{&s.Running, &s.Rate, &s.ITL, &s.TTFT, &s.Prefill}
				for _, x := range figures {
					*x *= math.Exp(0.1 * r.NormFloat64())
				}
				if r.IntN(10) == 0 {
					*figures[r.IntN(len(figures))] *= []float64{3, 1. / 3}[r.IntN(2)]
				}
			}
			f.gap = func(int) bool { return r.IntN(4) == 0 }
			capacity, _ := f.learn(New(), 60, day(w.truth, 0.6, 0.9), w.truth)
			assert.GreaterOrEqual(t, capacity/w.truth, 0.7)
			if w.slots {
				assert.LessOrEqual(t, capacity/w.truth, 2.0)
			} else {
				assert.LessOrEqual(t, capacity/w.truth, 1.4)
			}
		})
	}
}
