package actor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/wake"
	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

const (
	// staleLimit is how long a read may be older than the last write.
	staleLimit = 30 * time.Second
	staleRetry = 250 * time.Millisecond
	// fenceRetry is the time between two attempts to write without a renewed Lease: the next renewal comes within a second, or never.
	fenceRetry = time.Second
	// maxEtags bounds the ETags that are known to be old.
	maxEtags = 32
	// firstPoll is the expected duration of a work request before the first one has ended. Users report 1 s to 17 s.
	firstPoll = time.Second
	// minPollInterval and maxPollInterval bound the time between two polls of a work request. pollFraction is that time as a fraction of
	// the time that the work request has taken.
	minPollInterval = 250 * time.Millisecond
	maxPollInterval = 5 * time.Second
	pollFraction    = 0.125
	// listingAge is how old a list of work requests may be for a write that replaces a set: less than the quickest work request takes.
	listingAge = 500 * time.Millisecond
	// durationWeight is the weight of the last work request in the expected duration.
	durationWeight = 0.3
	// minRetryDelay is the least time between two attempts for a set that was refused, even if its owner wants something else.
	minRetryDelay = 2 * time.Second
)

// actor writes the sets of one load balancer. Only its goroutine uses the fields outside the inbox.
type actor struct {
	inbox

	p    *Params
	id   string
	log  *zap.Logger
	quit chan struct{}

	sets       map[string]*set
	layoutWork layoutWork

	current             *ociapi.LoadBalancer // as it was read last; nil: never
	verifyAt            time.Time            // when it is read again although nothing has changed
	workRequestsUnknown bool                 // work requests of others may be in progress
	listedAt            time.Time
	loadBalancerStale   bool // current may be old
	wroteAt             time.Time
	oldEtags            []string // which the load balancer no longer has

	pending     *pending
	expected    time.Duration // of a work request
	hasDuration bool          // a work request has ended

	pause         time.Time // no request before
	reads, writes failureCount
	listings      int    // in a row that found work requests
	waiting       string // what the actor waits for, for reports
}

func newActor(p *Params, mu *sync.Mutex, id string) *actor {
	return &actor{
		inbox: inbox{mu: mu, sets: map[string]*Wanted{}, reports: map[string]*Report{}, wake: wake.NewSignal()},
		p:     p, id: id, log: p.Log.With(zap.String(logging.KeyLoadBalancer, id)), quit: make(chan struct{}), sets: map[string]*set{},
		layoutWork:          layoutWork{attempts: map[lblayout.Ref]*attempts{}},
		workRequestsUnknown: true, loadBalancerStale: true, expected: firstPoll,
	}
}

// runLoop works until ctx or lease ends, or the last set is dropped.
func (a *actor) runLoop(ctx, lease context.Context) {
	for ctx.Err() == nil && lease.Err() == nil {
		a.receiveDesired()
		next := a.runStep(lease)
		a.publishReports()
		var due <-chan time.Time // none: until somebody wants something else
		if !next.IsZero() {
			wait := next.Sub(a.p.Clock.Now())
			if wait <= 0 {
				continue
			}
			due = a.p.Clock.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-lease.Done():
		case <-a.quit:
			return
		case <-a.wake:
		case <-due:
		}
	}
}

// receiveDesired takes the newest desired states from the inbox.
func (a *actor) receiveDesired() {
	now, changed := a.p.Clock.Now(), false
	a.mu.Lock()
	for name, desired := range a.inbox.sets {
		s := a.sets[name]
		if s == nil {
			s = &set{name: name}
			a.sets[name] = s
		}
		changed = s.setDesired(desired, now) || changed
	}
	for name := range a.sets {
		if a.inbox.sets[name] == nil {
			delete(a.sets, name)
		}
	}
	changed = a.layoutWork.setDesired(a.inbox.layout) || changed
	a.mu.Unlock()
	if changed && a.current != nil {
		a.planSets(now) // also during a work request: endpoints may come, terminate and go meanwhile
	}
}

// runStep makes at most one request. It returns when the next step is due: zero means with the next event.
func (a *actor) runStep(ctx context.Context) time.Time {
	now := a.p.Clock.Now()
	switch {
	case now.Before(a.pause):
		return a.pause
	case a.pending != nil && now.Before(a.pending.next):
		if a.checkHealth(ctx, now) {
			return now
		}
		return earlierTime(a.pending.next, a.healthAt())
	case a.pending != nil:
		a.pollWorkRequest(ctx)
		return now
	case a.workRequestsUnknown:
		a.listWorkRequests(ctx)
		return now
	case a.loadBalancerStale || !now.Before(a.verifyAt):
		a.readLoadBalancer(ctx)
		return now
	}
	write, next := a.decideWrite(now)
	if write == nil {
		if a.checkHealth(ctx, now) {
			return now
		}
		return earlierTime(earlierTime(next, a.verifyAt), a.healthAt())
	}
	a.sendWrite(ctx, write)
	return now
}

// listWorkRequests waits until no work request is in progress: what is read meanwhile changes soon, and a write would undo it.
func (a *actor) listWorkRequests(ctx context.Context) {
	inFlight, err := a.p.Client.ListInFlight(ctx, a.id)
	if err != nil {
		a.handleFailure(ctx, &a.reads, err)
		return
	}
	a.reads.reset()
	now := a.p.Clock.Now()
	for _, w := range inFlight {
		if now.Sub(w.Accepted) < ociapi.WorkRequestDeadline {
			a.waiting = fmt.Sprintf("waits for work request %s (%s) of another client or an earlier leader", w.ID, w.Type)
			a.listings++
			a.pause = now.Add(betweenListings.delayAfter(a.listings, a.p.Jitter()))
			a.workRequestsUnknown, a.loadBalancerStale = true, true
			return
		}
	}
	a.workRequestsUnknown, a.listedAt, a.listings, a.waiting = false, now, 0, ""
}

// readLoadBalancer reads the load balancer.
func (a *actor) readLoadBalancer(ctx context.Context) {
	priority := ociapi.High
	if !a.loadBalancerStale {
		priority = ociapi.Low
	}
	got, err := a.p.Client.ReadLoadBalancer(ctx, priority, a.id)
	now := a.p.Clock.Now()
	if at := deferredUntil(err, now); !at.IsZero() {
		a.verifyAt = at
		return
	}
	if err != nil {
		a.handleFailure(ctx, &a.reads, err)
		return
	}
	a.reads.reset()
	if a.isOldETag(got.ETag) && now.Sub(a.wroteAt) < staleLimit {
		a.waiting, a.pause = "waits until reads show the last write", now.Add(staleRetry)
		return
	}
	if a.current != nil && a.current.ETag != got.ETag {
		a.rememberOldETag(a.current.ETag)
	}
	a.current, a.verifyAt, a.loadBalancerStale, a.waiting = got, now.Add(a.p.Verify), false, ""
	a.watchAddresses(got.BackendAddresses()) // before they are planned: no change is missed
	a.layoutWork.live = got.LiveLayout()
	if !got.Active {
		a.reads.problem = plan.NewProblem(v1alpha1.ReasonLoadBalancerUnavailable,
			"the load balancer is in state %s; fix or replace it", got.State)
		a.pause = now.Add(afterNotFound.first)
		a.loadBalancerStale = true
	}
}

// rememberOldETag remembers an ETag that the load balancer no longer has: a read with it is old.
func (a *actor) rememberOldETag(etag string) {
	if a.isOldETag(etag) {
		return
	}
	if len(a.oldEtags) == maxEtags {
		a.oldEtags = a.oldEtags[1:]
	}
	a.oldEtags = append(a.oldEtags, etag)
}

func (a *actor) isOldETag(etag string) bool {
	return slices.Contains(a.oldEtags, etag)
}

// write is a write that was decided.
type write struct {
	*ociapi.Write

	name     string
	attempts *attempts

	set    *set // nil for a step of the layout
	wanted []plan.Backend

	step *lblayout.Step
}

// sendWrite sends a write. One that replaces a set must not undo the work request of another client on the same set, which no read shows
// before it has ended: so work requests are listed immediately before.
func (a *actor) sendWrite(ctx context.Context, w *write) {
	now := a.p.Clock.Now()
	if w.ReplacesObject() && now.Sub(a.listedAt) > listingAge {
		a.listWorkRequests(ctx)
		if a.pause.After(now) || ctx.Err() != nil {
			return
		}
	}
	if err := a.p.MayWrite(); err != nil {
		a.waiting, a.pause = "waits for the leadership: "+err.Error(), a.p.Clock.Now().Add(fenceRetry)
		return
	}
	w.attempts.attemptedAt = a.p.Clock.Now()
	id, err := a.p.Client.SendWrite(ctx, w.Write, w.RetryToken(w.attempts.tokenNumber))
	if err != nil {
		a.handleRefusal(ctx, w, err)
		return
	}
	a.waiting = ""
	now = a.p.Clock.Now()
	wait := time.Duration(0.9 * float64(a.expected)) // a little before it is expected to end
	a.pending = &pending{Write: w.Write, id: id, name: w.name, sent: now, next: now.Add(wait), step: w.step}
	if w.set != nil {
		w.set.markSent(w.wanted, now)
	}
	a.log.Debug("Sent write", zap.String(logging.KeyName, w.name), zap.String(logging.KeyOperation, w.Operation()),
		zap.String(logging.KeyWorkRequest, id))
}

// clearMetrics drops all sets from the metrics.
func (a *actor) clearMetrics() {
	for name := range a.sets {
		a.p.Observer.ObserveReport(Key{LoadBalancer: a.id, Set: name}, nil)
	}
}
