// Package ewma provides a concurrent exponentially weighted moving average.
package ewma

import (
	"math"
	"sync/atomic"
)

// Mean is an exponentially weighted moving average. It starts at 0.
//
// The ratio of two means with the same weights is the ratio of the exponentially decayed sums of their values.
//
// All methods are safe for concurrent use and take no lock. Of two concurrent observations one may be lost, because an
// average of hundreds of values does not depend on a single one. Callers that cannot accept this serialize Observe.
type Mean struct {
	bits atomic.Uint64 // of a float64
}

// Value returns the mean.
func (m *Mean) Value() float64 { return math.Float64frombits(m.bits.Load()) }

// Set replaces the mean by a value.
func (m *Mean) Set(value float64) { m.bits.Store(math.Float64bits(value)) }

// Observe adds a value with the given weight, 0 to 1. A weight of 0.01 remembers about the last hundred values.
func (m *Mean) Observe(value, weight float64) {
	last := m.Value()
	m.Set(last + weight*(value-last))
}
