// Package fading has means in which what was long ago counts little.
package fading

import (
	"math"
	"sync/atomic"
)

// Mean is a mean of values, each of which counts less with every one that comes after it. It begins at 0. All methods may
// be called at any time by anyone and take no lock; of two values that are seen at once one may be lost.
type Mean struct {
	bits atomic.Uint64 // of a float
}

// Value returns the mean.
func (m *Mean) Value() float64 { return math.Float64frombits(m.bits.Load()) }

// Set begins anew at a value.
func (m *Mean) Set(value float64) { m.bits.Store(math.Float64bits(value)) }

// See takes a value, of which the mean is to have that part: 0 to 1.
func (m *Mean) See(value, weight float64) {
	last := m.Value()
	m.Set(last + weight*(value-last))
}
