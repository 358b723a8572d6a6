package dataplane

import (
	"context"
	"hash/fnv"
	"net"
	"slices"
	"strconv"
	"sync"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// set is a backend set as it forwards requests.
type set struct {
	o *Options

	mu       sync.Mutex
	policy   string
	checker  lbapi.HealthChecker
	backends map[string]*backend
	order    []string // names, as the API has them
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

func newSet(o *Options) *set { return &set{o: o, backends: map[string]*backend{}} }

// update makes the set follow a version.
func (s *set) update(to *lbapi.BackendSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	flipped := s.policy != "" && s.policy != to.Policy
	recheck := s.checker != to.HealthChecker
	s.policy, s.checker, s.order = to.Policy, to.HealthChecker, nil
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

// cut ends the requests in flight of a backend.
func (b *backend) cut() {
	for f := range b.flights {
		f.cancel(errCut)
	}
}

// close ends the health checks and the requests of all backends.
func (s *set) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.backends {
		b.stop()
		b.cut()
	}
}

// flight is a request, or a connection, at a backend.
type flight struct {
	backend *backend
	cancel  context.CancelCauseFunc
}

// choose returns a flight to a backend for a client, or nil. cancel ends the request; done must be called after it.
func (s *set) choose(client string, cancel context.CancelCauseFunc) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	candidates := s.candidates()
	if len(candidates) == 0 {
		return nil
	}
	var b *backend
	switch s.policy {
	case lbapi.LeastConnections:
		b = slices.MinFunc(candidates, func(x, y *backend) int { return len(x.flights)*y.Weight - len(y.flights)*x.Weight })
	case lbapi.IPHash:
		h := fnv.New32a()
		_, _ = h.Write([]byte(client))
		b = candidates[int(h.Sum32())%len(candidates)]
	default:
		b = roundRobin(candidates)
	}
	f := &flight{backend: b, cancel: cancel}
	b.flights[f] = struct{}{}
	return f
}

// candidates returns the backends that take new requests; backups only if there is no other.
func (s *set) candidates() []*backend {
	var others, backups []*backend
	for _, name := range s.order {
		b := s.backends[name]
		full := b.MaxConnections != nil && *b.MaxConnections > 0 && len(b.flights) >= *b.MaxConnections
		switch {
		case b.Drain || b.Offline || full || !b.healthy(s.o.AdmitUnchecked):
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

func (s *set) done(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(f.backend.flights, f)
}

// health returns the last result of each node for a backend.
func (s *set) health(name string) []string {
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
