package endpoint

import (
	"math"
	"sync"
	"sync/atomic"
)

// fading is how much of what was seen is left after one more page: the last few hundred count.
const fading = 0.995

// Traffic is how much of what the endpoints of a pool have to do was not placed by this picker: by its other replicas,
// as a rule.
type Traffic struct {
	mu            sync.Mutex
	others, total float64 // requests on pages, fading
	share         atomic.Uint64
}

// see takes the requests of one page, and how many of them are others'.
func (t *Traffic) see(others, total float64) {
	if total <= 0 {
		return // it says nothing
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.others = t.others*fading + others
	t.total = t.total*fading + total
	t.share.Store(math.Float64bits(t.others / t.total))
}

// Others returns the part that others have placed, 0 to 1.
func (t *Traffic) Others() float64 { return math.Float64frombits(t.share.Load()) }
