package endpoint

import (
	"sync"
	"time"
)

// A Lease is one request on an endpoint. It ends once, by Release, Abandon or FailUntil.
//
// A lease whose stream ends before the response does (the gateway closes early, or never shows the response) is abandoned:
// its request continues unobserved. It counts until a sample that began after its acquisition, because that sample contains
// the request, or until a time limit if no sample comes.
//
//	            Acquire                  Release
//	(nothing) ----------->  open  ---------------------->  (nothing)   counts as released
//	                        |  ^|
//	                 MoveTo +--+| Abandon           newer sample
//	                        |   +-------> abandoned ------->  (nothing)   the sample has it
//	                        |                 |  time limit (ExpireLeases)
//	                        |                 +----------->  (nothing)   counts as released
//	                        | FailUntil         time limit (ExpireFailed)
//	                        +-----------> failed --------->  (nothing)   counts as released since FailUntil
//
// The lease of a failed request counts beside the sample like a request that is being answered, for as long as an answer would
// have taken, so that a server that fails at once is not the one with the least load.
//
// All methods may be called from any goroutine, in any order and number: calls after the end have no effect. They take the
// lease's own lock, which nobody else waits for in the usual case: a compare-and-swap each for the end of a request, and none
// for its pick.
type Lease struct {
	mu       sync.Mutex
	endpoint *Endpoint
	tracker  Tracker // may be nil
	acquired int64   // its place in the order of acquisition
	remote   int64   // 1 if another replica placed the request, else 0
	probe    bool    // the endpoint is ejected, and this request probes it
	first    bool    // the answer has begun
	isEnded  bool
	over     bool // it failed, and its time is over
}

// A Tracker follows the request of a lease. Its methods are called one at a time: OnFirstToken at most once, OnMove before it
// if at all, OnMoreContent only after it, OnFailure at most once, OnMissedFirst only after that, OnEnd last.
type Tracker interface {
	// OnFirstToken records that the answer has begun.
	OnFirstToken(now time.Time)
	// OnMoreContent records more of the answer.
	OnMoreContent(now time.Time)
	// OnMove records that another endpoint serves the request.
	OnMove(to *Endpoint, now time.Time)
	// OnFailure records that the request has failed, and counts until OnEnd. From now on it is before the first token, whatever was before.
	OnFailure()
	// OnMissedFirst records that the answer would have begun by now if the request had not failed.
	OnMissedFirst(now time.Time)
	// OnEnd records the end of the request, or that its end will not be observed.
	OnEnd(Ending)
}

// Ending is how the observation of a request ends.
type Ending uint8

// The endings.
const (
	Finished   Ending = iota // the request has ended, too
	Unobserved               // the request may continue
)

// Acquire counts one request that is about to be sent to the endpoint.
func (e *Endpoint) Acquire() *Lease {
	l := &Lease{}
	e.AcquireInto(l, nil)
	return l
}

// AcquireInto is Acquire for a new lease in the caller's memory, and with a tracker, which has begun already.
func (e *Endpoint) AcquireInto(l *Lease, t Tracker) {
	e.open.Add(1)
	l.endpoint, l.tracker, l.acquired, l.probe = e, t, e.acquired.Add(1), e.health.markPlaced()
}

// AcquireRemote is AcquireInto for a request that another replica has placed. It is load like any other, but no pick of this
// replica, and no probe.
func (e *Endpoint) AcquireRemote(l *Lease, t Tracker) {
	e.open.Add(1)
	e.remoteOpen.Add(1)
	e.remote.Add(1)
	l.endpoint, l.tracker, l.acquired, l.remote = e, t, e.acquired.Add(1), 1
}

// Endpoint returns the endpoint that the lease is on.
func (l *Lease) Endpoint() *Endpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endpoint
}

// MarkFirstContent records that the answer has begun.
func (l *Lease) MarkFirstContent(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isEnded || l.first {
		return
	}
	l.first = true
	if l.tracker != nil {
		l.tracker.OnFirstToken(now)
	}
}

// MarkMoreContent records more of an answer that has begun.
func (l *Lease) MarkMoreContent(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first && !l.isEnded && l.tracker != nil {
		l.tracker.OnMoreContent(now)
	}
}

// MoveTo moves the lease to the endpoint that serves the request, after the gateway's attempt at the previous one failed.
// From now on it is load of that endpoint. It has no effect once the answer has begun.
func (l *Lease) MoveTo(served *Endpoint, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isEnded || l.first || served == l.endpoint {
		return
	}
	l.endProbe()
	l.endpoint.countReleased(l.remote)
	served.open.Add(1)
	served.remoteOpen.Add(l.remote)
	served.arrived.Add(1)
	l.endpoint, l.acquired = served, served.acquired.Add(1)
	if l.tracker != nil {
		l.tracker.OnMove(served, now)
	}
}

// Release ends the lease together with its request.
func (l *Lease) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endOnce(Finished) {
		l.endpoint.countReleased(l.remote)
	}
}

// Abandon ends the lease while the request may continue.
func (l *Lease) Abandon(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endOnce(Unobserved) {
		l.endpoint.addAbandoned(abandonedLease{acquired: l.acquired, at: now, remote: l.remote})
	}
}

// endOnce is the common part of Release and Abandon, and of FailUntil if nothing counts afterwards. It reports whether the lease was open.
func (l *Lease) endOnce(how Ending) bool {
	if l.isEnded {
		return false
	}
	l.isEnded = true
	if l.tracker != nil {
		l.tracker.OnEnd(how)
	}
	l.endProbe()
	return true
}

// endProbe allows the next probe. It has no effect if the result of this one is known.
func (l *Lease) endProbe() {
	if l.probe {
		l.probe = false
		l.endpoint.health.ClearProbe()
	}
}

// countReleased counts the end of one request.
func (e *Endpoint) countReleased(remote int64) {
	e.released.Add(1)
	e.closeLease(remote)
}

// closeLease ends the count of an open lease.
func (e *Endpoint) closeLease(remote int64) {
	e.open.Add(-1)
	e.remoteOpen.Add(-remote)
}
