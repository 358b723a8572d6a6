package debugpage

import (
	"slices"
	"strings"
	"sync/atomic"

	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

// Picks keeps the last exchanges for which an endpoint was picked, or could not be. Writers do not wait for each other.
type Picks struct {
	slots []atomic.Pointer[exchange.Record]
	next  atomic.Uint64
}

// NewPicks returns Picks that keep so many.
func NewPicks(n int) *Picks { return &Picks{slots: make([]atomic.Pointer[exchange.Record], n)} }

// Enabled tells whether any are kept: whether it is worth while to fill in the scores of candidates.
func (p *Picks) Enabled() bool { return len(p.slots) > 0 }

// ObserveExchange keeps a copy of an exchange that has ended.
func (p *Picks) ObserveExchange(r *exchange.Record) {
	if !p.Enabled() || r.Endpoint == nil && r.Outcome != exchange.Refused {
		return
	}
	kept := *r
	kept.Scores = slices.Clone(r.Scores)
	for _, s := range []*string{
		&kept.RequestID, &kept.TraceParent, &kept.Path, &kept.Model, &kept.Target, &kept.Rewrite, &kept.Fairness, &kept.Objective, &kept.Served, &kept.Reason,
	} {
		*s = strings.Clone((*s)[:min(len(*s), maxLength)]) // it may be part of something large
	}
	p.slots[(p.next.Add(1)-1)%uint64(len(p.slots))].Store(&kept)
}

// last returns what is kept, the newest first.
func (p *Picks) last() []*exchange.Record {
	var found []*exchange.Record
	for i, next := uint64(0), p.next.Load(); i < uint64(len(p.slots)) && i < next; i++ {
		if r := p.slots[(next-1-i)%uint64(len(p.slots))].Load(); r != nil { // it is counted before it is there
			found = append(found, r)
		}
	}
	return found
}
