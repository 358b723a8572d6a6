package estimate

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAverage(t *testing.T) {
	t.Parallel()
	var m average
	assert.Zero(t, m.value())
	m.set(10)
	m.observe(20, 0.25)
	assert.InDelta(t, 12.5, m.value(), 1e-9)
	for range 100 {
		m.observe(4, 0.25)
	}
	assert.InDelta(t, 4, m.value(), 1e-9, "old values have no weight left")
}

func TestRatioOfAveragesIsTheRatioOfDecayedSums(t *testing.T) {
	t.Parallel()
	const memory = 0.9
	var a, b average
	var sumA, sumB float64
	for i := range 50 {
		x, y := float64(i%7), float64(1+i%3)
		a.observe(x, 1-memory)
		b.observe(y, 1-memory)
		sumA, sumB = sumA*memory+x, sumB*memory+y
		assert.InDelta(t, sumA/sumB, a.value()/b.value(), 1e-9)
	}
}

func TestAverage_IsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	var m average
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				m.observe(5, 0.01)
				assert.LessOrEqual(t, m.value(), 5.0)
			}
		})
	}
	wg.Wait()
	assert.InDelta(t, 5, m.value(), 0.1)
}
