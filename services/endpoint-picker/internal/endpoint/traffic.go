package endpoint

import (
	"math"
	"sync"
	"sync/atomic"
)

// fading is the weight that older pages keep after each page: the last few hundred pages count.
const fading = 0.995

// Traffic is the share of the load of a pool that this picker did not place. Usually its other replicas did.
type Traffic struct {
	mu            sync.Mutex
	others, total float64 // requests on pages, with decay
	share         atomic.Uint64
}

// see records the requests of one page, and how many of them others placed.
func (t *Traffic) see(others, total float64) {
	if total <= 0 {
		return // an empty page has no information
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.others = t.others*fading + others
	t.total = t.total*fading + total
	t.share.Store(math.Float64bits(t.others / t.total))
}

// Others returns the share that others placed, 0 to 1.
func (t *Traffic) Others() float64 { return math.Float64frombits(t.share.Load()) }
