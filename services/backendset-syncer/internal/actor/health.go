package actor

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

const (
	// healthInterval is the time between two reads of the health of a set with new backends. Checks take at least a second.
	healthInterval = 2 * time.Second
	// provingTime is the time after which new backends that are not healthy are no longer waited for: a few default intervals of
	// health checks, with their retries.
	provingTime = 2 * time.Minute
)

// health is what an actor knows about the health of the backends of a set.
type health struct {
	awaited      map[netip.AddrPort]time.Time // new active backends that were not healthy yet, with the time of the event; zero: not known
	awaitedSince time.Time                    // of the last new backend
	active       map[netip.AddrPort]bool      // in the load balancer
	status       *ociapi.Health               // as it was read last; nil: never
	used         bool                         // requests can reach the set
	next         time.Time                    // of the next read; zero: never
	failed       string                       // result of the check of a critical backend
	seen         map[netip.AddrPort]time.Time // ready endpoints that are not active yet, with the time of the event
}

// setDesired notes when endpoints became ready.
func (h *health) setDesired(desired *Wanted, now time.Time) {
	since := desired.Since
	if since.IsZero() {
		since = now
	}
	seen := map[netip.AddrPort]time.Time{}
	for _, e := range desired.Endpoints {
		if e.State != plan.Ready || h.active[e.Address] {
			continue
		}
		if at, known := h.seen[e.Address]; known {
			seen[e.Address] = at
		} else {
			seen[e.Address] = since
		}
	}
	h.seen = seen
}

// trackActive notes the backends that have become active in the load balancer.
func (h *health) trackActive(s *set, now time.Time) {
	active := activeOf(s.live.Backends)
	if h.active == nil { // the first read: these backends are not new
		h.awaited, h.active = map[netip.AddrPort]time.Time{}, active
	}
	for address := range active {
		if h.active[address] {
			continue
		}
		if eventTime, known := h.seen[address]; known {
			delete(h.seen, address)
			h.awaited[address] = eventTime
			h.awaitedSince, h.next = now, now.Add(healthInterval/2) // the first check takes a second
		}
	}
	for address := range h.awaited {
		if !active[address] {
			delete(h.awaited, address)
		}
	}
	if h.active = active; h.next.IsZero() && len(active) > 0 {
		h.next = now
	}
}

// restartWhenUsed begins anew if requests could not reach the set when its health was read: backends without a known health counted as
// healthy.
func (h *health) restartWhenUsed(now time.Time) {
	if h.status != nil && !h.used {
		h.status, h.failed, h.next = nil, "", now.Add(healthInterval/2) // the first check takes a second
	}
}

// healthAt returns when the health of a set is read next.
func (a *actor) healthAt() time.Time {
	var at time.Time
	for _, s := range a.sets {
		at = earlierTime(at, s.health.next)
	}
	return at
}

// checkHealth reads the health of one set, if it is due. It reports whether it made a request.
func (a *actor) checkHealth(ctx context.Context, now time.Time) bool {
	for _, name := range slices.Sorted(maps.Keys(a.sets)) {
		s := a.sets[name]
		if s.live == nil || s.health.next.IsZero() || s.health.next.After(now) {
			continue
		}
		a.readHealth(ctx, s, now)
		return true
	}
	return false
}

func (a *actor) readHealth(ctx context.Context, s *set, now time.Time) {
	h := &s.health
	h.next = now.Add(a.p.Verify)
	status, err := a.p.Client.ReadHealth(ctx, a.id, s.name)
	if at := deferredUntil(err, now); !at.IsZero() {
		h.next = at
		return
	}
	if err != nil {
		if ociapi.AsError(err).Class != ociapi.NotFound { // the set may be gone
			a.handleFailure(ctx, &a.reads, err)
			h.next = now.Add(healthInterval)
		}
		return
	}
	a.reads.reset()
	first := h.status == nil
	h.status, h.used = status, a.current.IsUsed(s.name)
	a.recordInService(h)
	if first {
		h.awaitInherited(now)
	}
	proving := len(h.awaited) > 0 && now.Sub(h.awaitedSince) < provingTime
	if !proving {
		clear(h.awaited)
	}
	failing := h.failingBackends()
	switch {
	case len(failing) == 0:
		h.failed = ""
	case h.failed == "" || !proving:
		if h.failed, err = a.p.Client.ReadCheckResult(ctx, a.id, s.name, failing[0].String()); err != nil {
			h.failed = "the result of its health check cannot be read"
		}
		h.next = now.Add(min(a.p.Verify, provingTime/2)) // a problem is looked at more often
	}
	if proving {
		h.next = now.Add(healthInterval)
	}
}

// recordInService notes which new backends are healthy.
func (a *actor) recordInService(h *health) {
	for address, since := range h.awaited {
		if !h.status.InService(address.String(), h.used) {
			continue
		}
		delete(h.awaited, address)
		if !since.IsZero() {
			a.p.Observer.ObserveInService(a.p.Clock.Since(since))
		}
	}
}

// awaitInherited waits for the backends that are not healthy when the set is read for the first time: they may be new, of an earlier
// leader.
func (h *health) awaitInherited(now time.Time) {
	for address := range h.active {
		if _, known := h.awaited[address]; !known && !h.status.InService(address.String(), h.used) {
			h.awaited[address], h.awaitedSince = time.Time{}, now
		}
	}
}

// failingBackends returns the active backends that the load balancer reports as critical, without new ones: their first checks may fail.
func (h *health) failingBackends() []netip.AddrPort {
	var failing []netip.AddrPort
	for address := range h.active {
		if since := h.awaited[address]; h.status != nil && h.status.Critical.Has(address.String()) && since.IsZero() {
			failing = append(failing, address)
		}
	}
	slices.SortFunc(failing, netip.AddrPort.Compare)
	return failing
}

// servingBackends returns the active backends that the load balancer sends requests to, as far as is known.
func (h *health) servingBackends() map[netip.AddrPort]bool {
	serving := map[netip.AddrPort]bool{}
	for address := range h.active {
		if _, waits := h.awaited[address]; !waits && h.status != nil && h.status.InService(address.String(), h.used) {
			serving[address] = true
		}
	}
	return serving
}
