package endpoint

import (
	"sync"
	"sync/atomic"
	"time"
)

// Health says whether requests should go to an endpoint. Its owner is package outlier; the pick path reads it, without
// a lock.
type Health struct {
	until   atomic.Int64 // of the ejection, in Unix nanoseconds; 0 if the endpoint is in use
	probed  atomic.Bool  // a request has gone there since that time, and nothing is known of it yet
	failing atomic.Bool  // there is something to forget

	mu       sync.Mutex
	failures int // in a row
	times    int // ejected in a row
	cause    string
}

// Ejected tells whether the endpoint is not in use. One that is due to be probed is not.
func (h *Health) Ejected() bool { return h.until.Load() != 0 }

// Until returns when the ejection ends; zero if the endpoint is in use.
func (h *Health) Until() time.Time {
	if until := h.until.Load(); until != 0 {
		return time.Unix(0, until)
	}
	return time.Time{}
}

// Cause returns why the endpoint was ejected last.
func (h *Health) Cause() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// Usable tells whether a request may go to the endpoint now: it is in use, or is to be probed.
func (h *Health) Usable(now time.Time) bool {
	until := h.until.Load()
	return until == 0 || now.UnixNano() >= until && !h.probed.Load()
}

// Placed says that a request goes there. If the endpoint is to be probed it is the probe.
func (h *Health) Placed() (probe bool) {
	return h.until.Load() != 0 && !h.probed.Swap(true)
}

// Unknown says that nothing will be known of a probe.
func (h *Health) Unknown() { h.probed.Store(false) }

// Succeed forgets all failures. It reports whether the endpoint was ejected until now.
func (h *Health) Succeed() bool {
	if !h.failing.Load() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failing.Store(false)
	h.failures, h.times = 0, 0
	h.probed.Store(false)
	return h.until.Swap(0) != 0
}

// Fail counts a failure. It returns how many there were in a row, and whether it was one after the end of an ejection.
func (h *Health) Fail() (failures int, probe bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failing.Store(true)
	h.failures++
	return h.failures, h.probed.Load()
}

// Eject keeps requests from the endpoint until a time, which may depend on how many times in a row it was ejected.
func (h *Health) Eject(cause string, until func(times int) time.Time) (times int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failing.Store(true)
	h.times++
	h.cause = cause
	h.until.Store(until(h.times).UnixNano())
	h.probed.Store(false)
	return h.times
}
