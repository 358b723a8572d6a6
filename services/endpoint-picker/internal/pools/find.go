package pools

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/metadata"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

const headerAuthority = ":authority"

// A member is one pool.
type member struct {
	title   string  // no other member has it
	address address // no other member has it; zero for the pool of all streams
	pool    request.Pool
}

// finder finds pools. It is safe for concurrent use.
type finder struct {
	fallback  request.Pool // of streams and requests for none of the addresses
	listeners []int        // ports of the HTTP listeners, whichever pool a request is for
	current   atomic.Pointer[lookupTables]
}

// lookupTables find pools. They are never changed.
type lookupTables struct {
	addresses map[address]request.Pool // by all forms of their addresses; nil for a form that several pools have
	titles    map[string]request.Pool
}

// newFinder returns a finder without members.
func newFinder(fallback request.Pool, listeners ...int) *finder {
	f := &finder{fallback: fallback, listeners: listeners}
	f.current.Store(&lookupTables{})
	return f
}

// replaceMembers replaces the members.
func (f *finder) replaceMembers(members []member) {
	next := lookupTables{addresses: map[address]request.Pool{}, titles: map[string]request.Pool{}}
	for _, m := range members {
		next.titles[m.title] = m.pool
		if m.address == (address{}) {
			continue
		}
		for _, form := range m.address.matchingForms() {
			if _, ambiguous := next.addresses[form]; ambiguous {
				next.addresses[form] = nil
			} else {
				next.addresses[form] = m.pool
			}
		}
	}
	f.current.Store(&next)
}

// matchingForms returns the forms in which gateways may name an address. A form without the port does not find a pool at another
// port, and a form without the Service does not find a pool of another Service, because the pool of that address may be gone.
func (a address) matchingForms() []address {
	return []address{
		a,
		{namespace: a.namespace, service: a.service},
		{service: a.service, port: a.port},
		{service: a.service},
		{port: a.port},
	}
}

// FindPool returns the pool of a stream, by its context.
func (f *finder) FindPool(ctx context.Context) request.Pool {
	known := f.current.Load().addresses
	if len(known) == 0 {
		return f.fallback
	}
	if values := metadata.ValueFromIncomingContext(ctx, headerAuthority); len(values) == 1 {
		if p := known[parseAuthority(values[0])]; p != nil {
			return p
		}
	}
	return f.fallback
}

// FindTitle returns the pool with a title, or nil.
func (f *finder) FindTitle(title string) request.Pool { return f.current.Load().titles[title] }

// FindHost returns the pool of an HTTP request, by its host: the Service of an endpointPickerRef, without a port, with the port of the
// endpointPickerRef, or with that of one of our listeners. A Service of several pools needs the port.
func (f *finder) FindHost(host string) request.Pool {
	known := f.current.Load().addresses
	if len(known) == 0 {
		return f.fallback
	}
	a := parseAuthority(host)
	if a.service == "" {
		return f.fallback
	}
	if a.port != 0 {
		if p := known[a]; p != nil {
			return p
		}
	}
	if a.port == 0 || slices.Contains(f.listeners, a.port) {
		a.port = 0
		if p := known[a]; p != nil {
			return p
		}
	}
	return f.fallback
}

// missingPool is the pool of streams for none of the pools. It refuses all requests.
type missingPool struct {
	observe func() // called for each stream
}

var errMissing = errors.New("the picker serves no InferencePool at this address")

// OnRequestStart counts the stream.
func (m missingPool) OnRequestStart() { m.observe() }

// PlaceRequest refuses the request.
func (missingPool) PlaceRequest(context.Context, *request.PickInput) (request.PickResult, *request.Refusal) {
	return request.PickResult{}, request.Unavailable(errMissing)
}

// OnRequestEnd does nothing.
func (missingPool) OnRequestEnd(*request.Record) {}
