package request

import (
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// A Role is the part of a request that an endpoint computes.
type Role uint8

// The roles. The endpoint that decodes computes the prompt, too, unless another one has that role.
const (
	Decode  Role = iota // gets the request, and answers the client
	Prefill             // computes the prompt, and passes its KV cache on
	roles
)

// Placements are the endpoints of a request. Each role has the lease that counts the request on its endpoint; a role without
// an endpoint has nil.
type Placements [roles]*endpoint.Lease

// AnsweringLease returns the lease on the endpoint that answers the client, nil if the request is not placed.
func (p *Placements) AnsweringLease() *endpoint.Lease { return p[Decode] }

// eachLease calls f for the lease of each role.
func (p *Placements) eachLease(f func(l *endpoint.Lease)) {
	for _, l := range p {
		if l != nil {
			f(l)
		}
	}
}

// markFirstContent records that the answer has begun. The prompt is computed then.
func (p *Placements) markFirstContent(now time.Time) {
	p.eachLease(func(l *endpoint.Lease) { l.MarkFirstContent(now) })
	if l := p[Prefill]; l != nil {
		l.Release()
	}
}

// abandonAll ends the observation of the request, which goes on.
func (p *Placements) abandonAll(now time.Time) {
	p.eachLease(func(l *endpoint.Lease) { l.Abandon(now) })
}
