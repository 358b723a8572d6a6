package predict

import (
	"math"
	"sync"
	"sync/atomic"
)

// sureOf is how many pages must say the same of a full batch: a server that is busy with a long prompt lets others wait too,
// and then takes them all.
const sureOf = 10

// batch learns how many requests a server computes at once, at most: as many as it was ever seen to, if it was seen so often
// enough while others waited there. Where memory is what is short, that is another number each time, and stays unknown.
type batch struct {
	mu    sync.Mutex // of who writes
	times int
	most  atomic.Uint64 // bits of a float: requests that it was seen to run
	size  atomic.Uint64 // likewise, and more it cannot; 0 if that is not known
}

// see takes what a page says.
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

// over is how many of so many requests have no place in the batch; 0 as long as it is not known.
func (b *batch) over(requests float64) float64 {
	size := math.Float64frombits(b.size.Load())
	if size == 0 {
		return 0
	}
	return max(requests-size, 0)
}

// full reports whether a server that runs so many runs as many as it was ever seen to.
func (b *batch) full(running float64) bool { return running >= math.Float64frombits(b.most.Load()) }
