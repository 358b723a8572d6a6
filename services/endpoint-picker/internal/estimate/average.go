package estimate

import (
	"math"
	"sync/atomic"
)

// movingAverage is an exponentially weighted moving average. It starts at 0.
//
// The ratio of two averages with the same weights is the ratio of the exponentially decayed sums of their values.
//
// All methods are safe for concurrent use and take no lock. Of two concurrent observations one may be lost, because an
// average of hundreds of values does not depend on a single one. Callers that cannot accept this serialize addSample.
type movingAverage struct{ atomicFloat }

// addSample adds a value with the given weight, 0 to 1. A weight of 0.01 remembers about the last hundred values.
func (a *movingAverage) addSample(v, weight float64) {
	last := a.Load()
	a.Store(last + weight*(v-last))
}

// addOrSet is addSample for an average whose 0 means that there was no value: the first one sets it.
func (a *movingAverage) addOrSet(v, weight float64) {
	if a.Load() == 0 {
		weight = 1
	}
	a.addSample(v, weight)
}

// atomicFloat is a number that is safe for concurrent use.
type atomicFloat struct{ bits atomic.Uint64 }

func (f *atomicFloat) Load() float64   { return math.Float64frombits(f.bits.Load()) }
func (f *atomicFloat) Store(v float64) { f.bits.Store(math.Float64bits(v)) }
