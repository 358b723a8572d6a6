package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/apply"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
	"fairlead.dev/services/nodepool-ingress/internal/profile"
	"fairlead.dev/services/nodepool-ingress/internal/status"
)

// pass is one reconcile of one YurtIngress.
type pass struct {
	reconciler *Reconciler

	object *v1alpha1.YurtIngress
	state  *writeState
	plan   *plan.Plan
	live   []plan.Object
	image  string // of pools without an image of their own

	failure       *plan.Problem // of the YurtIngress itself
	pools         []status.Pool
	requeueDelay  time.Duration // when to reconcile again; 0: on the next event
	requeueReason string        // reported with requeueDelay
	errs          []error
}

// errDeleting means that an object must go before it can be created again.
var errDeleting = errors.New("the object is being deleted")

// addFinalizer adds the finalizer. The event of its write enqueues the object again.
func (p *pass) addFinalizer(ctx context.Context) error {
	err := p.reconciler.Writer.SetFinalizers(ctx, p.object, withFinalizer(p.object))
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return err
	}
	err = fmt.Errorf("add finalizer to YurtIngress %s: %w", p.object.Name, err)
	p.failure = failureOf(err)
	for i := range p.plan.Pools {
		p.pools = append(p.pools, status.Pool{Plan: &p.plan.Pools[i], Readiness: p.plan.Pools[i].Before})
	}
	return errors.Join(err, p.reconciler.reportStatus(ctx, p.object, p.buildStatus()))
}

// applyPools applies the pools that change now. A pool that cannot be written does not delay others, except those that wait in a roll-out:
// a roll-out stops at a pool that cannot be written. Pools that already have the wanted revision are therefore applied first.
func (p *pass) applyPools(ctx context.Context) {
	results := make([]status.Pool, len(p.plan.Pools))
	var waiting []int
	failed := "" // a pool of the roll-out
	for i := range p.plan.Pools {
		pool := &p.plan.Pools[i]
		results[i] = status.Pool{
			Plan: pool, Readiness: pool.Before,
			Addresses: addressesOf(plan.FindObject(p.live, plan.Key{Resource: plan.Services, Name: pool.Service})),
		}
		switch {
		case !pool.CanChange():
		case pool.Before.Exists && !pool.IsCurrent():
			waiting = append(waiting, i)
		default:
			p.applyPool(ctx, pool, &results[i])
			if failed == "" && pool.Before.Exists && results[i].Failure != nil {
				failed = pool.Name
			}
		}
	}
	for _, i := range waiting {
		if failed != "" {
			p.plan.Pools[i].StopRollout(failed)
			continue
		}
		if p.applyPool(ctx, &p.plan.Pools[i], &results[i]); results[i].Failure != nil {
			failed = p.plan.Pools[i].Name
		}
	}
	p.pools = append(p.pools, results...)
}

// applyPool applies the objects of a pool in their order, and deletes the objects that are no longer wanted.
func (p *pass) applyPool(ctx context.Context, pool *plan.Pool, result *status.Pool) {
	for i := range pool.Wanted {
		wanted := &pool.Wanted[i]
		stored, err := p.applyObject(ctx, wanted)
		if err != nil {
			result.Failure = p.recordFailure(wanted, err)
			return
		}
		if wanted.Resource == plan.Deployments && wanted.Object.GetName() == pool.Workload {
			result.Readiness = plan.EvaluateReadiness(stored)
		}
		if wanted.Resource == plan.Services && wanted.Object.GetName() == pool.Service {
			result.Addresses = addressesOf(stored)
		}
	}
	if err := errors.Join(p.reconciler.deleteObjects(ctx, p.object.UID, pool.Stale)...); err != nil {
		result.Failure = failureOf(err)
		p.errs = append(p.errs, err)
	}
}

// applyObject applies one object, and returns it as it is stored.
func (p *pass) applyObject(ctx context.Context, wanted *plan.Object) (*unstructured.Unstructured, error) {
	live := plan.FindObject(p.live, wanted.Key())
	if c, found := p.state.contested[wanted.Key()]; found && c.generation == p.object.Generation &&
		p.reconciler.Clock.Now().Before(c.until) {
		p.requestRequeue(c.until.Sub(p.reconciler.Clock.Now()), "an admission webhook changes an object")
		return nil, c.err
	}
	switch {
	case live != nil && live.GetDeletionTimestamp() != nil:
		return nil, errDeleting
	case plan.MustReplace(wanted, live):
		if err := errors.Join(p.reconciler.deleteObjects(ctx, p.object.UID, []plan.Object{
			{Resource: wanted.Resource, Object: live},
		})...); err != nil {
			return nil, err
		}
		live = nil
	}
	stored, result, err := p.reconciler.Applier.Apply(ctx, wanted.Resource, wanted.Object, live)
	p.recordContest(wanted.Key(), err)
	if err != nil {
		return nil, err
	}
	if result != apply.Unchanged {
		p.reconciler.Metrics.CountWrite(wanted.Resource.Resource, string(result))
		logging.FromContext(ctx).Info("Wrote object", zap.String(logging.KeyResource, wanted.Resource.Resource),
			zap.String("object", wanted.Object.GetName()), zap.String("result", string(result)))
	}
	return stored, nil
}

// recordContest records whether the result of an apply is that an object is contested, and when to try again.
func (p *pass) recordContest(key plan.Key, err error) {
	if apierrors.IsConflict(err) { // says nothing about a webhook
		return
	}
	if !errors.Is(err, apply.ErrContested) {
		delete(p.state.contested, key)
		return
	}
	delay := minContestDelay
	if before, found := p.state.contested[key]; found && before.generation == p.object.Generation {
		delay = min(2*before.delay, recheckInterval)
	}
	if p.state.contested == nil {
		p.state.contested = map[plan.Key]contest{}
	}
	p.state.contested[key] = contest{generation: p.object.Generation, err: err, delay: delay, until: p.reconciler.Clock.Now().Add(delay)}
	p.reconciler.Metrics.CountWrite(key.Resource.Resource, "failed")
	p.requestRequeue(delay, "an admission webhook changes an object")
}

// recordFailure records that an object could not be applied, and returns the problem that users see.
func (p *pass) recordFailure(wanted *plan.Object, err error) *plan.Problem {
	kind, name := wanted.Object.GetKind(), wanted.Object.GetName()
	if errors.Is(err, errDeleting) {
		p.requestRequeue(recheckInterval, "the event of a deletion comes first")
		return profile.NewProblem(v1alpha1.ReasonRemoving, "%s %s is being deleted, and will be created again", kind, name)
	}
	if errors.Is(err, apply.ErrForeign) {
		p.requestRequeue(recheckInterval, "an object of another owner sends no event")
		return profile.NewProblem(v1alpha1.ReasonNameConflict, "%s %s exists and has another owner: delete or rename it", kind, name)
	}
	if errors.Is(err, apply.ErrContested) {
		return failureOf(err)
	}
	if apierrors.IsInvalid(err) { // a mistake of a user, such as a port that another Service has
		p.requestRequeue(recheckInterval, "the API server refuses an object")
		return failureOf(err)
	}
	p.errs = append(p.errs, err)
	if !apierrors.IsConflict(err) {
		p.reconciler.Metrics.CountWrite(wanted.Resource.Resource, "failed")
	}
	return failureOf(err)
}

// deleteRemovedPools deletes the objects of pools that are no longer in the specification.
func (p *pass) deleteRemovedPools(ctx context.Context) {
	for i := range p.plan.Removed {
		r := &p.plan.Removed[i]
		result := status.Pool{Removing: r.Name}
		if err := errors.Join(p.reconciler.deleteObjects(ctx, p.object.UID, r.Objects)...); err != nil {
			result.Failure = failureOf(err)
			p.errs = append(p.errs, err)
		}
		if !slices.ContainsFunc(p.plan.Pools, func(listed plan.Pool) bool { return listed.Name == r.Name }) {
			p.pools = append(p.pools, result)
		}
	}
}

// requestRequeue requests another reconcile after the given time at the latest.
func (p *pass) requestRequeue(delay time.Duration, reason string) {
	if p.requeueDelay == 0 || delay < p.requeueDelay {
		p.requeueDelay, p.requeueReason = delay, reason
	}
}

func (p *pass) buildStatus() v1alpha1.YurtIngressStatus {
	return status.Build(&status.Input{
		Object: p.object, Settings: p.plan.Settings, Image: p.image, Pools: p.pools, Failure: p.failure, Now: p.reconciler.Clock.Now(),
	})
}

// reconcileError returns the result of Reconcile.
func (p *pass) reconcileError() error {
	if p.requeueDelay > 0 {
		p.errs = append(p.errs, controller.RequeueAfter(p.requeueDelay, p.requeueReason))
	}
	return errors.Join(p.errs...)
}

// addressesOf returns the addresses of a Service, which may be nil.
func addressesOf(u *unstructured.Unstructured) []string {
	if u == nil {
		return nil
	}
	var s corev1.Service
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s) != nil {
		return nil
	}
	addresses := s.Spec.ExternalIPs
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			addresses = append(addresses, ingress.IP)
		}
		if ingress.Hostname != "" {
			addresses = append(addresses, ingress.Hostname)
		}
	}
	return addresses
}
