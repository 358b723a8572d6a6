package predict

import (
	"math"
	"sync"
	"sync/atomic"
)

// sureOf is the number of pages that must show the same full batch: a server that is busy with a long prompt also lets
// requests wait, and then runs all of them.
const sureOf = 10

// batch learns the maximum number of requests that a server runs at once: the most that it was seen to run, if it was seen
// with that number often enough while requests waited. Where memory is the limit, the number changes, and stays unknown.
type batch struct {
	mu    sync.Mutex // serializes writers
	times int
	most  atomic.Uint64 // bits of a float: maximum of running requests so far
	size  atomic.Uint64 // bits of a float: learned size of the batch; 0 if unknown
}

// see records the values of a page.
func (b *batch) see(running, waiting float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := math.Float64frombits(b.most.Load())
	switch {
	case running > most:
		b.times = 0
		b.most.Store(math.Float64bits(running))
		b.size.Store(0)
	case waiting > 0 && running == most:
		if b.times++; b.times == sureOf {
			b.size.Store(math.Float64bits(most))
		}
	}
}

// over returns the number of requests without a place in the batch; 0 while its size is unknown.
func (b *batch) over(requests float64) float64 {
	size := math.Float64frombits(b.size.Load())
	if size == 0 {
		return 0
	}
	return max(requests-size, 0)
}

// full reports whether the server runs at least as many requests as it was ever seen to run.
func (b *batch) full(running float64) bool { return running >= math.Float64frombits(b.most.Load()) }
