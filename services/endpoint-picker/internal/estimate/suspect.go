package estimate

import (
	"math"
	"sync/atomic"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// activity is what the requests that this replica placed on a server show of its work, so that a server that has stopped gets no more of
// them before their clients leave.
type activity struct {
	waiting    atomic.Int64             // streams without content, and requests for answers in one piece
	streaming  atomic.Int64             // streams that have begun
	failures   atomic.Int64             // since the last sign of work of a request that came after the first of them
	firstFail  endpoint.AtomicMonotonic // when the first of them was placed
	lastPlaced endpoint.AtomicMonotonic // the last placement
	lastBegun  endpoint.AtomicMonotonic // when the waiting began, or the last stream, or the last answer in one piece came
	lastMore   endpoint.AtomicMonotonic // the last content of an answer, but for the first of a stream beside others, or the end of one
}

// signs are the part of a sequence in the activity of its server.
type signs struct {
	waiting, streaming, failed bool

	took float64   // seconds to its first content, until a sign of work follows: a server that fails may be fast
	last time.Time // its last content
}

// paces are what is usual in the pool.
type paces struct {
	first, whole movingAverage // seconds to the first content of a stream, and to an answer in one piece; 0 if unknown
	gap          movingAverage // square of the seconds between two contents of a stream: long gaps count more
}

// Paces are the usual times of a pool at one moment.
type Paces struct {
	First time.Duration // from the placement of a request to the first content of its stream; 0 before the first one
	Stall time.Duration // how long the content of a stream may pause until the stream counts as stalled

	wait time.Duration // from the placement of a request after which it waits in vain; 0 if unknown
}

// Paces returns the current ones.
func (x *Estimator) Paces() Paces {
	first := x.paces.first.Load()
	return Paces{
		First: durationOf(first),
		Stall: durationOf(stalledGaps * math.Sqrt(x.paces.gap.Load())),
		wait:  durationOf(stalledFirsts * max(first, x.paces.whole.Load())),
	}
}

func durationOf(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// IsSuspect reports whether the server seems to have stopped, so that requests should go to others: its last requests failed, or none of
// several requests has had any content for far longer than usual. One request in suspectPause may go there, to see.
func (s *Server) IsSuspect(now endpoint.Monotonic, p *Paces) bool {
	a := &s.activity
	return (a.failures.Load() >= minFailing || a.streaming.Load() >= minStalled || a.waiting.Load() >= minStalled) && s.seemsStopped(now, p)
}

func (s *Server) seemsStopped(now endpoint.Monotonic, p *Paces) bool {
	a := &s.activity
	switch {
	case now.Sub(a.lastPlaced.Load()).Seconds() >= suspectPause:
		return false
	case a.failures.Load() >= minFailing:
		return true
	}
	paused, waited := now.Sub(a.lastMore.Load()), now.Sub(a.lastBegun.Load())
	stalled := a.streaming.Load() >= minStalled && paused > p.Stall
	waits := a.waiting.Load() >= minStalled && p.wait > 0 && waited > p.wait
	if !stalled && !waits {
		return false
	}
	prompts := stalledPrompts * (s.prefillTime(float64(s.work.Load())) + s.unobservedBacklog(now)) // a long one may be computed in one step
	return stalled && paused > p.Stall+prompts || waits && waited > p.wait+prompts
}

// countWaiting counts a request that was placed.
func (q *sequence) countWaiting(now time.Time) {
	if q.remote || q.late { // its answer becomes known too late, if at all
		return
	}
	a, at := &q.server.activity, endpoint.ToMonotonic(now)
	a.lastPlaced.Store(at)
	q.signs = signs{waiting: true}
	if a.waiting.Add(1) == 1 {
		a.lastBegun.Store(at)
	}
}

// countFirstContent counts the first content of an answer.
func (q *sequence) countFirstContent(now time.Time) {
	switch {
	case !q.signs.waiting:
		return
	case !q.observed: // it counts at its end
		q.signs.last = now
		return
	}
	a, at := &q.server.activity, endpoint.ToMonotonic(now)
	q.signs.waiting = false
	a.waiting.Add(-1)
	a.lastBegun.Store(at)
	q.signs.streaming, q.signs.last = true, now
	if a.streaming.Add(1) == 1 {
		a.lastMore.Store(at)
	}
	if !q.moved {
		q.signs.took = now.Sub(q.placed).Seconds()
	}
}

// countMoreContent counts more content of a stream.
func (q *sequence) countMoreContent(now time.Time) {
	if !q.signs.streaming {
		q.signs.last = now
		return
	}
	a := &q.server.activity
	a.lastMore.Store(endpoint.ToMonotonic(now))
	gap := now.Sub(q.signs.last).Seconds()
	q.server.estimator.paces.gap.addSample(gap*gap, gapWeight)
	q.signs.last = now
	q.recordWork()
}

// recordWork records a sign of work.
func (q *sequence) recordWork() {
	if a := &q.server.activity; a.failures.Load() != 0 && endpoint.ToMonotonic(q.placed) > a.firstFail.Load() {
		a.failures.Store(0)
	}
	if q.signs.took == 0 {
		return
	}
	usual := &q.server.estimator.paces.whole
	if q.observed {
		usual = &q.server.estimator.paces.first
	}
	usual.addOrSet(q.signs.took, paceWeight)
	q.signs.took = 0
}

// countFailure counts a failure.
func (q *sequence) countFailure() {
	q.leaveActivity()
	q.signs.failed = true
	if a := &q.server.activity; !q.remote && a.failures.Add(1) == 1 {
		a.firstFail.Store(endpoint.ToMonotonic(q.placed))
	}
}

// countEnd counts the end of a request. One that did not fail was answered, as far as is known.
func (q *sequence) countEnd(how endpoint.Ending) {
	q.leaveActivity()
	if how != endpoint.Finished || q.remote || q.signs.failed {
		return
	}
	if last := q.signs.last; !q.observed && !last.IsZero() {
		at := endpoint.ToMonotonic(last)
		q.server.activity.lastBegun.Store(at)
		q.server.activity.lastMore.Store(at)
		q.signs.took = last.Sub(q.placed).Seconds()
	}
	q.recordWork()
}

// ShowsWork reports whether the server has sent content since some time after its page began to fail, so that it works without one. If
// there are no requests that could show it, one in suspectPause may go there, to see.
func (s *Server) ShowsWork(failing, now endpoint.Monotonic, open float64) bool {
	a := &s.activity
	if a.lastMore.Load().Sub(failing).Seconds() >= workWithoutPage {
		return true
	}
	return open == 0 && now.Sub(a.lastPlaced.Load()).Seconds() >= suspectPause
}

// leaveActivity ends the count of the request.
func (q *sequence) leaveActivity() {
	a := &q.server.activity
	if q.signs.waiting {
		a.waiting.Add(-1)
	}
	if q.signs.streaming {
		a.streaming.Add(-1)
	}
	q.signs.waiting, q.signs.streaming = false, false
}
