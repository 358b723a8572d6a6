// A Queue contains the requests of a pool that wait for an endpoint. They leave in order of priority, then of arrival. The pool says when,
// and how many: a queue knows no endpoints.
//
// A queue is bounded in requests and bytes. A request that finds it full takes the place of requests of lower priority, the last ones
// first, or is refused. Each request waits for a limited time.

package pool

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Reasons why a request does not leave the queue for an endpoint.
var (
	ErrQueueFull = errors.New("the queue is full")
	ErrDisplaced = errors.New("the queue is full, and requests of higher priority came")
	ErrExpired   = errors.New("no model server became ready in time")
	ErrClosed    = errors.New("the picker ends, or no longer has the pool")
)

// QueueLimits bound a queue.
type QueueLimits struct {
	TTL      time.Duration // of a request, from its arrival; 0: no request waits
	Requests int
	Bytes    int64
}

// A QueuedRequest is what a queue knows of a request.
type QueuedRequest struct {
	QueueLabels

	Arrived time.Time
	Bytes   int64 // of memory that it holds while it waits
}

// QueueLabels are what waiting requests are counted by.
type QueueLabels struct {
	Model    string // that the client named
	Target   string // that its server is asked for
	Fairness string // flow of the request
	Priority int
}

// maxName is the number of bytes of a name that count. Names of models of Hugging Face have at most 96.
const maxName = 256

// cloneBounded returns a copy of limited length, which keeps no request's memory.
func (l QueueLabels) cloneBounded() QueueLabels {
	for _, name := range []*string{&l.Model, &l.Target, &l.Fairness} {
		*name = strings.Clone((*name)[:min(len(*name), maxName)])
	}
	return l
}

// A Queue holds waiting requests. It is safe for concurrent use.
type Queue struct {
	clock   clock.PassiveClock
	length  atomic.Int64  // of waiters
	version atomic.Uint64 // changes whenever a request enters or leaves

	mu      sync.Mutex
	waiters []*waiter // in the order in which they leave
	bytes   int64
	closed  bool
	recent  recentLabels
	changed chan struct{} // closed at the next change; nil: nobody waits for it
}

// waiter is a request in a queue.
type waiter struct {
	QueuedRequest

	left    bool
	outcome chan error // receives one value when the request leaves
}

// compareTurn compares two waiters by who leaves first: the one of higher priority, then the one that arrived first.
func (w *waiter) compareTurn(other *waiter) int {
	return cmp.Or(cmp.Compare(other.Priority, w.Priority), w.Arrived.Compare(other.Arrived))
}

// NewQueue returns an empty Queue.
func NewQueue(c clock.PassiveClock) *Queue { return &Queue{clock: c, recent: recentLabels{}} }

// Len returns the number of waiting requests. It takes no lock.
func (q *Queue) Len() int { return int(q.length.Load()) }

// WaitForGrant returns nil when GrantNext lets the request leave, or an error when it leaves without a grant: one of this package, or the
// cause of the end of ctx.
func (q *Queue) WaitForGrant(ctx context.Context, r QueuedRequest, l QueueLimits) error {
	w, err := q.addWaiter(r, l)
	if err != nil {
		return err
	}
	expiry := time.NewTimer(r.Arrived.Add(l.TTL).Sub(q.clock.Now()))
	defer expiry.Stop()
	select {
	case err := <-w.outcome:
		return err
	case <-ctx.Done():
		return q.abandonWait(w, context.Cause(ctx))
	case <-expiry.C:
		return q.abandonWait(w, ErrExpired)
	}
}

// GrantNext lets up to n requests leave for an endpoint, and returns their number.
func (q *Queue) GrantNext(n int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	granted := max(min(n, len(q.waiters)), 0)
	q.releaseWaiters(0, granted, nil)
	return granted
}

// Close lets all requests leave without a grant. From now on, none waits.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.releaseWaiters(0, len(q.waiters), ErrClosed)
}

// addWaiter adds a request, if there is room for it.
func (q *Queue) addWaiter(r QueuedRequest, l QueueLimits) (*waiter, error) {
	r.QueueLabels = r.QueueLabels.cloneBounded()
	w := &waiter{QueuedRequest: r, outcome: make(chan error, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrClosed
	}
	if !q.makeRoom(&r, l) {
		return nil, ErrQueueFull
	}
	// Behind those that arrived at the same time. A request that was granted and waits again is among the first.
	i, _ := slices.BinarySearchFunc(q.waiters, w, func(other, w *waiter) int { return cmp.Or(other.compareTurn(w), -1) })
	q.waiters = slices.Insert(q.waiters, i, w)
	q.bytes += r.Bytes
	q.length.Add(1)
	q.announceChange()
	return w, nil
}

// makeRoom reports whether the limits have room for a request. It lets requests of lower priority leave for that.
func (q *Queue) makeRoom(r *QueuedRequest, l QueueLimits) bool {
	first, bytes := len(q.waiters), q.bytes+r.Bytes
	fits := func() bool { return first < l.Requests && bytes <= l.Bytes }
	for !fits() && first > 0 && q.waiters[first-1].Priority < r.Priority {
		first--
		bytes -= q.waiters[first].Bytes
	}
	if !fits() {
		return false
	}
	q.releaseWaiters(first, len(q.waiters), ErrDisplaced)
	return true
}

// abandonWait removes a request that stops waiting by itself, and returns its outcome: somebody may have let it leave at the same moment.
func (q *Queue) abandonWait(w *waiter, reason error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.left {
		i, _ := slices.BinarySearchFunc(q.waiters, w, (*waiter).compareTurn)
		i += slices.Index(q.waiters[i:], w)
		q.releaseWaiters(i, i+1, reason)
	}
	return <-w.outcome
}

// releaseWaiters lets a part of the waiters leave with an outcome. The caller holds mu.
func (q *Queue) releaseWaiters(from, to int, outcome error) {
	if from == to {
		return
	}
	q.length.Add(int64(from - to))
	for _, w := range q.waiters[from:to] {
		q.bytes -= w.Bytes
		q.recent.addLabels(w.QueueLabels, q.clock.Now())
		w.left = true
		w.outcome <- outcome
	}
	q.waiters = slices.Delete(q.waiters, from, to)
	q.announceChange()
}
