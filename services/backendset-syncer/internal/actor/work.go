package actor

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/backendset-syncer/internal/layout"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
)

// pending is a work request in progress.
type pending struct {
	*ociapi.Write

	id   string
	name string // of the object
	sent time.Time
	next time.Time // of the next poll

	step *layout.Step // nil: the object is a set
}

// poll follows the work request in progress.
func (a *actor) poll(ctx context.Context) {
	p, now := a.pending, a.p.Clock.Now()
	w, err := a.p.Client.WorkRequest(ctx, p.id)
	switch {
	case err != nil && ociapi.ClassOf(err) == ociapi.NotFound:
		a.ended("lost", "")
	case err != nil:
		a.fail(ctx, &a.reads, err)
		a.unlisted, a.unread = false, false // the work request is known
	case !w.Done && now.Sub(p.sent) > ociapi.WorkRequestDeadline:
		a.ended("lost", fmt.Sprintf("work request %s (%s) has not ended after %s", p.id, p.Operation(), ociapi.WorkRequestDeadline))
	case !w.Done:
		a.reads.end()
		wait := time.Duration(pollPart * float64(now.Sub(p.sent)))
		p.next = now.Add(min(max(wait, leastPoll), mostPoll))
	case w.Failed != "":
		a.ended("failed", fmt.Sprintf("work request %s (%s): %s", p.id, p.Operation(), w.Failed))
	default:
		a.ended("succeeded", "")
	}
}

// ended handles the end of a work request. A problem means that nothing may be assumed about its effect.
func (a *actor) ended(result, problemText string) {
	p, now := a.pending, a.p.Clock.Now()
	took := now.Sub(p.sent)
	a.pending, a.unread = nil, true
	a.p.Observer.WorkRequest(p.Operation(), result, took)
	var s *set
	if p.step == nil {
		s = a.sets[p.name]
	}
	if result != "succeeded" {
		a.unlisted = true
		switch {
		case p.step != nil:
			a.frame.effort(p.step.Ref).failed(problemText, now, a.p.Jitter())
		case s != nil:
			s.failed(problemText, now, a.p.Jitter())
		}
		a.log.Warn("Work request did not succeed", zap.String(logging.KeyName, p.name), zap.String(logging.KeyOperation, p.Operation()), zap.String(logging.KeyWorkRequest, p.id), zap.String("problem", problemText))
		return
	}
	a.reads.end()
	a.writes.end()
	a.wroteAt = now
	a.retire(a.current.ETag)
	a.learn(took)
	if p.step != nil {
		a.frame.done(p.step)
	}
	if s != nil {
		if !s.covered.IsZero() {
			a.p.Observer.Written(now.Sub(s.covered))
		}
		s.written()
	}
	a.log.Info("Updated load balancer", zap.String(logging.KeyName, p.name), zap.String(logging.KeyOperation, p.Operation()), zap.Duration("workRequestTook", took))
}

// learn changes the expected duration of a work request after one that has succeeded.
func (a *actor) learn(took time.Duration) {
	if !a.learned {
		a.learned, a.expected = true, took
		return
	}
	a.expected += time.Duration(learning * float64(took-a.expected))
}
