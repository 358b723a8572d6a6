package endpoint

import (
	"sync"
	"sync/atomic"
	"time"
)

// Health says whether requests should go to an endpoint. Package outlier writes it; the pick path reads it without a lock.
type Health struct {
	until   AtomicMonotonic // end of the ejection; unset if the endpoint is in use
	probed  atomic.Bool     // a probe is running since then
	failing atomic.Bool     // there are failures to reset

	mu     sync.Mutex
	cause  string
	reason string
}

// IsEjected reports whether the endpoint is not in use. This includes an endpoint that waits for its probe.
func (h *Health) IsEjected() bool { return h.until.Load().IsSet() }

// EjectedUntil returns when the ejection ends; zero if the endpoint is in use.
func (h *Health) EjectedUntil() time.Time {
	if until := h.until.Load(); until.IsSet() {
		return until.Time()
	}
	return time.Time{}
}

// LastEjection returns the cause of the last ejection, and the reason for people.
func (h *Health) LastEjection() (cause, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause, h.reason
}

// ExplainEjection sets the reason of the next ejection.
func (h *Health) ExplainEjection(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reason = reason
}

// IsUsable reports whether a request may go to the endpoint now: it is in use, or its probe is due.
func (h *Health) IsUsable(now time.Time) bool {
	until := h.until.Load()
	return !until.IsSet() || ToMonotonic(now) >= until && !h.probed.Load()
}

// markPlaced records that a request goes to the endpoint. If a probe is due, the request is the probe.
func (h *Health) markPlaced() (probe bool) {
	return h.until.Load().IsSet() && !h.probed.Swap(true)
}

// ClearProbe records that the result of a probe will not be known.
func (h *Health) ClearProbe() { h.probed.Store(false) }

// RecordSuccess resets all failures. It reports whether the endpoint was ejected until now.
func (h *Health) RecordSuccess() bool {
	if !h.failing.Load() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failing.Store(false)
	h.probed.Store(false)
	return h.until.Swap(0).IsSet()
}

// RecordFailure records a failure. It reports whether this one came after the end of an ejection.
func (h *Health) RecordFailure() (probe bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failing.Store(true)
	return h.probed.Load()
}

// EjectUntil ejects the endpoint until a time.
func (h *Health) EjectUntil(cause string, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failing.Store(true)
	h.cause = cause
	h.until.Store(ToMonotonic(until))
	h.probed.Store(false)
}
