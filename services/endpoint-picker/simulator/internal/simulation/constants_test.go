package simulation

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// tuned is one number.
type tuned struct {
	name  string // as in the code; a field has the name of its variable before it
	value float64
	whole bool // it is written without a fraction
}

// half and double return the changed value, and whether there is one. A share stays at most 1. A weight above 0.9 is how much of the past
// stays, so its distance from 1 changes, for half and double the memory.
func (c *tuned) half() (float64, bool) {
	switch {
	case c.memory():
		return 1 - 2*(1-c.value), true
	default: // where code needs a whole number, it takes the smaller one
		return c.value / 2, !c.whole || c.value >= 2
	}
}

func (c *tuned) double() (float64, bool) {
	switch {
	case c.memory():
		return 1 - (1-c.value)/2, true
	case !c.whole && c.value > 0.5 && c.value < 1:
		return 1, true
	default:
		return 2 * c.value, c.value > 0
	}
}

func (c *tuned) memory() bool { return c.value > 0.9 && c.value < 1 }

func TestHalfAndDouble(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		give         tuned
		half, double float64
	}{
		{tuned{value: 5, whole: true}, 2.5, 10},
		{tuned{value: 0.25}, 0.125, 0.5},
		{tuned{value: 0.75}, 0.375, 1},
		{tuned{value: 0.999}, 0.998, 0.9995},
	} {
		half, ok := tt.give.half()
		assert.True(t, ok)
		assert.InDelta(t, tt.half, half, 1e-12)
		double, ok := tt.give.double()
		assert.True(t, ok)
		assert.InDelta(t, tt.double, double, 1e-12)
	}
	_, ok := (&tuned{value: 1, whole: true}).half()
	assert.False(t, ok)
}
