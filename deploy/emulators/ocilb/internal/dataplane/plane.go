// Package dataplane forwards the requests of load balancers, and checks the health of their backends.
//
//	listener   listens at its port; HTTP is forwarded request by request, TCP connection by connection
//	policy     the first rule whose condition matches chooses the backend set; otherwise the listener's default
//	set        chooses among healthy backends that neither drain nor are offline; backups only if there is no other
//	backend    gets requests over connections that are kept for Options.Reuse; a request is sent once, never again
//
// A backend that leaves its set, or whose set changes its policy, loses its requests in flight if Options.CutRemoved is set.
package dataplane

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
	"fairlead.dev/deploy/emulators/ocilb/internal/routing"
)

// Options configure a Plane.
type Options struct {
	// Listen opens the port of a listener.
	Listen func(port int) (net.Listener, error)
	// Dial connects to a backend, for requests and for health checks.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Reuse is the time for which idle connections to backends are kept. A server that closes them sooner makes requests fail.
	Reuse time.Duration
	// CutRemoved ends the requests in flight of a backend that leaves its set. Documents do not say what happens to them.
	CutRemoved bool
	// AdmitUnchecked lets a new backend take requests before its first health check.
	AdmitUnchecked bool
}

// DefaultOptions returns options that listen at any free port of the loopback interface, and the unpleasant behavior.
func DefaultOptions() Options {
	return Options{
		Listen:     func(int) (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
		Dial:       (&net.Dialer{}).DialContext,
		Reuse:      300 * time.Second,
		CutRemoved: true, AdmitUnchecked: true,
	}
}

// Plane is the data plane of all load balancers.
type Plane struct {
	o         Options
	transport *http.Transport

	mu        sync.Mutex
	balancers map[string]*balancer
	closed    bool
}

// balancer is a load balancer as it forwards requests.
type balancer struct {
	lb        *lbapi.LoadBalancer
	policies  map[string][]rule
	sets      map[string]*set
	listeners map[string]*listener
}

// rule is a rule of a routing policy.
type rule struct {
	condition *routing.Condition
	set       string
}

// New returns a Plane. Close stops it.
func New(o Options) *Plane {
	return &Plane{o: o, balancers: map[string]*balancer{}, transport: &http.Transport{
		DialContext: o.Dial, IdleConnTimeout: o.Reuse, MaxIdleConnsPerHost: 1024, DisableCompression: true,
	}}
}

// Update makes the plane follow a version of a load balancer.
func (p *Plane) Update(id string, lb *lbapi.LoadBalancer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	b := p.balancers[id]
	if b == nil {
		b = &balancer{sets: map[string]*set{}, listeners: map[string]*listener{}}
		p.balancers[id] = b
	}
	b.lb, b.policies = lb, map[string][]rule{}
	for name, policy := range lb.RoutingPolicies {
		for _, r := range policy.Rules {
			if c, err := routing.Parse(r.Condition); err == nil {
				b.policies[name] = append(b.policies[name], rule{condition: c, set: r.Actions[0].BackendSetName})
			}
		}
	}
	for name, s := range b.sets {
		if lb.BackendSets[name] == nil {
			s.close()
			delete(b.sets, name)
		}
	}
	for name, s := range lb.BackendSets {
		if b.sets[name] == nil {
			b.sets[name] = newSet(&p.o)
		}
		b.sets[name].update(s)
	}
	p.updateListeners(id, b)
}

// updateListeners opens and closes ports.
func (p *Plane) updateListeners(id string, b *balancer) {
	for name, l := range b.listeners {
		if now := b.lb.Listeners[name]; now == nil || now.Port != l.port || (now.Protocol == tcp) != l.tcp {
			l.close()
			delete(b.listeners, name)
		}
	}
	for name, want := range b.lb.Listeners {
		if b.listeners[name] == nil {
			b.listeners[name] = p.listen(id, want)
		}
	}
}

const tcp = "TCP"

// listener is an open port.
type listener struct {
	port   int
	tcp    bool
	net    net.Listener // nil if the port could not be opened
	err    error
	server *http.Server
	ended  chan struct{}
}

func (p *Plane) listen(id string, want *lbapi.Listener) *listener {
	l := &listener{port: want.Port, tcp: want.Protocol == tcp, ended: make(chan struct{})}
	if l.net, l.err = p.o.Listen(want.Port); l.err != nil {
		close(l.ended)
		return l
	}
	name := want.Name
	if l.tcp {
		go func() {
			defer close(l.ended)
			p.serveTCP(l.net, id, name)
		}()
		return l
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	l.server = &http.Server{Handler: p.handler(id, name), Protocols: protocols, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(l.ended)
		_ = l.server.Serve(l.net)
	}()
	return l
}

func (l *listener) close() {
	if l.server != nil {
		_ = l.server.Close()
	} else if l.net != nil {
		_ = l.net.Close()
	}
	<-l.ended
}

// Addr returns the address at which a listener listens.
func (p *Plane) Addr(id, name string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.balancers[id]
	if b == nil || b.listeners[name] == nil {
		return "", fmt.Errorf("load balancer %s has no listener %s", id, name)
	}
	l := b.listeners[name]
	if l.err != nil {
		return "", fmt.Errorf("open port %d of listener %s: %w", l.port, name, l.err)
	}
	return l.net.Addr().String(), nil
}

// Close closes all ports and ends all health checks.
func (p *Plane) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, b := range p.balancers {
		for _, s := range b.sets {
			s.close()
		}
		for _, l := range b.listeners {
			l.close()
		}
	}
	p.transport.CloseIdleConnections()
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

// route returns the backend set for a request to a listener, and the listener's idle timeout.
func (p *Plane) route(id, name string, r *http.Request) (*set, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.balancers[id]
	l := b.lb.Listeners[name]
	if l == nil {
		return nil, 0
	}
	target := l.DefaultBackendSetName
	if r != nil && l.RoutingPolicyName != nil {
		for _, rule := range b.policies[*l.RoutingPolicyName] {
			if rule.condition.Match(r) {
				target = rule.set
				break
			}
		}
	}
	return b.sets[target], time.Duration(l.ConnectionConfiguration.IdleTimeout) * time.Second
}

// handler forwards the requests of a listener.
func (p *Plane) handler(id, name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, idle := p.route(id, name, r)
		if s == nil {
			http.Error(w, "no backend set", http.StatusBadGateway)
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		f := s.choose(clientOf(r), cancel)
		if f == nil {
			http.Error(w, "no healthy backend", http.StatusBadGateway)
			return
		}
		defer s.done(f)
		watch := time.AfterFunc(idle, func() { cancel(errIdle) })
		defer watch.Stop()
		proxy := &httputil.ReverseProxy{
			Transport: p.transport, FlushInterval: -1, ErrorLog: zap.NewStdLog(zap.NewNop()),
			Rewrite: func(out *httputil.ProxyRequest) {
				out.Out.URL.Scheme, out.Out.URL.Host, out.Out.Host = "http", f.backend.address, r.Host
				out.SetXForwarded()
				out.Out.Body = &once{ReadCloser: out.Out.Body, left: out.Out.ContentLength}
				out.Out.GetBody = nil
			},
			ModifyResponse: func(response *http.Response) error {
				watch.Reset(idle)
				response.Body = &watched{ReadCloser: response.Body, timer: watch, idle: idle}
				return nil
			},
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				status := http.StatusBadGateway
				if context.Cause(ctx) == errIdle { //nolint:errorlint // it is not wrapped
					status = http.StatusGatewayTimeout
				}
				http.Error(w, err.Error(), status)
			},
		}
		proxy.ServeHTTP(w, r.WithContext(ctx))
	})
}

func clientOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
