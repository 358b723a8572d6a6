package dataplane

import (
	"context"
	"hash/fnv"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// backendSet is a backend set as it forwards requests.
type backendSet struct {
	o  *Options
	id string // of the load balancer

	mu          sync.Mutex
	policy      string
	checker     lbapi.HealthChecker
	backends    map[string]*backend
	order       []string // names, as the API has them
	connections int      // limit for each backend without a limit of its own; 0: none
	affinity    *affinity
	ssl         security
	tls         *clientTLS // nil without TLS
	transport   *http.Transport
}

// security is what the TLS of a set is made from.
type security struct {
	configuration *lbapi.SSLConfiguration
	certificate   *lbapi.Certificate
}

// backend is a backend with its requests in flight and its health.
type backend struct {
	lbapi.Backend

	address string
	flights map[*flight]struct{}
	credit  int // of smooth weighted round robin
	checks  []*check
	stop    context.CancelFunc
}

func newSet(o *Options, id string) *backendSet {
	s := &backendSet{o: o, id: id, backends: map[string]*backend{}}
	s.transport = s.newTransport()
	return s
}

// newTransport returns a transport with the TLS of the set.
func (s *backendSet) newTransport() *http.Transport {
	secure := s.tls
	return &http.Transport{
		DialContext:     func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, s.o, secure, address) },
		IdleConnTimeout: s.o.Reuse, MaxIdleConnsPerHost: 1024, DisableCompression: true,
	}
}

// dial connects to a backend, by TLS if it is not nil.
func dial(ctx context.Context, o *Options, secure *clientTLS, address string) (net.Conn, error) {
	conn, err := o.Dial(ctx, "tcp", address)
	if err != nil || secure == nil {
		return conn, err
	}
	return secure.connect(ctx, conn, address)
}

// update makes the set follow a version.
func (s *backendSet) update(lb *lbapi.LoadBalancer, to *lbapi.BackendSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	flipped := s.policy != "" && s.policy != to.Policy
	recheck := s.secure(lb, to) || s.checker != to.HealthChecker
	s.policy, s.checker, s.order, s.affinity, s.connections = to.Policy, to.HealthChecker, nil, newAffinity(s.id, to), 0
	override(&s.connections, to.BackendMaxConnections)
	keep := map[string]bool{}
	for i := range to.Backends {
		want := to.Backends[i]
		keep[want.Name], s.order = true, append(s.order, want.Name)
		b := s.backends[want.Name]
		if b == nil {
			b = &backend{address: net.JoinHostPort(want.IPAddress, strconv.Itoa(want.Port)), flights: map[*flight]struct{}{}}
			s.backends[want.Name] = b
		}
		b.Backend = want
		if b.stop == nil || recheck {
			s.startChecks(b)
		}
		if flipped {
			b.cut()
		}
	}
	for name, b := range s.backends {
		if !keep[name] {
			b.stop()
			if s.o.CutRemoved {
				b.cut()
			}
			delete(s.backends, name)
		}
	}
}

// secure makes the set follow the TLS of a version, and reports whether it has changed. Requests in flight keep their connections.
func (s *backendSet) secure(lb *lbapi.LoadBalancer, to *lbapi.BackendSet) bool {
	now := security{configuration: to.SSLConfiguration}
	if now.configuration != nil && now.configuration.CertificateName != nil {
		now.certificate = lb.Certificates[*now.configuration.CertificateName]
	}
	if now.certificate == s.ssl.certificate && reflect.DeepEqual(now.configuration, s.ssl.configuration) {
		return false
	}
	s.ssl, s.tls = now, s.o.newClientTLS(lb, to.SSLConfiguration)
	s.transport.CloseIdleConnections()
	s.transport = s.newTransport()
	return true
}

// cut ends the requests in flight of a backend.
func (b *backend) cut() {
	for f := range b.flights {
		f.cancel(errCut)
	}
}

// close ends the health checks and the requests of all backends.
func (s *backendSet) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.backends {
		b.stop()
		b.cut()
	}
	s.transport.CloseIdleConnections()
}

// flight is a request, or a connection, at a backend.
type flight struct {
	backend  *backend
	name     string // of the backend
	cancel   context.CancelCauseFunc
	affinity *affinity // nil without session persistence
	session  session
	// How the set connects.
	transport *http.Transport
	tls       *clientTLS
}

// choose returns a flight to a backend for a client, or nil. r is nil for a connection. cancel ends the flight; done must be called
// after it.
func (s *backendSet) choose(client string, r *http.Request, cancel context.CancelCauseFunc) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &flight{cancel: cancel, transport: s.transport, tls: s.tls}
	if s.affinity != nil && r != nil {
		f.affinity, f.session = s.affinity, s.affinity.find(r, s.order)
		if b := s.backends[f.session.backend]; b != nil && s.available(b) {
			f.backend = b // even if it drains
		} else if f.session.bound && !s.affinity.fallback {
			return nil
		}
	}
	if f.backend == nil {
		f.backend = s.pick(client)
	}
	if f.backend == nil {
		return nil
	}
	f.name = f.backend.Name
	f.backend.flights[f] = struct{}{}
	return f
}

// pick returns a backend by the policy of the set, or nil.
func (s *backendSet) pick(client string) *backend {
	candidates := s.candidates()
	if len(candidates) == 0 {
		return nil
	}
	switch s.policy {
	case lbapi.LeastConnections:
		return slices.MinFunc(candidates, func(x, y *backend) int { return len(x.flights)*y.Weight - len(y.flights)*x.Weight })
	case lbapi.IPHash:
		h := fnv.New32a()
		_, _ = h.Write([]byte(client))
		return candidates[int(h.Sum32())%len(candidates)]
	default:
		return roundRobin(candidates)
	}
}

// available reports whether a backend can take the requests of its sessions.
func (s *backendSet) available(b *backend) bool {
	limit := s.connections
	if b.MaxConnections != nil {
		limit = *b.MaxConnections
	}
	return !b.Offline && (limit == 0 || len(b.flights) < limit) && b.healthy(s.o.AdmitUnchecked)
}

// candidates returns the backends that take new requests; backups only if there is no other.
func (s *backendSet) candidates() []*backend {
	var others, backups []*backend
	for _, name := range s.order {
		b := s.backends[name]
		switch {
		case b.Drain || !s.available(b):
		case b.Backup:
			backups = append(backups, b)
		default:
			others = append(others, b)
		}
	}
	if len(others) == 0 {
		return backups
	}
	return others
}

// roundRobin is nginx's smooth weighted round robin.
func roundRobin(candidates []*backend) *backend {
	total := 0
	best := candidates[0]
	for _, b := range candidates {
		total += b.Weight
		if b.credit += b.Weight; b.credit > best.credit {
			best = b
		}
	}
	best.credit -= total
	return best
}

func (s *backendSet) done(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(f.backend.flights, f)
}

// health returns the last result of each node for a backend.
func (s *backendSet) health(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.backends[name]
	if b == nil {
		return nil
	}
	results := make([]string, 0, len(b.checks))
	for _, c := range b.checks {
		results = append(results, c.last())
	}
	return results
}
