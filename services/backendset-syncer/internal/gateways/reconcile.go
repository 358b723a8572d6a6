// Package gateways reconciles load balancers with Gateways: it plans each one as a whole, records what it will own, tells the
// load balancer's actor, and writes the actor's reports to the statuses of Gateways and routes.
//
//	resolve   the Gateways of the program, and their load balancers
//	read      the record; a load balancer without a record, but with objects that only this program makes, stays as it is
//	plan      everything is computed from the snapshot: no step depends on which object has changed
//	record    the names of new objects are written before the actor creates them
//	want      backend sets first, so that new ones begin with their endpoints, then the layout
//	status    conditions, written only if they differ
//
// The queue has a key for each load balancer, and one for what belongs to none: classes, Gateways without a load balancer, and entries of
// routes whose Gateway is gone.
package gateways

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan/weights"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/notify"
)

// sweepKey is the key of what belongs to no load balancer. No OCID is equal.
const sweepKey = "*"

// unreadyInterval is the interval of attempts until all kinds are listed.
const unreadyInterval = 5 * time.Second

// statuses writes statuses, if they differ.
type statuses interface {
	WriteClass(ctx context.Context, c *gatewayv1.GatewayClass, next gatewayv1.GatewayClassStatus) error
	WriteGateway(ctx context.Context, g *gatewayv1.Gateway, next gatewayv1.GatewayStatus) error
	WriteRoute(ctx context.Context, r *gatewayv1.HTTPRoute, parents []gatewayv1.RouteParentStatus) error
	RemoveFinalizer(ctx context.Context, r *gatewayv1.HTTPRoute, finalizer string) error
}

// Params holds the arguments of New.
type Params struct {
	Planner *gatewayplan.Planner
	Caches  informers.Caches
	Actors  *actor.Actors
	Records *lbrecord.Store
	Writer  statuses
	// Recorder gets Events about problems, and Meter the numbers of objects.
	Recorder notify.Recorder
	Meter    meter
	Enqueue  func(cache.ObjectName)
	Clock    clock.PassiveClock
	// WakePod is called for a pod that waits for its readiness gate, when the state of one of its backend sets may have changed. It is nil
	// without readiness gates.
	WakePod func(cache.ObjectName)
	// Namespace is the namespace of the records.
	Namespace string
	// OKE removes the finalizer of oke-gateway-api from routes.
	OKE bool
}

// Reconciler reconciles load balancers.
type Reconciler struct {
	p Params

	mu    sync.Mutex
	known map[string]*balancerState // by OCID
	// swept means that the load balancers of all Gateways are known. unplanned are the load balancers that were not planned yet.
	swept     bool
	unplanned map[string]bool
}

// balancerState is what is remembered of a load balancer.
type balancerState struct {
	services, pools map[cache.ObjectName]bool // that its routes refer to
	sets            map[string]bool           // that its actor writes
	weights         map[string]weights.Choice
	endpoints       map[netip.AddrPort][]string // backend sets by endpoint, for readiness gates
	since           time.Time                   // of the first event about endpoints that was not reconciled
}

// New returns a Reconciler.
func New(p Params) *Reconciler {
	return &Reconciler{p: p, known: map[string]*balancerState{}, unplanned: map[string]bool{}}
}

// ClearTerm forgets the state of a term.
func (r *Reconciler) ClearTerm() {
	r.p.Records.ClearCache()
	r.p.Meter.ClearGateways()
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.known)
	clear(r.unplanned)
	r.swept = false
}

// ReconcileAll enqueues all load balancers.
func (r *Reconciler) ReconcileAll() {
	r.p.Enqueue(cache.ObjectName{Name: sweepKey})
	for _, id := range r.balancerIDs() {
		r.p.Enqueue(cache.ObjectName{Name: id})
	}
}

// balancerIDs returns the load balancers that are known, or have a record.
func (r *Reconciler) balancerIDs() []string {
	ids := map[string]bool{}
	r.mu.Lock()
	for id := range r.known {
		ids[id] = true
	}
	r.mu.Unlock()
	for _, c := range informers.ListAll[corev1.ConfigMap](r.p.Caches.ConfigMaps) {
		if id, ok := r.recordOf(c); ok {
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// Reconcile implements controller.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, name cache.ObjectName) error {
	switch {
	case r.p.Planner.IsReady():
	case name.Name == sweepKey: // kinds that are installed later, or listed without objects, send no event
		return controller.RequeueAfter(unreadyInterval, "not all kinds are listed")
	default: // nothing may be taken for deleted
		return nil
	}
	resolution := r.p.Planner.ResolveGateways()
	if name.Name == sweepKey {
		return r.sweepCluster(ctx, resolution)
	}
	return r.reconcileBalancer(ctx, resolution, name.Name)
}

// reconcileBalancer reconciles a load balancer.
func (r *Reconciler) reconcileBalancer(ctx context.Context, resolution *gatewayplan.Resolution, id string) error {
	rec, err := r.p.Records.Read(ctx, id)
	switch {
	case err != nil && !errors.Is(err, lbrecord.ErrMissing):
		return err // it names the record
	case rec == nil && len(resolution.Balancers[id]) == 0:
		r.forgetBalancer(id)
		return nil
	}
	report, current := r.p.Actors.LayoutReport(id)
	plan := r.planBalancer(resolution, id, rec, withoutGone(report, current))
	defer r.wakePods(plan)
	if report == nil || report.Live == nil || len(plan.Lost) > 0 {
		r.dropSets(id, nil)
		r.p.Actors.WantLayout(id, &actor.WantedLayout{})
		return r.writeStatuses(ctx, plan, report, false)
	}
	done, err := r.writeRecord(ctx, rec, plan)
	if done || err != nil {
		return err
	}
	r.wantPlan(plan)
	report, current = r.p.Actors.LayoutReport(id)
	return errors.Join(r.writeStatuses(ctx, plan, report, current), r.releaseFinalizers(ctx, plan, report, current))
}

// withoutGone returns a report without the objects that are gone, unless it is about the newest layout: an earlier one may have wanted to
// delete what is wanted again.
func withoutGone(report *actor.LayoutReport, current bool) *actor.LayoutReport { //nolint:revive // the flag is part of the report
	if report == nil || current {
		return report
	}
	old := *report
	old.Gone = nil
	return &old
}

// planBalancer plans a load balancer.
func (r *Reconciler) planBalancer(
	resolution *gatewayplan.Resolution, id string, rec *lbrecord.Record, report *actor.LayoutReport,
) *gatewayplan.Plan {
	in := resolution.NewInput(id)
	in.Record, in.Live, in.Now = rec, &lblayout.Live{}, r.p.Clock.Now()
	if report != nil && report.Live != nil {
		in.Live, in.Gone = report.Live, report.Gone
	}
	r.mu.Lock()
	b := r.known[id]
	if b == nil {
		b = &balancerState{sets: map[string]bool{}}
		r.known[id] = b
	}
	in.Weights = b.weights
	r.mu.Unlock()
	plan := r.p.Planner.BuildPlan(resolution, in)
	r.mu.Lock()
	defer r.mu.Unlock()
	b.services, b.pools, b.weights, b.endpoints = plan.Services, plan.Pools, map[string]weights.Choice{}, r.endpointsOf(plan)
	delete(r.unplanned, id)
	for _, s := range plan.Sets {
		b.weights[s.Key] = s.WeightChoice
	}
	return plan
}

// writeRecord writes the record, if it differs. It reports whether nothing is left of the load balancer.
func (r *Reconciler) writeRecord(ctx context.Context, before *lbrecord.Record, plan *gatewayplan.Plan) (done bool, err error) {
	if len(plan.Record.Objects) == 0 && len(plan.Gateways) == 0 && len(plan.Record.Gateways) == 0 {
		if before != nil {
			if err := r.p.Records.Delete(ctx, plan.LoadBalancer); err != nil {
				return false, err // it names the record
			}
			logging.FromContext(ctx).Info("Deleted record", zap.String(logging.KeyLoadBalancer, plan.LoadBalancer))
		}
		r.forgetBalancer(plan.LoadBalancer)
		return true, nil
	}
	if before != nil && before.Encode() == plan.Record.Encode() {
		return false, nil
	}
	if err := r.p.Records.Write(ctx, plan.Record); err != nil {
		return false, err // it names the record
	}
	logging.FromContext(ctx).Info("Updated record", zap.String(logging.KeyLoadBalancer, plan.LoadBalancer),
		zap.Int("objects", len(plan.Record.Objects)))
	return false, nil
}

// wantPlan tells the actor of a load balancer what it should have.
func (r *Reconciler) wantPlan(plan *gatewayplan.Plan) {
	r.dropSets(plan.LoadBalancer, plan.Sets)
	r.mu.Lock()
	b := r.known[plan.LoadBalancer]
	since := b.since
	b.since = time.Time{}
	for name := range plan.Sets {
		b.sets[name] = true
	}
	r.mu.Unlock()
	for name, s := range plan.Sets {
		s.Wanted.Since = since
		r.p.Actors.WantSet(actor.Key{LoadBalancer: plan.LoadBalancer, Set: name}, s.Wanted)
	}
	r.p.Actors.WantLayout(plan.LoadBalancer, &actor.WantedLayout{Wanted: plan.Layout, Version: plan.Version})
}

// dropSets lets the actor forget the sets that a plan does not have.
func (r *Reconciler) dropSets(id string, wanted map[string]*gatewayplan.Set) {
	var dropped []string
	r.mu.Lock()
	if b := r.known[id]; b != nil {
		for name := range b.sets {
			if wanted[name] == nil {
				dropped = append(dropped, name)
				delete(b.sets, name)
			}
		}
	}
	r.mu.Unlock()
	for _, name := range dropped {
		r.p.Actors.DropSet(actor.Key{LoadBalancer: id, Set: name})
	}
}

// forgetBalancer lets the actor forget a load balancer.
func (r *Reconciler) forgetBalancer(id string) {
	r.dropSets(id, nil)
	r.p.Actors.DropLayout(id)
	r.p.Meter.ForgetGateways(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, id)
	delete(r.unplanned, id)
}

// writeStatuses writes the statuses of the Gateways and routes of a load balancer.
func (r *Reconciler) writeStatuses(ctx context.Context, plan *gatewayplan.Plan, report *actor.LayoutReport, current bool) error {
	reports := &gatewayplan.Reports{
		Layout: report, Current: current, Now: r.p.Clock.Now(),
		Set: func(name string) *actor.Report {
			return r.p.Actors.BackendSetReport(actor.Key{LoadBalancer: plan.LoadBalancer, Set: name})
		},
	}
	gateways, listeners, routes := Counts{}, Counts{}, Counts{}
	var errs []error
	for _, s := range plan.GatewayStatuses(reports) {
		countReasons(gateways, listeners, &s.Status)
		errs = append(errs, r.writeGateway(ctx, s.Gateway, &s.Status))
	}
	for _, s := range plan.RouteStatuses(reports) {
		after := gatewayplan.RouteSummary(s.Parents)
		routes[after.Reason]++
		err := r.p.Writer.WriteRoute(ctx, s.Route, gatewayplan.MergeParents(s.Route, s.Parents))
		if errs = append(errs, err); err == nil {
			r.recordChange("HTTPRoute", s.Route, gatewayplan.RouteSummary(s.PreviousParents()), after)
		}
	}
	r.p.Meter.SetGatewayCounts(plan.LoadBalancer, gateways, listeners, routes)
	return errors.Join(errs...)
}

// writeGateway writes the status of a Gateway, with an Event if a user can act on the change.
func (r *Reconciler) writeGateway(ctx context.Context, g *gatewayv1.Gateway, next *gatewayv1.GatewayStatus) error {
	if err := r.p.Writer.WriteGateway(ctx, g, *next); err != nil {
		return err // it names the Gateway
	}
	r.notifyGateway(g, next)
	return nil
}

// sweepCluster reconciles what belongs to no load balancer, and enqueues all load balancers.
func (r *Reconciler) sweepCluster(ctx context.Context, resolution *gatewayplan.Resolution) error {
	now := r.p.Clock.Now()
	r.noteUnplanned(resolution)
	for id := range resolution.Balancers {
		r.p.Enqueue(cache.ObjectName{Name: id})
	}
	for _, id := range r.balancerIDs() {
		r.p.Enqueue(cache.ObjectName{Name: id})
	}
	var errs []error
	for class, problem := range r.p.Planner.ListClasses() {
		next := gatewayplan.ClassStatus(class, problem, now)
		if err := r.p.Writer.WriteClass(ctx, class, next); err != nil {
			errs = append(errs, fmt.Errorf("GatewayClass %s: %w", class.Name, err))
			continue
		}
		r.recordChange("GatewayClass", class, gatewayplan.ClassSummary(&class.Status), gatewayplan.ClassSummary(&next))
	}
	gateways := Counts{}
	for i := range resolution.Unprogrammable {
		u := &resolution.Unprogrammable[i]
		next := gatewayplan.UnprogrammableStatus(u, now)
		gateways[gatewayplan.GatewaySummary(&next).Reason]++
		errs = append(errs, r.writeGateway(ctx, u.Gateway, &next))
	}
	r.p.Meter.SetGatewayCounts("", gateways, nil, nil)
	for route, parents := range r.p.Planner.OrphanedRoutes() {
		errs = append(errs, r.p.Writer.WriteRoute(ctx, route, parents))
	}
	return errors.Join(append(errs, r.releaseOrphans(ctx))...)
}
