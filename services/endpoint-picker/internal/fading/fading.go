// Package fading provides a concurrent exponentially weighted moving average.
package fading

import (
	"math"
	"sync/atomic"
)

// Mean is an exponentially weighted moving average. It starts at 0. All methods are safe for concurrent use and take no
// lock; one of two concurrent values may be lost.
type Mean struct {
	bits atomic.Uint64 // of a float
}

// Value returns the mean.
func (m *Mean) Value() float64 { return math.Float64frombits(m.bits.Load()) }

// Set resets the mean to a value.
func (m *Mean) Set(value float64) { m.bits.Store(math.Float64bits(value)) }

// See adds a value with the given weight, 0 to 1.
func (m *Mean) See(value, weight float64) {
	last := m.Value()
	m.Set(last + weight*(value-last))
}
