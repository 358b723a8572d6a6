// Package state holds load balancers and the work requests that create, change and delete them.
//
// A mutation is accepted or refused at once, and takes effect when its work request succeeds:
//
//	retry token    the same mutation again: its work request, and no second effect
//	if-match       another ETag: 412 NoEtagMatch
//	state          a load balancer that is not active: 409 IncorrectState
//	concurrency    a work request is in progress: see Modes
//	validation     against what is visible now
//	work           ACCEPTED, IN_PROGRESS, then SUCCEEDED, or FAILED if the mutation is no longer valid
//
// A load balancer that is created is CREATING without sub-resources, and then ACTIVE, or FAILED. One that is deleted is DELETING
// and keeps its traffic until it is gone.
//
// Reads return a version that may be older than the last work request that succeeded: see Modes.Stale.
package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// State holds load balancers.
type State struct {
	changed func(id string, lb *lbapi.LoadBalancer)

	mu        sync.Mutex
	modes     Modes
	random    *rand.Rand
	balancers map[string]*balancer
	ids       []string // of balancers, in the order of their creation
	works     map[string]*work
	serial    int    // of work requests, new load balancers and changes by other clients
	creations tokens // of requests that create load balancers
}

// balancer is a load balancer with its past and its work.
type balancer struct {
	id       string
	versions []version // at least one; the last is in effect
	etag     int
	pending  []*work // in the order of their acceptance
	works    []*work // all
	tokens   tokens
	changes  map[string]int // serial of the last change of each resource that has taken effect
}

// version is a state of a load balancer since a time. Its load balancer is nil before the creation and after the deletion.
type version struct {
	lb    *lbapi.LoadBalancer
	etag  int
	since time.Time
}

// New returns a State. changed is called with each version of a load balancer that takes effect, nil after its deletion; it must not
// call the State.
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
		b = s.add(lb.ID)
	}
	s.replace(b, lb)
}

// add adds a load balancer without a version.
func (s *State) add(id string) *balancer {
	b := &balancer{id: id, changes: map[string]int{}}
	s.balancers[id] = b
	s.ids = append(s.ids, id)
	return b
}

// Edit changes a load balancer at once, as another client would.
func (s *State) Edit(id string, apply Change) *lbapi.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(id)
	if err != nil {
		return err
	}
	next := b.current().Clone()
	if err := apply(next, s.modes.Limits); err != nil {
		return err
	}
	s.replace(b, next)
	return nil
}

// replace makes a version of another client the current one. It invalidates the retry tokens of what it changes.
func (s *State) replace(b *balancer, next *lbapi.LoadBalancer) {
	s.serial++
	if before := b.current(); before != nil {
		for _, resource := range lbapi.Changed(before, next) {
			b.changes[resource] = s.serial
		}
	}
	b.etag++
	s.publish(b, next)
}

// publish makes a version of a load balancer the current one.
func (s *State) publish(b *balancer, lb *lbapi.LoadBalancer) {
	now := time.Now()
	b.versions = append(b.versions, version{lb: lb, etag: b.etag, since: now})
	oldest := now.Add(-time.Duration(s.modes.Stale))
	for len(b.versions) > 1 && !b.versions[1].since.After(oldest) {
		b.versions = b.versions[1:]
	}
	s.changed(b.id, lb)
}

// current returns the version in effect, or nil if the load balancer does not exist.
func (b *balancer) current() *lbapi.LoadBalancer {
	if len(b.versions) == 0 {
		return nil
	}
	return b.versions[len(b.versions)-1].lb
}

// find returns a load balancer that exists.
func (s *State) find(id string) (*balancer, *lbapi.Error) {
	if b := s.balancers[id]; b != nil && b.current() != nil {
		return b, nil
	}
	return nil, lbapi.NotFound("load balancer", id)
}

// forget removes a load balancer that was deleted and that no read returns anymore.
func (s *State) forget(b *balancer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.balancers[b.id] == b && b.current() == nil {
		delete(s.balancers, b.id)
		s.ids = slices.DeleteFunc(s.ids, func(id string) bool { return id == b.id })
	}
}

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
	if seen.lb == nil {
		return nil, "", lbapi.NotFound("load balancer", id)
	}
	if i == len(b.versions)-1 {
		seen.etag = b.etag // acceptance may have changed it since
	}
	lb = seen.lb
	if s.modes.Concurrency == Conflict && len(b.pending) > 0 && lb.LifecycleState == lbapi.Active {
		lb = lb.InState(lbapi.Updating)
	}
	return lb, formatEtag(seen.etag), nil
}

// List returns the load balancers of a compartment as a client sees them.
func (s *State) List(compartment string) []*lbapi.LoadBalancer {
	s.mu.Lock()
	ids := slices.Clone(s.ids)
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

func now() string { return time.Now().UTC().Format(time.RFC3339Nano) }
