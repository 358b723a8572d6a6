package actor

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
)

// pending is a work request in progress.
type pending struct {
	*ociapi.Write

	id   string
	name string // of the object
	sent time.Time
	next time.Time // of the next poll

	step *lblayout.Step // nil: the object is a set
}

// pollWorkRequest follows the work request in progress.
func (a *actor) pollWorkRequest(ctx context.Context) {
	p, now := a.pending, a.p.Clock.Now()
	w, err := a.p.Client.ReadWorkRequest(ctx, p.id)
	switch {
	case err != nil && ociapi.AsError(err).Class == ociapi.NotFound:
		a.finishWorkRequest("lost", "")
	case err != nil:
		a.handleFailure(ctx, &a.reads, err)
		a.workRequestsUnknown, a.loadBalancerStale = false, false // the work request is known
	case !w.Done && now.Sub(p.sent) > ociapi.WorkRequestDeadline:
		a.finishWorkRequest("lost",
			fmt.Sprintf("work request %s (%s) has not ended after %s", p.id, p.Operation(), ociapi.WorkRequestDeadline))
	case !w.Done:
		a.reads.reset()
		wait := time.Duration(pollFraction * float64(now.Sub(p.sent)))
		p.next = now.Add(min(max(wait, minPollInterval), maxPollInterval))
	case w.Failed != "":
		a.finishWorkRequest("failed", fmt.Sprintf("work request %s (%s): %s", p.id, p.Operation(), w.Failed))
	default:
		a.finishWorkRequest("succeeded", "")
	}
}

// finishWorkRequest handles the end of a work request. A problem means that nothing may be assumed about its effect.
func (a *actor) finishWorkRequest(result, problemText string) {
	p, now := a.pending, a.p.Clock.Now()
	took := now.Sub(p.sent)
	a.pending, a.loadBalancerStale = nil, true
	a.p.Observer.ObserveWorkRequest(p.Operation(), result, took)
	var s *set
	if p.step == nil {
		s = a.sets[p.name]
	}
	if result != "succeeded" {
		a.workRequestsUnknown = true
		switch {
		case p.step != nil:
			a.layoutWork.attemptsOf(p.step.Ref).recordFailure(problemText, now, a.p.Jitter())
		case s != nil:
			s.markFailed(problemText, now, a.p.Jitter())
		}
		a.log.Warn("Work request did not succeed", zap.String(logging.KeyName, p.name), zap.String(logging.KeyOperation, p.Operation()),
			zap.String(logging.KeyWorkRequest, p.id), zap.String("problem", problemText))
		return
	}
	a.reads.reset()
	a.writes.reset()
	a.wroteAt = now
	a.rememberOldETag(a.current.ETag)
	a.updateExpectedDuration(took)
	if p.step != nil {
		a.layoutWork.markDone(p.step)
	}
	if s != nil {
		if !s.covered.IsZero() {
			a.p.Observer.ObserveWrite(now.Sub(s.covered))
		}
		s.markWritten()
	}
	a.log.Info("Updated load balancer", zap.String(logging.KeyName, p.name), zap.String(logging.KeyOperation, p.Operation()),
		zap.Duration("workRequestTook", took))
}

// updateExpectedDuration changes the expected duration of a work request after one that has succeeded.
func (a *actor) updateExpectedDuration(took time.Duration) {
	if !a.hasDuration {
		a.hasDuration, a.expected = true, took
		return
	}
	a.expected += time.Duration(durationWeight * float64(took-a.expected))
}
