package modelserver

import (
	"sync"
	"time"
)

// A Budget is a number of scrapes per second, which several schedules share. It is safe for concurrent use.
type Budget struct {
	perSecond float64

	mu        sync.Mutex
	allowance float64 // scrapes allowed now
	filledAt  time.Time
}

// NewBudget returns a budget of scrapes per second.
func NewBudget(perSecond float64) *Budget { return &Budget{perSecond: perSecond} }

// takeScrapes takes up to a number of scrapes, and returns how many it took. What nobody takes accumulates for a burst.
func (b *Budget) takeScrapes(wanted int, now time.Time, burst time.Duration) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if passed := now.Sub(b.filledAt); passed > 0 {
		b.allowance += b.perSecond * passed.Seconds()
		b.filledAt = now
	}
	b.allowance = min(b.allowance, max(b.perSecond*burst.Seconds(), 1))
	taken := min(wanted, int(b.allowance))
	b.allowance -= float64(taken)
	return taken
}
