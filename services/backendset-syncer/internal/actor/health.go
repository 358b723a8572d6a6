package actor

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

const (
	// healthInterval is the time between two reads of the health of a set with new backends. Checks take at least a second; half of
	// it doubles the requests, double delays readiness gates by a second on average.
	healthInterval = 2 * time.Second
	// provingTime is the time after which new backends that are not healthy are no longer waited for: a few default intervals of
	// health checks, with their retries.
	provingTime = 2 * time.Minute
)

// health is what an actor knows about the health of the backends of a set.
type health struct {
	unproven map[netip.AddrPort]time.Time // new active backends that were not healthy yet, with the time of the event; zero: not known
	begun    time.Time                    // of the last new backend
	active   map[netip.AddrPort]bool      // in the load balancer
	status   *ociapi.Health               // as it was read last; nil: never
	used     bool                         // requests can reach the set
	next     time.Time                    // of the next read; zero: never
	failed   string                       // result of the check of a critical backend
	wish     *request
	seen     map[netip.AddrPort]time.Time // ready endpoints that are not active yet, with the time of the event
}

// want notes when endpoints became ready.
func (h *health) want(wish *request, now time.Time) {
	since := wish.Since
	if since.IsZero() {
		since = now
	}
	seen := map[netip.AddrPort]time.Time{}
	for _, e := range wish.Endpoints {
		if e.State != plan.Ready || h.active[e.Address] {
			continue
		}
		if at, known := h.seen[e.Address]; known {
			seen[e.Address] = at
		} else {
			seen[e.Address] = since
		}
	}
	h.seen, h.wish = seen, wish
}

// follow notes the backends that have become active in the load balancer.
func (h *health) follow(s *set, now time.Time) {
	active := activeOf(s.live.Backends)
	if h.active == nil { // the first read: these backends are not new
		h.unproven, h.active = map[netip.AddrPort]time.Time{}, active
	}
	for address := range active {
		if h.active[address] {
			continue
		}
		if at, known := h.seen[address]; known {
			delete(h.seen, address)
			h.unproven[address] = at
			h.begun, h.next = now, now.Add(healthInterval/2) //nolint:mnd // the first check takes a second
		}
	}
	for address := range h.unproven {
		if !active[address] {
			delete(h.unproven, address)
		}
	}
	if h.active = active; h.next.IsZero() && len(active) > 0 {
		h.next = now
	}
}

// reached begins anew if requests could not reach the set when its health was read: backends without a known health counted as healthy.
func (h *health) reached(now time.Time) {
	if h.status != nil && !h.used {
		h.status, h.failed, h.next = nil, "", now.Add(healthInterval/2) //nolint:mnd // the first check takes a second
	}
}

// healthAt returns when the health of a set is read next.
func (a *actor) healthAt() time.Time {
	var at time.Time
	for _, s := range a.sets {
		at = earliest(at, s.health.next)
	}
	return at
}

// checkHealth reads the health of one set, if it is due. It reports whether it made a request.
func (a *actor) checkHealth(ctx context.Context, now time.Time) bool {
	for _, name := range byName(a.sets) {
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
	status, err := a.p.Client.Health(ctx, a.id, s.name)
	if at := deferred(err, now); !at.IsZero() {
		h.next = at
		return
	}
	if err != nil {
		if ociapi.ClassOf(err) != ociapi.NotFound { // the set may be gone
			a.fail(ctx, &a.reads, err)
			h.next = now.Add(healthInterval)
		}
		return
	}
	a.reads.end()
	first := h.status == nil
	h.status, h.used = status, a.current.Used(s.name)
	a.prove(h)
	if first {
		h.inherit(now)
	}
	proving := len(h.unproven) > 0 && now.Sub(h.begun) < provingTime
	if !proving {
		clear(h.unproven)
	}
	failing := h.failing()
	switch {
	case len(failing) == 0:
		h.failed = ""
	case h.failed == "" || !proving:
		if h.failed, err = a.p.Client.CheckResult(ctx, a.id, s.name, failing[0].String()); err != nil {
			h.failed = "the result of its health check cannot be read"
		}
		h.next = now.Add(min(a.p.Verify, provingTime/2)) //nolint:mnd // a problem is looked at more often
	}
	if proving {
		h.next = now.Add(healthInterval)
	}
}

// prove notes which new backends are healthy.
func (a *actor) prove(h *health) {
	for address, since := range h.unproven {
		if !h.status.InService(address.String(), h.used) {
			continue
		}
		delete(h.unproven, address)
		if !since.IsZero() {
			a.p.Observer.InService(a.p.Clock.Since(since))
		}
	}
}

// inherit waits for the backends that are not healthy when the set is read for the first time: they may be new, of an earlier leader.
func (h *health) inherit(now time.Time) {
	for address := range h.active {
		if _, known := h.unproven[address]; !known && !h.status.InService(address.String(), h.used) {
			h.unproven[address], h.begun = time.Time{}, now
		}
	}
}

// failing returns the active backends that the load balancer reports as critical, without new ones: their first checks may fail.
func (h *health) failing() []netip.AddrPort {
	var all []netip.AddrPort
	for address := range h.active {
		if since := h.unproven[address]; h.status != nil && h.status.Critical[address.String()] && since.IsZero() {
			all = append(all, address)
		}
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

// serving returns the active backends that the load balancer sends requests to, as far as is known.
func (h *health) serving() map[netip.AddrPort]bool {
	serving := map[netip.AddrPort]bool{}
	for address := range h.active {
		if _, waits := h.unproven[address]; !waits && h.status != nil && h.status.InService(address.String(), h.used) {
			serving[address] = true
		}
	}
	return serving
}
