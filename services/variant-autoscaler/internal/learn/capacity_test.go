package learn

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/racetest"
	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/sample"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

func (s sizes) traffic() queueing.Traffic { return queueing.Traffic{Input: s.input, Output: s.output} }

// day returns a rate that goes up and down once an hour, between two parts of the capacity.
func day(capacity, low, high float64) func(now float64) float64 {
	return func(now float64) float64 {
		_, hour := math.Modf(now / 3600)
		return capacity * (low + (high-low)*(1-math.Abs(2*hour-1)))
	}
}

// learn observes a sample of each minute, and returns the last capacity in requests per second and replica.
func (f *fleet) learn(l *Learner, minutes int, rate func(now float64) float64, most float64) (capacity float64, m *snapshot.Measured) {
	for range minutes {
		f.run(60, rate, most)
		m = l.Observe(f.sample(), f.targets)
	}
	return float64(Capacity(m, f.sizes.traffic(), f.targets)) / 1e6, m
}

func TestTruth(t *testing.T) {
	racetest.SkipCalculation(t)
	t.Parallel()
	check := func(w world, replicas int) {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			const tolerance = 0.1 // random arrivals: the search with two seeds
			assert.True(t, w.meets(w.truth*(1-tolerance), replicas, 7))
			assert.False(t, w.meets(w.truth*(1+tolerance), replicas, 7))
		})
	}
	for _, w := range worlds() {
		check(w, 1)
	}
	check(longChat(), 1)
	check(slowReplica(), 4)
}

// TestSearchForTheTruth: worlds have the results of this search as constants, as it takes long.
func TestSearchForTheTruth(t *testing.T) {
	racetest.SkipCalculation(t)
	t.Parallel()
	w := worlds()[8]
	require.Equal(t, "queueing A100, mean", w.name)
	assert.InEpsilon(t, w.truth, w.capacity(1), 0.01)
}

// TestError states how far learned capacities are from true ones. Replicas are seen for an hour at a load that goes up and down. The
// number of slots shows only when all are taken: below, at most three times the largest batch seen is expected.
func TestError(t *testing.T) {
	racetest.SkipCalculation(t)
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

// TestScalingFindsTheCapacity closes the loop: the replicas of the next pass follow from the learned capacity. It begins with far too
// many, whose batches are nearly empty.
func TestScalingFindsTheCapacity(t *testing.T) {
	racetest.SkipCalculation(t)
	t.Parallel()
	for i, w := range worlds() {
		if i%2 == 1 && !w.slots || w.truth > 20 {
			continue // for time
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			const headroom, best = 1.1, 3.0
			load := w.truth * best / headroom
			f := newFleet(w, 12, 3)
			l := New()
			used := 0.0
			for pass := range 90 {
				capacity, _ := f.learn(l, 1, func(float64) float64 { return load }, load)
				if pass >= 60 {
					used += float64(len(f.servers)) / 30
				}
				if pass%4 == 3 { // a replica takes some minutes to start or to stop
					wanted := int(math.Ceil(load * headroom / max(capacity, load/100)))
					f.scale(min(max(wanted, 1), 64))
				}
			}
			most := 1.4
			if w.name == "short answers, TTFT binds" {
				most = 1.7 // a few requests at once: the wait for prefills grows faster than the cautious line expects
			}
			assert.LessOrEqual(t, used, best*most, "not over-provisioned for ever")
			t.Logf("%.2f replicas, %.0f suffice", used, best)
			assert.GreaterOrEqual(t, used, best*0.75, "not trusted with too much for long")
		})
	}
}

func TestTrafficThatChanges(t *testing.T) {
	racetest.SkipCalculation(t)
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
	racetest.SkipCalculation(t)
	t.Parallel()
	w := slowReplica()
	f := newFleet(w, 4, 5)
	capacity, _ := f.learn(New(), 60, day(4*w.truth, 0.6, 0.9), 4*w.truth)
	assert.InDelta(t, 1, capacity/w.truth, 0.2)
}

// TestBadSamples: a tenth of the samples have one figure that is wrong by a factor of 3 either way, all of them vary by 10 %, and a
// quarter of the scrapes is lost.
func TestBadSamples(t *testing.T) {
	racetest.SkipCalculation(t)
	t.Parallel()
	for i, w := range worlds() {
		if w.targets.Percentile == 0 || i%2 == 1 || w.truth > 20 {
			continue // for time
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(w, 1, 5)
			r := rand.New(rand.NewPCG(4, 4))
			f.distort = func(s *sample.Sample) {
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
