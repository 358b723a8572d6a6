package learn

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/queueing"
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

// testScaling closes the loop: the replicas of the next pass follow from the learned capacity. It begins with far too many, whose batches
// are nearly empty.
func testScaling(t *testing.T, w world) {
	t.Helper()
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
}

// TestScalingFindsTheCapacity has a world that is calculated quickly. TestScalingFindsEveryCapacity has the others.
func TestScalingFindsTheCapacity(t *testing.T) {
	t.Parallel()
	w := worlds()[8]
	require.Equal(t, "queueing A100, mean", w.name)
	testScaling(t, w)
}

// TestMedianError is a short form of TestError: the median error of all worlds but the fastest one, after a part of an hour.
func TestMedianError(t *testing.T) {
	t.Parallel()
	var learned []float64
	for _, w := range worlds()[:10] {
		f := newFleet(w, 1, 5)
		capacity, m := f.learn(New(), 20, day(w.truth, 0.6, 0.9), w.truth*0.9)
		learned = append(learned, capacity/w.truth)
		assert.LessOrEqual(t, float64(m.Proven)/1e6, w.truth*1.1, "%s: nobody serves more than the truth", w.name)
	}
	t.Logf("%.2f", learned)
	slices.Sort(learned)
	assert.InDelta(t, 1, learned[len(learned)/2], 0.15, "parts of the truth: %.2f", learned)
}
