package ewma_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/ewma"
)

func TestMean(t *testing.T) {
	t.Parallel()
	var m ewma.Mean
	assert.Zero(t, m.Value())
	m.Set(10)
	m.Observe(20, 0.25)
	assert.InDelta(t, 12.5, m.Value(), 1e-9)
	for range 100 {
		m.Observe(4, 0.25)
	}
	assert.InDelta(t, 4, m.Value(), 1e-9, "old values have no weight left")
}

func TestRatioOfMeansIsTheRatioOfDecayedSums(t *testing.T) {
	t.Parallel()
	const memory = 0.9
	var a, b ewma.Mean
	var sumA, sumB float64
	for i := range 50 {
		x, y := float64(i%7), float64(1+i%3)
		a.Observe(x, 1-memory)
		b.Observe(y, 1-memory)
		sumA, sumB = sumA*memory+x, sumB*memory+y
		assert.InDelta(t, sumA/sumB, a.Value()/b.Value(), 1e-9)
	}
}

func TestMean_IsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	var m ewma.Mean
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				m.Observe(5, 0.01)
				assert.LessOrEqual(t, m.Value(), 5.0)
			}
		})
	}
	wg.Wait()
	assert.InDelta(t, 5, m.Value(), 0.1)
}
