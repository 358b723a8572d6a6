package actor

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
)

// streak counts the failures of requests since the last success. Reads that succeed say nothing about writes.
type streak struct {
	failures map[ociapi.Class]int
	problem  *problem
}

func (s *streak) end() { s.failures, s.problem = nil, nil }

func (s *streak) add(c ociapi.Class) int {
	if s.failures == nil {
		s.failures = map[ociapi.Class]int{}
	}
	s.failures[c]++
	return s.failures[c]
}

// refused handles an error of a write.
func (a *actor) refused(ctx context.Context, w *write, err error) {
	e, s := asError(err), w.effort
	now := a.p.Clock.Now()
	switch e.Class {
	case ociapi.TokenUsed, ociapi.Exists:
		s.attempt++
		s.refusals++
		s.retryAt = now.Add(afterStale.delay(s.refusals, a.p.Jitter()))
		a.p.Observer.Conflict(e.Code)
		a.unread = true
	case ociapi.NotFound:
		s.refusals++
		s.retryAt = now.Add(afterFailedWork.delay(s.refusals, a.p.Jitter()))
		a.unread = true
	case ociapi.LimitExceeded, ociapi.Refused:
		s.refusals++
		s.attempt++
		s.retryAt = now.Add(afterRefused.delay(s.refusals, a.p.Jitter()))
		s.problem = &problem{reason: reasonRefused, message: e.Error()}
		if e.Class == ociapi.LimitExceeded {
			s.problem.reason = reasonCapacity
		}
		a.log.Warn("OCI refused a write", zap.String(logging.KeyName, w.name), zap.String(logging.KeyOperation, w.Operation()), zap.Error(e))
	default:
		a.fail(ctx, &a.writes, e)
	}
}

// fail handles an error that concerns the whole load balancer.
func (a *actor) fail(ctx context.Context, of *streak, err error) {
	if ctx.Err() != nil {
		return
	}
	e := asError(err)
	n, now, jitter := of.add(e.Class), a.p.Clock.Now(), a.p.Jitter()
	switch e.Class {
	case ociapi.Busy:
		a.p.Observer.Conflict(e.Code)
		a.waiting, a.pause = "waits for the load balancer, which is busy: "+e.Error(), now.Add(afterBusy.delay(n, jitter))
	case ociapi.Stale:
		a.p.Observer.Conflict(e.Code)
		a.unlisted, a.unread = true, true
		if a.waiting = "reads changes of another client"; n > 1 {
			a.pause = now.Add(afterStale.delay(n-1, jitter))
		}
	case ociapi.Throttled:
		of.problem = &problem{reason: reasonRateLimited, message: e.Error() + "; the program sends fewer requests and retries"}
		a.pause = now.Add(max(e.RetryAfter, afterThrottled.delay(n, jitter)))
	case ociapi.Unauthenticated:
		of.problem = &problem{reason: reasonAuth, message: authProblem(e)}
		a.pause = now.Add(afterNoAccess.delay(n, jitter))
	case ociapi.NotFound:
		of.problem = &problem{reason: reasonUnavailable, message: e.Error() + "; check the OCID, the region, and the IAM policies of the credentials"}
		a.unlisted, a.unread = true, true
		a.pause = now.Add(afterNotFound.delay(n, jitter))
	default: // a failing service, or none that answers: a write may have had its effect
		a.unlisted, a.unread = true, true
		a.pause = now.Add(afterOutage.delay(n, jitter))
		if a.waiting = "retries: " + e.Error(); n > 1 {
			of.problem = &problem{reason: reasonUnavailable, message: e.Error() + "; the load balancer keeps its backends"}
		}
	}
	a.logFailure(e, n)
}

// deferred returns when a request of low priority that was not sent may be, zero if it was sent.
func deferred(err error, now time.Time) time.Time {
	if err == nil || ociapi.ClassOf(err) != ociapi.Deferred {
		return time.Time{}
	}
	return now.Add(max(asError(err).RetryAfter, leastPoll))
}

// logFailure logs the first failure of a kind, and then each time that the number has doubled.
func (a *actor) logFailure(e *ociapi.Error, n int) {
	if e.Class == ociapi.Busy || e.Class == ociapi.Stale || n&(n-1) != 0 {
		return
	}
	a.log.Warn("Request to OCI failed, retrying", zap.Int("failures", n), zap.Error(e))
}

// authProblem explains a 401.
func authProblem(e *ociapi.Error) string {
	const maxSkew = 4 * time.Minute // the service permits five
	if e.Skew.Abs() > maxSkew {
		return fmt.Sprintf("%s; the clock of this node differs from OCI's by %s, more than 5 minutes are refused: synchronize it", e.Error(), e.Skew.Round(time.Second))
	}
	return e.Error() + "; check the credentials"
}
