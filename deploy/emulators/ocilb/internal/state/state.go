// Package state holds load balancers and the work requests that change them.
//
// A mutation is accepted or refused at once, and takes effect when its work request succeeds:
//
//	retry token    the same mutation again: its work request, and no second effect
//	if-match       another ETag: 412 NoEtagMatch
//	concurrency    a work request is in progress: see Modes
//	validation     against what is visible now
//	work           ACCEPTED, IN_PROGRESS, then SUCCEEDED, or FAILED if the mutation is no longer valid
//
// Reads return a version that may be older than the last work request that succeeded: see Modes.Stale.
package state

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// tokenLife is the time for which the service remembers retry tokens.
const tokenLife = 24 * time.Hour

// Change changes a clone of a load balancer within limits, or refuses to.
type Change func(lb *lbapi.LoadBalancer, limits lbapi.Limits) *lbapi.Error

// Mutation is a mutation of a load balancer.
type Mutation struct {
	Type     string // of the work request, such as UpdateBackendSet
	Resource string // the sub-resource, such as backendSets/chat
	Body     []byte
	Apply    Change

	IfMatch, Token string // headers of the request, empty if absent
}

// State holds load balancers.
type State struct {
	changed func(id string, lb *lbapi.LoadBalancer)

	mu        sync.Mutex
	modes     Modes
	random    *rand.Rand
	balancers map[string]*balancer
	ids       []string // of balancers, in the order of their creation
	works     map[string]*work
	serial    int // of work requests
}

// balancer is a load balancer with its past and its work.
type balancer struct {
	versions []version // at least one; the last is in effect
	etag     int
	pending  []*work // in the order of their acceptance
	works    []*work // all
	tokens   map[string]*use
	changes  map[string]int // number of mutations of each sub-resource that have taken effect
}

// version is a state of a load balancer since a time.
type version struct {
	lb    *lbapi.LoadBalancer
	etag  int
	since time.Time
}

// use is the first use of a retry token.
type use struct {
	work     *work
	body     [sha256.Size]byte
	resource string
	changes  int // of the resource, after the work request itself
	until    time.Time
}

// work is a work request.
type work struct {
	lbapi.WorkRequest

	mutation Mutation
}

// New returns a State. changed is called with each version of a load balancer that takes effect; it must not call the State.
func New(modes Modes, seed uint64, changed func(id string, lb *lbapi.LoadBalancer)) *State {
	return &State{
		changed: changed, modes: modes, random: rand.New(rand.NewPCG(seed, 1)),
		balancers: map[string]*balancer{}, works: map[string]*work{},
	}
}

// Modes returns the modes.
func (s *State) Modes() Modes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.modes
}

// SetModes replaces the modes. Work requests in progress keep their latency.
func (s *State) SetModes(m Modes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.modes = m
}

// Put adds a load balancer, or replaces it at once, as another client would.
func (s *State) Put(lb *lbapi.LoadBalancer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.balancers[lb.ID]
	if b == nil {
		b = &balancer{tokens: map[string]*use{}, changes: map[string]int{}}
		s.balancers[lb.ID] = b
		s.ids = append(s.ids, lb.ID)
	}
	b.etag++
	s.publish(b, lb)
}

// Edit changes a load balancer at once, as another client would.
func (s *State) Edit(id, resource string, apply Change) *lbapi.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.balancers[id]
	if b == nil {
		return lbapi.NotFound("load balancer", id)
	}
	next := b.current().Clone()
	if err := apply(next, s.modes.Limits); err != nil {
		return err
	}
	b.etag++
	b.changes[resource]++
	s.publish(b, next)
	return nil
}

// publish makes a version of a load balancer the current one.
func (s *State) publish(b *balancer, lb *lbapi.LoadBalancer) {
	now := time.Now()
	b.versions = append(b.versions, version{lb: lb, etag: b.etag, since: now})
	oldest := now.Add(-time.Duration(s.modes.Stale))
	for len(b.versions) > 1 && !b.versions[1].since.After(oldest) {
		b.versions = b.versions[1:]
	}
	s.changed(lb.ID, lb)
}

func (b *balancer) current() *lbapi.LoadBalancer { return b.versions[len(b.versions)-1].lb }

// Current returns the version of a load balancer that is in effect, or nil.
func (s *State) Current(id string) *lbapi.LoadBalancer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.balancers[id]; b != nil {
		return b.current()
	}
	return nil
}

// Read returns a load balancer as a client sees it, and its ETag.
func (s *State) Read(id string) (lb *lbapi.LoadBalancer, etag string, err *lbapi.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.balancers[id]
	if b == nil {
		return nil, "", lbapi.NotFound("load balancer", id)
	}
	i, oldest := len(b.versions)-1, time.Now().Add(-time.Duration(s.modes.Stale))
	for i > 0 && b.versions[i].since.After(oldest) {
		i--
	}
	seen := b.versions[i]
	if i == len(b.versions)-1 {
		seen.etag = b.etag // acceptance may have changed it since
	}
	lb = seen.lb
	if s.modes.Concurrency == Conflict && len(b.pending) > 0 {
		updating := *lb
		updating.LifecycleState = lbapi.Updating
		lb = &updating
	}
	return lb, formatEtag(seen.etag), nil
}

// List returns the load balancers of a compartment as a client sees them.
func (s *State) List(compartment string) []*lbapi.LoadBalancer {
	s.mu.Lock()
	ids := append([]string(nil), s.ids...)
	s.mu.Unlock()
	var all []*lbapi.LoadBalancer
	for _, id := range ids {
		if lb, _, err := s.Read(id); err == nil && lb.CompartmentID == compartment {
			all = append(all, lb)
		}
	}
	return all
}

func formatEtag(n int) string { return fmt.Sprintf("%08x", n) }

// Submit accepts a mutation of a load balancer, or refuses it. It returns the id of the work request.
func (s *State) Submit(id string, m Mutation) (string, *lbapi.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.balancers[id]
	if b == nil {
		return "", lbapi.NotFound("load balancer", id)
	}
	if err := b.match(m.IfMatch); err != nil && !s.modes.TokenFirst {
		return "", err
	}
	w, err := s.repeated(b, &m)
	if w != nil {
		return w.ID, nil
	}
	for _, check := range []func() *lbapi.Error{
		func() *lbapi.Error { return err },
		func() *lbapi.Error { return b.match(m.IfMatch) },
		func() *lbapi.Error { return s.checkBusy(b) },
		func() *lbapi.Error { return s.validate(b, &m) },
	} {
		if err := check(); err != nil {
			return "", err
		}
	}
	w = s.accept(b, m)
	s.advance(b)
	return w.ID, nil
}

// match compares the ETag of a request, which may be empty, with the load balancer's.
func (b *balancer) match(etag string) *lbapi.Error {
	if etag == "" || etag == formatEtag(b.etag) {
		return nil
	}
	return lbapi.Errorf(http.StatusPreconditionFailed, lbapi.CodeNoEtagMatch, "The provided if-match does not match the current ETag of the load balancer")
}

// checkBusy refuses a mutation while another one is in progress in the modes Busy and Conflict.
func (s *State) checkBusy(b *balancer) *lbapi.Error {
	if len(b.pending) == 0 {
		return nil
	}
	switch s.modes.Concurrency {
	case Busy:
		return lbapi.Errorf(http.StatusConflict, lbapi.CodeIncorrectState, "Load balancer %s has a work request in progress", b.current().ID)
	case Conflict:
		return lbapi.Errorf(http.StatusConflict, lbapi.CodeConflict, "Invalid State Transition of LB lifeCycle state from Updating to Updating")
	}
	return nil
}

// validate refuses a mutation that is not valid now.
func (s *State) validate(b *balancer, m *Mutation) *lbapi.Error {
	err := m.Apply(b.current().Clone(), s.modes.Limits)
	if err != nil && s.modes.RefuseLate && (err.Code == lbapi.CodeNotFound || err.Code == lbapi.CodeExists) {
		return nil
	}
	return err
}

// repeated returns the work request of a mutation whose retry token was used before.
func (s *State) repeated(b *balancer, m *Mutation) (*work, *lbapi.Error) {
	u := b.tokens[m.Token]
	if m.Token == "" || u == nil || time.Now().After(u.until) {
		return nil, nil
	}
	conflict := lbapi.Errorf(http.StatusConflict, lbapi.CodeInvalidatedToken, "The retry token was used before, and the resource was changed since, or the request differs")
	switch {
	case u.resource == m.Resource && u.changes < b.changes[m.Resource]:
		return nil, conflict
	case u.resource != m.Resource || !bytes.Equal(u.body[:], sum(m.Body)):
		if s.modes.TokenConflict {
			return nil, conflict
		}
	}
	return u.work, nil
}

func sum(body []byte) []byte {
	digest := sha256.Sum256(body)
	return digest[:]
}

// accept creates a work request.
func (s *State) accept(b *balancer, m Mutation) *work {
	s.serial++
	w := &work{mutation: m, WorkRequest: lbapi.WorkRequest{
		ID: fmt.Sprintf("ocid1.loadbalancerworkrequest.oc1..%06d", s.serial), LoadBalancerID: b.current().ID, CompartmentID: b.current().CompartmentID, Type: m.Type,
		LifecycleState: lbapi.Accepted, TimeAccepted: now(), ErrorDetails: []lbapi.WorkRequestError{},
	}}
	s.works[w.ID] = w
	b.works, b.pending = append(b.works, w), append(b.pending, w)
	if s.modes.EtagChange != AtCompletion {
		b.etag++
	}
	if m.Token != "" {
		b.tokens[m.Token] = &use{
			work: w, body: sha256.Sum256(m.Body), resource: m.Resource, changes: b.changes[m.Resource] + s.ahead(b, m.Resource), until: time.Now().Add(tokenLife),
		}
	}
	return w
}

// ahead returns the number of pending work requests of a sub-resource.
func (s *State) ahead(b *balancer, resource string) int {
	n := 0
	for _, w := range b.pending {
		if w.mutation.Resource == resource {
			n++
		}
	}
	return n
}

func now() string { return time.Now().UTC().Format(time.RFC3339Nano) }

// advance starts the pending work requests that need not wait for others.
func (s *State) advance(b *balancer) {
	running := map[string]bool{}
	for i, w := range b.pending {
		resource := w.mutation.Resource
		waits := running[resource] || i > 0 && s.modes.Concurrency == Queue
		running[resource] = true
		if waits || w.LifecycleState != lbapi.Accepted {
			continue
		}
		w.LifecycleState = lbapi.InProgress
		time.AfterFunc(s.modes.latency(s.random), func() { s.finish(b, w) })
	}
}
