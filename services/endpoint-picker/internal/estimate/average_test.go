package estimate

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAverage(t *testing.T) {
	t.Parallel()
	var m movingAverage
	assert.Zero(t, m.Load())
	m.Store(10)
	m.addSample(20, 0.25)
	assert.InDelta(t, 12.5, m.Load(), 1e-9)
	for range 100 {
		m.addSample(4, 0.25)
	}
	assert.InDelta(t, 4, m.Load(), 1e-9, "old values have no weight left")
}

func TestRatioOfAveragesIsTheRatioOfDecayedSums(t *testing.T) {
	t.Parallel()
	const memory = 0.9
	var a, b movingAverage
	var sumA, sumB float64
	for i := range 50 {
		x, y := float64(i%7), float64(1+i%3)
		a.addSample(x, 1-memory)
		b.addSample(y, 1-memory)
		sumA, sumB = sumA*memory+x, sumB*memory+y
		assert.InDelta(t, sumA/sumB, a.Load()/b.Load(), 1e-9)
	}
}

func TestAverage_IsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	var m movingAverage
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				m.addSample(5, 0.01)
				assert.LessOrEqual(t, m.Load(), 5.0)
			}
		})
	}
	wg.Wait()
	assert.InDelta(t, 5, m.Load(), 0.1)
}
