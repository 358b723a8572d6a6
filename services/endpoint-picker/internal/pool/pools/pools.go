// Package pools finds the pool of a stream in a process that serves several pools.
//
// Gateways do not send the name of a pool. They reach the picker through the Service and port of the pool's
// endpointPickerRef, and send these as the :authority of the stream. So pools of one picker have different Services, which
// select the same pods, or different ports of one Service.
package pools

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/metadata"

	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

const headerAuthority = ":authority"

// A Member is one pool.
type Member struct {
	Title   string  // namespace/name; no other member has it
	Address Address // no other member has it
	Pool    exchange.Pool
}

// Set contains the pools of a process. It is safe for concurrent use.
type Set struct {
	missing exchange.Pool
	current atomic.Pointer[lookupTables]
}

// lookupTables find pools. They are never changed.
type lookupTables struct {
	addresses poolsByAddress
	titles    map[string]exchange.Pool
}

// poolsByAddress finds pools by all forms of their addresses. The pool of an ambiguous form is nil.
type poolsByAddress map[Address]exchange.Pool

// NewSet returns an empty Set. Streams for none of its pools get the pool missing.
func NewSet(missing exchange.Pool) *Set {
	s := &Set{missing: missing}
	s.current.Store(&lookupTables{})
	return s
}

// ReplaceMembers replaces the members.
func (s *Set) ReplaceMembers(members []Member) {
	next := lookupTables{addresses: poolsByAddress{}, titles: map[string]exchange.Pool{}}
	for _, m := range members {
		next.titles[m.Title] = m.Pool
		for _, form := range m.Address.matchingForms() {
			next.addresses.addForm(form, m.Pool)
		}
	}
	s.current.Store(&next)
}

// addForm adds a form of an address. A form that several pools have finds none of them.
func (t poolsByAddress) addForm(a Address, p exchange.Pool) {
	if _, ambiguous := t[a]; ambiguous {
		p = nil
	}
	t[a] = p
}

// matchingForms returns the forms in which gateways may name an address. A form without the port does not find a pool at another
// port, and a form without the Service does not find a pool of another Service, because the pool of that address may be gone.
func (a Address) matchingForms() []Address {
	return []Address{
		a,
		{Namespace: a.Namespace, Service: a.Service},
		{Service: a.Service, Port: a.Port},
		{Service: a.Service},
		{Port: a.Port},
	}
}

// FindPool returns the pool of a stream, by its context.
func (s *Set) FindPool(ctx context.Context) exchange.Pool {
	if values := metadata.ValueFromIncomingContext(ctx, headerAuthority); len(values) == 1 {
		if p := s.current.Load().addresses[ParseAuthority(values[0])]; p != nil {
			return p
		}
	}
	return s.missing
}

// FindTitle returns the pool with a title, or nil.
func (s *Set) FindTitle(title string) exchange.Pool { return s.current.Load().titles[title] }

// FindHost returns the pool of an HTTP request, by its host: the Service of an endpointPickerRef, without a port, with the port of the
// endpointPickerRef, or with that of one of our listeners. A Service of several pools needs the port.
func (s *Set) FindHost(host string, listeners ...int) exchange.Pool {
	a, t := ParseAuthority(host), s.current.Load().addresses
	if a.Service == "" {
		return s.missing
	}
	if a.Port != 0 {
		if p := t[a]; p != nil {
			return p
		}
	}
	if a.Port == 0 || slices.Contains(listeners, a.Port) {
		a.Port = 0
		if p := t[a]; p != nil {
			return p
		}
	}
	return s.missing
}

// MissingPool is the pool of streams for none of the pools. It refuses all requests.
type MissingPool struct {
	// Observe is called for each stream. It may be nil.
	Observe func()
}

var errMissing = errors.New("the picker serves no InferencePool at this address")

// OnStart counts the stream.
func (m MissingPool) OnStart() {
	if m.Observe != nil {
		m.Observe()
	}
}

// PreparePick refuses the request.
func (MissingPool) PreparePick(*exchange.RequestContext) (exchange.Pick, *exchange.Refusal) {
	return nil, exchange.Unavailable(errMissing)
}

// OnPick does nothing.
func (MissingPool) OnPick(*exchange.RequestContext, *exchange.Refusal) {}

// OnSend does nothing.
func (MissingPool) OnSend(*exchange.Record) {}

// OnEnd does nothing.
func (MissingPool) OnEnd(*exchange.RequestContext) {}
