package state

import (
	"fmt"
	"net/http"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// Change changes a clone of a load balancer within limits, or refuses to.
type Change func(lb *lbapi.LoadBalancer, limits lbapi.Limits) *lbapi.Error

// Mutation is a mutation of a load balancer.
type Mutation struct {
	Type     string // of the work request, such as UpdateBackendSet
	Resource string // what it changes: lbapi.Itself, or a sub-resource
	Body     []byte
	Apply    Change
	// Deletes is whether the mutation deletes the load balancer. Apply then only refuses.
	Deletes bool

	IfMatch, Token string // headers of the request, empty if absent
}

// Creation is a request to create a load balancer.
type Creation struct {
	Type  string // of the work request
	Body  []byte
	Token string
	// Build returns the load balancer as it is when it is active, or refuses the request.
	Build func(id, created string, limits lbapi.Limits) (*lbapi.LoadBalancer, *lbapi.Error)
}

// Create accepts the creation of a load balancer, or refuses it. It returns the id of the work request.
func (s *State) Create(c Creation) (string, *lbapi.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := Mutation{Type: c.Type, Resource: lbapi.Itself, Body: c.Body, Token: c.Token}
	w, err := s.repeated(&s.creations, &m)
	if w != nil || err != nil {
		return idOf(w), err
	}
	if existing := s.existing(); existing >= s.modes.Limits.LoadBalancers {
		return "", lbapi.Errorf(http.StatusBadRequest, lbapi.CodeLimitExceeded, "The following service limits were exceeded: lb-flexible-count (%d)", s.modes.Limits.LoadBalancers)
	}
	id := s.newID()
	lb, err := c.Build(id, now(), s.modes.Limits)
	if err != nil {
		return "", err
	}
	m.Apply = func(to *lbapi.LoadBalancer, _ lbapi.Limits) *lbapi.Error {
		*to = *lb
		return nil
	}
	b := s.add(id)
	b.versions = []version{{}} // reads may be older than the load balancer
	b.etag++
	s.publish(b, lb.Provisional())
	w = s.accept(b, m, &s.creations)
	s.advance(b)
	return w.ID, nil
}

func idOf(w *work) string {
	if w == nil {
		return ""
	}
	return w.ID
}

// existing returns the number of load balancers.
func (s *State) existing() int {
	n := 0
	for _, b := range s.balancers {
		if b.current() != nil {
			n++
		}
	}
	return n
}

// newID returns an OCID that no load balancer has.
func (s *State) newID() string {
	for {
		s.serial++
		if id := fmt.Sprintf("ocid1.loadbalancer.oc1..emulator%06d", s.serial); s.balancers[id] == nil {
			return id
		}
	}
}

// Submit accepts a mutation of a load balancer, or refuses it. It returns the id of the work request.
func (s *State) Submit(id string, m Mutation) (string, *lbapi.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(id)
	if err != nil {
		return "", err
	}
	if err := b.match(m.IfMatch); err != nil && !s.modes.TokenFirst {
		return "", err
	}
	w, err := s.repeated(&b.tokens, &m)
	if w != nil {
		return w.ID, nil
	}
	for _, check := range []func() *lbapi.Error{
		func() *lbapi.Error { return err },
		func() *lbapi.Error { return b.match(m.IfMatch) },
		func() *lbapi.Error { return m.checkState(b.current()) },
		func() *lbapi.Error { return s.checkBusy(b) },
		func() *lbapi.Error { return s.validate(b, &m) },
	} {
		if err := check(); err != nil {
			return "", err
		}
	}
	w = s.accept(b, m, &b.tokens)
	if m.Deletes {
		w.before = b.current().LifecycleState
		s.publish(b, b.current().InState(lbapi.Deleting))
	}
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

// checkState refuses a mutation of a load balancer that is not active. One whose creation has failed can be deleted.
func (m *Mutation) checkState(lb *lbapi.LoadBalancer) *lbapi.Error {
	if lb.LifecycleState == lbapi.Active || m.Deletes && lb.LifecycleState == lbapi.Failed {
		return nil
	}
	return lbapi.Errorf(http.StatusConflict, lbapi.CodeIncorrectState, "Load balancer %s is in state %s", lb.ID, lb.LifecycleState)
}

// checkBusy refuses a mutation while another one is in progress in the modes Busy and Conflict.
func (s *State) checkBusy(b *balancer) *lbapi.Error {
	if len(b.pending) == 0 {
		return nil
	}
	switch s.modes.Concurrency {
	case Busy:
		return lbapi.Errorf(http.StatusConflict, lbapi.CodeIncorrectState, "Load balancer %s has a work request in progress", b.id)
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

// accept creates a work request.
func (s *State) accept(b *balancer, m Mutation, t *tokens) *work {
	s.serial++
	w := &work{mutation: m, serial: s.serial, WorkRequest: lbapi.WorkRequest{
		ID: fmt.Sprintf("ocid1.loadbalancerworkrequest.oc1..%06d", s.serial), LoadBalancerID: b.id, CompartmentID: b.current().CompartmentID, Type: m.Type,
		LifecycleState: lbapi.Accepted, TimeAccepted: now(), ErrorDetails: []lbapi.WorkRequestError{},
	}}
	s.works[w.ID] = w
	b.works, b.pending = append(b.works, w), append(b.pending, w)
	if len(b.works) > maxWorks && b.works[0].TimeFinished != "" {
		delete(s.works, b.works[0].ID)
		b.works = b.works[1:]
	}
	if s.modes.EtagChange != AtCompletion {
		b.etag++
	}
	t.add(w, b)
	return w
}

// advance starts the pending work requests that need not wait for others.
func (s *State) advance(b *balancer) {
	running := map[string]bool{}
	for i, w := range b.pending {
		resource := w.mutation.Resource
		waits := running[resource] || i > 0 && (s.modes.Concurrency == Queue || w.mutation.Deletes)
		running[resource] = true
		if waits || w.LifecycleState != lbapi.Accepted {
			continue
		}
		w.LifecycleState = lbapi.InProgress
		time.AfterFunc(s.modes.latency(s.random), func() { s.finish(b, w) })
	}
}
