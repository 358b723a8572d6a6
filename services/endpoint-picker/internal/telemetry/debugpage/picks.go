package debugpage

import (
	"slices"
	"strings"
	"sync/atomic"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// Picks keeps the last requests for which a pick succeeded or failed. Writers do not wait for each other.
type Picks struct {
	slots []atomic.Pointer[request.Record]
	next  atomic.Uint64
}

// NewPicks returns Picks for n requests.
func NewPicks(n int) *Picks { return &Picks{slots: make([]atomic.Pointer[request.Record], n)} }

// IsEnabled reports whether picks are kept, so that callers can skip the scores of candidates.
func (p *Picks) IsEnabled() bool { return len(p.slots) > 0 }

// ObserveRequest keeps a copy of a finished request.
func (p *Picks) ObserveRequest(r *request.Record) {
	if !p.IsEnabled() || r.Endpoint == nil && r.Outcome != request.Refused {
		return
	}
	record := *r
	record.Scores = slices.Clone(r.Scores)
	for _, s := range []*string{
		&record.RequestID, &record.TraceParent, &record.Path, &record.Model, &record.Target, &record.Rewrite, &record.Fairness,
		&record.Objective, &record.Served, &record.Reason,
	} {
		*s = strings.Clone((*s)[:min(len(*s), maxLength)]) // it may be part of a large string
	}
	p.slots[(p.next.Add(1)-1)%uint64(len(p.slots))].Store(&record)
}

// lastPicks returns the requests, newest first.
func (p *Picks) lastPicks() []*request.Record {
	var found []*request.Record
	for i, next := uint64(0), p.next.Load(); i < uint64(len(p.slots)) && i < next; i++ {
		if r := p.slots[(next-1-i)%uint64(len(p.slots))].Load(); r != nil { // the counter grows before the slot is filled
			found = append(found, r)
		}
	}
	return found
}
