// Package dataplane forwards the requests of load balancers, and checks the health of their backends.
//
//	port       listens for the listeners that share it; HTTP is forwarded request by request, TCP connection by connection
//	listener   terminates TLS, answers what its rule sets forbid or redirect, and changes headers
//	policy     the first rule whose condition matches chooses the backend set; without a policy, the best path route; otherwise
//	           the listener's default
//	set        sends the requests of a session to its backend; others to healthy backends that neither drain nor are offline,
//	           backups only if there is no other
//	backend    gets requests over connections that are kept for Options.Reuse; a request is sent once, never again
//
// A backend that leaves its set, or whose set changes its policy, loses its requests in flight if Options.CutRemoved is set.
//
// Backends get HTTP/1.1, also from listeners with HTTP/2. Cipher suites, proxy protocols, and the limits of rule sets for the size of
// headers and for connections have no effect.
package dataplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// Options configure a Plane.
type Options struct {
	// Listen opens the port of listeners at the address of their load balancer.
	Listen func(address string, port int) (net.Listener, error)
	// Dial connects to a backend, for requests and for health checks.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Reuse is the time for which idle connections to backends are kept. A server that closes them sooner makes requests fail.
	Reuse time.Duration
	// CutRemoved ends the requests in flight of a backend that leaves its set. Documents do not say what happens to them.
	CutRemoved bool
	// AdmitUnchecked lets a new backend take requests before its first health check.
	AdmitUnchecked bool
	// VerifyName refuses certificates of backends that are not for their IP addresses, if a backend set verifies certificates at all.
	// Documents do not say what else than the chain is verified.
	VerifyName bool
}

// DefaultOptions returns options that listen at any free port of the loopback interface, and the unpleasant behavior.
func DefaultOptions() Options {
	return Options{
		Listen:     func(string, int) (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
		Dial:       (&net.Dialer{}).DialContext,
		Reuse:      300 * time.Second,
		CutRemoved: true, AdmitUnchecked: true, VerifyName: true,
	}
}

// Plane is the data plane of all load balancers.
type Plane struct {
	o         Options
	throwaway func() *tls.Certificate

	mu        sync.Mutex
	balancers map[string]*balancer
	closed    bool
}

// balancer is a load balancer as it forwards requests.
type balancer struct {
	address   string
	sets      map[string]*backendSet
	listeners map[string]*listener // those of the version
	ports     map[int]*port
}

// New returns a Plane. Close stops it.
func New(o Options) *Plane {
	return &Plane{o: o, balancers: map[string]*balancer{}, throwaway: sync.OnceValue(newThrowaway)}
}

// Update makes the plane follow a version of a load balancer, nil after its deletion.
func (p *Plane) Update(id string, lb *lbapi.LoadBalancer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	b := p.balancers[id]
	if b == nil {
		b = &balancer{sets: map[string]*backendSet{}, ports: map[int]*port{}}
		p.balancers[id] = b
	}
	if lb == nil {
		b.close()
		delete(p.balancers, id)
		return
	}
	if len(lb.IPAddresses) > 0 {
		b.address = lb.IPAddresses[0].IPAddress
	}
	for name, s := range b.sets {
		if lb.BackendSets[name] == nil {
			s.close()
			delete(b.sets, name)
		}
	}
	for name, s := range lb.BackendSets {
		if b.sets[name] == nil {
			b.sets[name] = newSet(&p.o, id)
		}
		b.sets[name].update(lb, s)
	}
	b.listeners = map[string]*listener{}
	for name, l := range lb.Listeners {
		b.listeners[name] = p.newListener(lb, l)
	}
	p.updatePorts(id, b)
}

// Addr returns the address at which a listener listens.
func (p *Plane) Addr(id, name string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.balancers[id]
	if b == nil || b.listeners[name] == nil {
		return "", fmt.Errorf("load balancer %s has no listener %s", id, name)
	}
	open := b.ports[b.listeners[name].port]
	if open.err != nil {
		return "", fmt.Errorf("open port %d of listener %s: %w", open.number, name, open.err)
	}
	return open.net.Addr().String(), nil
}

// Close closes all ports and ends all health checks.
func (p *Plane) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, b := range p.balancers {
		b.close()
	}
}

func (b *balancer) close() {
	for _, s := range b.sets {
		s.close()
	}
	for _, open := range b.ports {
		open.close()
	}
}

// Health returns the last results of the health checks of a backend, one for each node; empty before the first check.
func (p *Plane) Health(id, set, backend string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.balancers[id]
	if b == nil || b.sets[set] == nil {
		return nil
	}
	return b.sets[set].health(backend)
}
