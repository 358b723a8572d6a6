package actor

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// failureCount counts the failures of requests since the last success. Reads that succeed say nothing about writes.
type failureCount struct {
	failures map[ociapi.Class]int
	problem  plan.Problem
}

func (f *failureCount) reset() { f.failures, f.problem = nil, plan.Problem{} }

func (f *failureCount) increment(c ociapi.Class) int {
	if f.failures == nil {
		f.failures = map[ociapi.Class]int{}
	}
	f.failures[c]++
	return f.failures[c]
}

// handleRefusal handles an error of a write.
func (a *actor) handleRefusal(ctx context.Context, w *write, err error) {
	e, s := ociapi.AsError(err), w.attempts
	now := a.p.Clock.Now()
	switch e.Class {
	case ociapi.TokenUsed, ociapi.Exists:
		s.tokenNumber++
		s.refusals++
		s.retryAt = now.Add(afterStale.delayAfter(s.refusals, a.p.Jitter()))
		a.p.Observer.CountConflict(e.Code)
		a.loadBalancerStale = true
	case ociapi.NotFound:
		s.refusals++
		s.retryAt = now.Add(afterFailedWork.delayAfter(s.refusals, a.p.Jitter()))
		a.loadBalancerStale = true
	case ociapi.LimitExceeded, ociapi.Refused:
		s.refusals++
		s.tokenNumber++
		s.retryAt = now.Add(afterRefused.delayAfter(s.refusals, a.p.Jitter()))
		s.problem = plan.Problem{Reason: v1alpha1.ReasonRequestRefused, Message: e.Error()}
		if e.Class == ociapi.LimitExceeded {
			s.problem.Reason = v1alpha1.ReasonCapacityExceeded
		}
		a.log.Warn("OCI refused a write", zap.String(logging.KeyName, w.name), zap.String(logging.KeyOperation, w.Operation()),
			zap.Error(e))
	default:
		a.handleFailure(ctx, &a.writes, e)
	}
}

// handleFailure handles an error that concerns the whole load balancer.
func (a *actor) handleFailure(ctx context.Context, failures *failureCount, err error) {
	if ctx.Err() != nil {
		return
	}
	e := ociapi.AsError(err)
	n, now, jitter := failures.increment(e.Class), a.p.Clock.Now(), a.p.Jitter()
	switch e.Class {
	case ociapi.Busy:
		a.p.Observer.CountConflict(e.Code)
		a.waiting, a.pause = "waits for the load balancer, which is busy: "+e.Error(), now.Add(afterBusy.delayAfter(n, jitter))
	case ociapi.Stale:
		a.p.Observer.CountConflict(e.Code)
		a.workRequestsUnknown, a.loadBalancerStale = true, true
		if a.waiting = "reads changes of another client"; n > 1 {
			a.pause = now.Add(afterStale.delayAfter(n-1, jitter))
		}
	case ociapi.Throttled:
		failures.problem = plan.NewProblem(v1alpha1.ReasonRateLimited, "%v; the program sends fewer requests and retries", e)
		a.pause = now.Add(max(e.RetryAfter, afterThrottled.delayAfter(n, jitter)))
	case ociapi.Unauthenticated:
		failures.problem = plan.Problem{Reason: v1alpha1.ReasonAuthFailed, Message: authProblem(e)}
		a.pause = now.Add(afterNoAccess.delayAfter(n, jitter))
	case ociapi.NotFound:
		failures.problem = plan.NewProblem(v1alpha1.ReasonLoadBalancerUnavailable,
			"%v; check the OCID, the region, and the IAM policies of the credentials", e)
		a.workRequestsUnknown, a.loadBalancerStale = true, true
		a.pause = now.Add(afterNotFound.delayAfter(n, jitter))
	default: // a failing service, or none that answers: a write may have had its effect
		a.workRequestsUnknown, a.loadBalancerStale = true, true
		a.pause = now.Add(afterOutage.delayAfter(n, jitter))
		if a.waiting = "retries: " + e.Error(); n > 1 {
			failures.problem = plan.NewProblem(v1alpha1.ReasonLoadBalancerUnavailable, "%v; the load balancer keeps its backends", e)
		}
	}
	a.logFailure(e, n)
}

// deferredUntil returns when a request of low priority that was not sent may be, zero if it was sent.
func deferredUntil(err error, now time.Time) time.Time {
	if err == nil || ociapi.AsError(err).Class != ociapi.Deferred {
		return time.Time{}
	}
	return now.Add(max(ociapi.AsError(err).RetryAfter, minPollInterval))
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
		return fmt.Sprintf("%s; the clock of this node differs from OCI's by %s, more than 5 minutes are refused: "+
			"synchronize it", e.Error(),
			e.Skew.Round(time.Second))
	}
	return e.Error() + "; check the credentials"
}
