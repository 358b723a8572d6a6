// Package plan decides which backends a backend set has.
//
// Build compares the endpoints of a Service with the current backends of its set. FitLimits shortens the result of several sets to the
// limits of their load balancer. WantedBackends and Diff turn it into changes. All of them are pure: the same input gives the same
// result.
//
//	endpoint                           current backend    wanted backend
//	ready                              any                active
//	serving, terminating               any                active if no endpoint is ready (the rule of kube-proxy), else as below
//	terminating, or not ready          yes                draining, until Drain.Maximum has passed
//	terminating, or not ready          no                 none
//	gone after it was terminating      yes                draining, until Drain.Minimum has passed
//	gone, and never seen terminating   yes                draining for VanishGracePeriod; unchanged if the set has no active backend
//	not ready or gone, and taken       any                none
//
// An endpoint that is gone without having been terminating can be a pod that was deleted by force, but also a mistake: a selector
// that matches nothing, or slices that were deleted. Its streams may still run.
//
// A backend is taken if another Service has its address as a ready endpoint: the address now belongs to another pod, perhaps of another
// tenant. Two Services can share a pod: a Service that had the same pod while the set had it does not take the backend. Nor does a
// Service whose pods the set had when its owner took it over, or before the set got another Service.
package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// VanishGracePeriod is the time for which an endpoint that was never seen terminating stays in the set after it is gone. A new
// EndpointSlice replaces a deleted one within seconds, or after a restart of the kube-controller-manager. Meanwhile, requests reach a
// failed node if its backends still look healthy.
const VanishGracePeriod = 30 * time.Second

// markRetention is how long a set remembers an endpoint that is gone and is not a backend: a write in progress may still add it. It is
// the longest time of a work request.
const markRetention = 10 * time.Minute

// State is the state of an endpoint. A higher state wins if several slices have the same address.
type State int

// States of an endpoint.
const (
	NotReady    State = iota
	Terminating       // and not serving
	Finishing         // terminating, but serving
	Ready
)

// Endpoint is an address of a Service.
type Endpoint struct {
	Address netip.AddrPort
	State   State
	Pod     string // UID; empty: not known
}

// Occupant is a ready endpoint of another Service at the IP address of a backend.
type Occupant struct {
	Service string // with its namespace
	Pod     string // UID; empty: not known
	// SamePort means that it has the port of the backend, too.
	SamePort bool
}

// Backend is a backend of a set.
type Backend struct {
	Address        netip.AddrPort
	Weight         int
	MaxConnections int // 0: unlimited
	Drain, Backup  bool
	Offline        bool
}

// Drain limits the time for which a backend drains.
type Drain struct {
	Minimum, Maximum time.Duration
}

// DefaultDrain is the maximum without another one: longer than any stream that a gateway permits.
const DefaultDrain = time.Hour

// Input is everything that the backends of a set depend on.
type Input struct {
	Endpoints []Endpoint // each address once
	Current   []Backend
	Drain     Drain
	// Emptying means that the set loses all backends, whatever Endpoints has.
	Emptying bool
	// Occupants of the addresses of current backends.
	Occupants map[netip.AddrPort][]Occupant
	// Former are other Services whose endpoints the set had until now.
	Former []string
	// Claimed is when the owner of the set took it: what the set had then is left over, and not taken. Zero: it was always its own.
	Claimed time.Time
	// Marks are the marks of the previous Build, nil before the first one.
	Marks Marks
	Now   time.Time
}

// Marks has the backends that are leaving their set, and those that share their pods with other Services.
type Marks map[netip.AddrPort]Mark

// Mark is what a set remembers about a backend.
type Mark struct {
	Since       time.Time // when it began to leave; zero: it does not
	Terminating bool      // it was seen terminating
	Gone        time.Time // when no slice had it any longer; zero: a slice has it
	Sharing     []Occupant
}

// Target is the wanted state of a set.
type Target struct {
	Active   []netip.AddrPort // sorted
	Draining []Leaving        // the newest first
	Marks    Marks
	// Next is when the target changes without an event. Zero: never.
	Next time.Time

	// Excess are ready endpoints without room, and Early draining backends that FitLimits removes before their time.
	Excess, Early []netip.AddrPort

	current map[netip.AddrPort]bool // addresses of the current backends
}

// Leaving is a backend that drains.
type Leaving struct {
	Address netip.AddrPort
	Since   time.Time
	// Vanished means that its endpoint is gone without having been terminating.
	Vanished bool
	// Unchanged leaves the drain flag as it is: nothing else serves.
	Unchanged bool
}

// Build returns the target of a set, without regard to limits.
func Build(in Input) *Target {
	t := &Target{Marks: Marks{}, current: make(map[netip.AddrPort]bool, len(in.Current))}
	for _, b := range in.Current {
		t.current[b.Address] = true
	}
	sharing := in.sharingOccupants()
	taken := in.takenAddresses(sharing)
	states := t.chooseActive(&in, taken)
	t.markLeaving(states, &in)
	for address := range t.current {
		if t.isActive(address) {
			continue
		}
		if _, known := states[address]; !known {
			t.Marks[address] = in.Marks[address].markGone(in.Emptying, in.Now)
		}
		if !taken[address] {
			t.retainDraining(address, t.Marks[address], &in)
		}
	}
	for address := range t.current {
		if m, marked := t.Marks[address]; marked || sharing[address] != nil {
			m.Sharing = sharing[address]
			t.Marks[address] = m
		}
	}
	slices.SortFunc(t.Draining, func(a, b Leaving) int {
		return cmp.Or(b.Since.Compare(a.Since), a.Address.Compare(b.Address))
	})
	return t
}

// sharingOccupants returns the occupants that do not take the addresses of backends: they share the pod of the set's endpoint or, if the
// set no longer has the endpoint, shared it.
func (in *Input) sharingOccupants() map[netip.AddrPort][]Occupant {
	sharing := map[netip.AddrPort][]Occupant{}
	for address, m := range in.Marks {
		sharing[address] = m.Sharing
	}
	inherits := in.Marks == nil && in.Now.Sub(in.Claimed) < VanishGracePeriod
	for address, occupants := range in.Occupants {
		for _, o := range occupants {
			if inherits || slices.Contains(in.Former, o.Service) {
				sharing[address] = append(slices.Clip(sharing[address]), o)
			}
		}
	}
	for _, e := range in.Endpoints {
		delete(sharing, e.Address)
		for _, o := range in.Occupants[e.Address] {
			if !o.SamePort || o.Pod != "" && o.Pod == e.Pod {
				sharing[e.Address] = append(sharing[e.Address], o)
			}
		}
	}
	return sharing
}

// takenAddresses returns the current backends whose address another pod has.
func (in *Input) takenAddresses(sharing map[netip.AddrPort][]Occupant) map[netip.AddrPort]bool {
	taken := map[netip.AddrPort]bool{}
	for address, occupants := range in.Occupants {
		known := map[Occupant]bool{} // there may be thousands
		for _, o := range sharing[address] {
			known[o] = true
		}
		taken[address] = slices.ContainsFunc(occupants, func(o Occupant) bool { return !known[o] })
	}
	return taken
}

// chooseActive chooses the endpoints that get new requests: the ready ones or, if there are none, those that still serve. It returns the
// states of all endpoints that are not taken. A ready endpoint belongs to the set even if other Services have it, too.
func (t *Target) chooseActive(in *Input, taken map[netip.AddrPort]bool) map[netip.AddrPort]State {
	states := make(map[netip.AddrPort]State, len(in.Endpoints))
	if in.Emptying {
		return states
	}
	least := Ready
	if !slices.ContainsFunc(in.Endpoints, func(e Endpoint) bool { return e.State == Ready }) {
		least = Finishing
	}
	for _, e := range in.Endpoints {
		if e.State != Ready && taken[e.Address] {
			continue
		}
		states[e.Address] = e.State
		if e.State >= least {
			t.Active = append(t.Active, e.Address)
		}
	}
	slices.SortFunc(t.Active, netip.AddrPort.Compare)
	return states
}

func (t *Target) isActive(address netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(t.Active, address, netip.AddrPort.Compare)
	return found
}

// markLeaving marks the endpoints that terminate, and the backends whose endpoints are not ready. It keeps the marks of endpoints that are
// gone for markRetention: a write in progress may still add them.
func (t *Target) markLeaving(states map[netip.AddrPort]State, in *Input) {
	for address, state := range states {
		if state == Terminating || state == Finishing || state == NotReady && t.current[address] {
			t.Marks[address] = in.Marks[address].startLeaving(state, in.Now)
		}
	}
	for address, m := range in.Marks {
		if _, known := states[address]; known || t.current[address] {
			continue
		}
		if m = m.markGone(in.Emptying, in.Now); in.Now.Sub(m.Gone) < markRetention {
			t.Marks[address] = m
		}
	}
}

// retainDraining keeps a current backend that is leaving, unless its time is over.
func (t *Target) retainDraining(address netip.AddrPort, m Mark, in *Input) {
	end := m.removalTime(in.Drain)
	if !in.Now.Before(end) {
		return
	}
	if t.Next.IsZero() || end.Before(t.Next) {
		t.Next = end
	}
	t.Draining = append(t.Draining,
		Leaving{Address: address, Since: m.Since, Vanished: m.hasVanished(), Unchanged: m.hasVanished() && len(t.Active) == 0})
}

// startLeaving returns the mark of a backend whose endpoint is not ready, or terminates.
func (m Mark) startLeaving(state State, now time.Time) Mark {
	if m.Since.IsZero() {
		m.Since = now
	}
	m.Terminating = m.Terminating || state != NotReady
	m.Gone = time.Time{}
	return m
}

// markGone returns the mark of a backend without an endpoint.
func (m Mark) markGone(emptying bool, now time.Time) Mark {
	if m.Since.IsZero() {
		m.Since = now
	}
	if m.Gone.IsZero() {
		m.Gone = now
	}
	m.Terminating = m.Terminating || emptying
	return m
}

// hasVanished reports whether the endpoint is gone without having been terminating.
func (m Mark) hasVanished() bool { return !m.Gone.IsZero() && !m.Terminating }

// removalTime returns when the backend leaves the set.
func (m Mark) removalTime(d Drain) time.Time {
	switch {
	case m.Gone.IsZero():
		return m.Since.Add(d.Maximum)
	case m.Terminating:
		return m.Since.Add(d.Minimum)
	}
	return m.Gone.Add(VanishGracePeriod)
}
