package gatewayplan

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/conditions"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// ConditionBackendsSynced is the condition of routes that says whether the backend sets of their rules have the endpoints.
const ConditionBackendsSynced = "fairlead.dev/BackendsSynced"

// Reports are what the load balancer's actor reports.
type Reports struct {
	Layout *actor.LayoutReport // nil: the load balancer was not read yet
	// Current means that the report is about the layout of the plan.
	Current bool
	Set     func(name string) *actor.Report
	Now     time.Time
}

// Status is the next status of a Gateway.
type Status struct {
	Gateway *gatewayv1.Gateway
	Status  gatewayv1.GatewayStatus
}

// RouteStatus is the next status of a route: the entries of the program for the parents on one load balancer.
type RouteStatus struct {
	Route   *gatewayv1.HTTPRoute
	Parents []gatewayv1.RouteParentStatus
}

// progressOf returns the problem of the first object that something needs and that fails. The reason is Pending if an object waits for the
// load balancer, and none fails.
func (p *Plan) progressOf(needs []lblayout.Ref, r *Reports) plan.Problem {
	waits := plan.Problem{Reason: v1alpha1.ReasonPending}
	switch {
	case len(p.Lost) > 0:
		return plan.Problem{Reason: reasonRecordLost, Message: p.lostMessage()}
	case r.Layout == nil:
		return waits
	case r.Layout.Live == nil:
		return cmp.Or(r.Layout.Problem, waits)
	case !r.Current:
		return waits
	}
	var problem plan.Problem
	for _, ref := range needs {
		state, behind := r.Layout.Behind[ref]
		switch {
		case !behind:
		case !isPending(state):
			return state
		case r.Layout.Problem.IsSet():
			return r.Layout.Problem
		default:
			problem = waits
		}
	}
	return problem
}

func isPending(p plan.Problem) bool { return p.Reason == v1alpha1.ReasonPending }

func (p *Plan) lostMessage() string {
	first := p.Lost[0]
	return fmt.Sprintf("the load balancer has %s %s, which only this program makes, and the record of the program does not list it: "+
		"the record was lost. Nothing is changed until `backendset-syncer adopt` has written a new record", first.Kind, first.Name)
}

// conditionWriter computes the conditions of one object.
type conditionWriter struct {
	generation int64
	before     []metav1.Condition
	now        time.Time
	after      []metav1.Condition
}

// setCondition sets a condition.
func setCondition[K, R ~string](w *conditionWriter, kind K, status metav1.ConditionStatus, reason R, message string) {
	next := metav1.Condition{
		Type: string(kind), Status: status, Reason: string(reason), Message: message, ObservedGeneration: w.generation,
	}
	w.after = append(w.after, conditions.Set(meta.FindStatusCondition(w.before, next.Type), next, w.now))
}

// setResult sets a condition to False for a problem, and to True without one.
func setResult[K, R ~string](w *conditionWriter, kind K, problem plan.Problem, reason R, message string) {
	if problem.IsSet() {
		setCondition(w, kind, metav1.ConditionFalse, problem.Reason, problem.Message)
	} else {
		setCondition(w, kind, metav1.ConditionTrue, reason, message)
	}
}

// keepCondition leaves a condition as it is, and reports whether there is one.
func keepCondition[K ~string](w *conditionWriter, kind K) bool {
	c := meta.FindStatusCondition(w.before, string(kind))
	if c != nil {
		w.after = append(w.after, *c)
	}
	return c != nil
}

// GatewayStatuses returns the statuses of the Gateways.
func (p *Plan) GatewayStatuses(r *Reports) []Status {
	statuses := make([]Status, 0, len(p.Gateways))
	for _, g := range p.Gateways {
		statuses = append(statuses, Status{Gateway: g.Gateway, Status: p.gatewayStatus(g, r)})
	}
	return statuses
}

func (p *Plan) gatewayStatus(g *ResolvedGateway, r *Reports) gatewayv1.GatewayStatus {
	next := *g.Status.DeepCopy()
	next.Addresses, next.Listeners = addressesOf(r, next.Addresses), nil
	valid, total := 0, 0
	var worst plan.Problem
	for _, l := range p.Listeners {
		if l.gateway != g {
			continue
		}
		total++
		next.Listeners = append(next.Listeners, p.listenerStatus(l, r))
		if !l.isValid() {
			continue
		}
		valid++
		if problem := p.listenerProgress(l, r); !worst.IsSet() || isPending(worst) && problem.IsSet() {
			worst = problem
		}
	}
	w := &conditionWriter{generation: g.Generation, before: slices.DeleteFunc(slices.Clone(g.Status.Conditions), isDefault), now: r.Now}
	w.gatewayAccepted(valid, total)
	switch {
	case valid == 0:
		setCondition(w, gatewayv1.GatewayConditionProgrammed, metav1.ConditionFalse, gatewayv1.GatewayReasonInvalid,
			"no listener is valid: see the conditions of the listeners")
	case !isPending(worst):
		setResult(w, gatewayv1.GatewayConditionProgrammed, worst, gatewayv1.GatewayReasonProgrammed, "the load balancer has all listeners")
	case !keepCondition(w, gatewayv1.GatewayConditionProgrammed):
		setCondition(w, gatewayv1.GatewayConditionProgrammed, metav1.ConditionFalse, gatewayv1.GatewayReasonPending,
			"the listeners wait for the load balancer")
	}
	next.Conditions = append(foreignConditions(g.Status.Conditions, w.after), w.after...)
	return next
}

// isDefault reports whether a condition is one that the CRD gives to new Gateways.
func isDefault(c metav1.Condition) bool { return c.Status == metav1.ConditionUnknown }

// gatewayAccepted sets the condition Accepted.
func (w *conditionWriter) gatewayAccepted(valid, total int) {
	switch {
	case valid == 0:
		setCondition(w, gatewayv1.GatewayConditionAccepted, metav1.ConditionFalse, gatewayv1.GatewayReasonListenersNotValid,
			"no listener is valid: see the conditions of the listeners")
	case valid < total:
		setCondition(w, gatewayv1.GatewayConditionAccepted, metav1.ConditionTrue, gatewayv1.GatewayReasonListenersNotValid,
			fmt.Sprintf("%d of %d listeners are valid: see the conditions of the listeners", valid, total))
	default:
		setCondition(w, gatewayv1.GatewayConditionAccepted, metav1.ConditionTrue, gatewayv1.GatewayReasonAccepted,
			"the load balancer is programmed by this Gateway")
	}
}

// foreignConditions returns the conditions of types that the program does not set.
func foreignConditions(before, own []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(before), func(c metav1.Condition) bool {
		return slices.ContainsFunc(own, func(o metav1.Condition) bool { return o.Type == c.Type })
	})
}

func addressesOf(r *Reports, before []gatewayv1.GatewayStatusAddress) []gatewayv1.GatewayStatusAddress {
	if r.Layout == nil || r.Layout.LoadBalancer == nil {
		return before
	}
	kind := gatewayv1.IPAddressType
	addresses := []gatewayv1.GatewayStatusAddress{}
	for _, a := range r.Layout.LoadBalancer.Addresses {
		addresses = append(addresses, gatewayv1.GatewayStatusAddress{Type: &kind, Value: a})
	}
	return addresses
}

// listenerProgress returns the problem of a listener on the load balancer. A listener that keeps an old certificate is programmed.
func (p *Plan) listenerProgress(l *Listener, r *Reports) plan.Problem {
	if l.name == "" {
		return plan.NewProblem(gatewayv1.ListenerReasonInvalid, "%s", cmp.Or(l.resolved.Message, "the listener is not valid"))
	}
	return p.progressOf(l.needs, r)
}

func (p *Plan) listenerStatus(l *Listener, r *Reports) gatewayv1.ListenerStatus {
	s := gatewayv1.ListenerStatus{Name: l.Name, SupportedKinds: l.kinds, AttachedRoutes: l.attached}
	w := &conditionWriter{generation: l.gateway.Generation, now: r.Now}
	for i := range l.gateway.Status.Listeners {
		if l.gateway.Status.Listeners[i].Name == l.Name {
			w.before = l.gateway.Status.Listeners[i].Conditions
		}
	}
	setResult(w, gatewayv1.ListenerConditionAccepted, cmp.Or(l.accepted, l.conflicted), gatewayv1.ListenerReasonAccepted,
		"the listener is valid")
	if !l.accepted.IsSet() && l.conflicted.IsSet() {
		setCondition(w, gatewayv1.ListenerConditionConflicted, metav1.ConditionTrue, l.conflicted.Reason, l.conflicted.Message)
	} else {
		setCondition(w, gatewayv1.ListenerConditionConflicted, metav1.ConditionFalse, gatewayv1.ListenerReasonNoConflicts, "")
	}
	setResult(w, gatewayv1.ListenerConditionResolvedRefs, l.resolved, gatewayv1.ListenerReasonResolvedRefs, "all references are resolved")
	switch problem := p.listenerProgress(l, r); {
	case !l.isValid():
		setCondition(w, gatewayv1.ListenerConditionProgrammed, metav1.ConditionFalse, gatewayv1.ListenerReasonInvalid,
			"the listener is not valid: see its other conditions")
	case !isPending(problem):
		setResult(w, gatewayv1.ListenerConditionProgrammed, problem, gatewayv1.ListenerReasonProgrammed,
			"the load balancer has the listener")
	case !keepCondition(w, gatewayv1.ListenerConditionProgrammed):
		setCondition(w, gatewayv1.ListenerConditionProgrammed, metav1.ConditionFalse, gatewayv1.ListenerReasonPending,
			"the listener waits for the load balancer")
	}
	s.Conditions = w.after
	return s
}

// RouteStatuses returns the statuses of the routes.
func (p *Plan) RouteStatuses(r *Reports) []RouteStatus {
	statuses := make([]RouteStatus, 0, len(p.Routes))
	for _, route := range p.Routes {
		s := RouteStatus{Route: route.HTTPRoute}
		for _, parent := range route.parents {
			s.Parents = append(s.Parents, p.parentStatus(route, parent, r))
		}
		statuses = append(statuses, s)
	}
	return statuses
}

func (p *Plan) parentStatus(route *Route, parent *Parent, r *Reports) gatewayv1.RouteParentStatus {
	s := gatewayv1.RouteParentStatus{ParentRef: parent.ref, ControllerName: gatewayv1.GatewayController(parent.gateway.Controller)}
	var before []metav1.Condition
	if i := indexOfParent(route.Status.Parents, &s); i >= 0 {
		before = route.Status.Parents[i].Conditions
	}
	w := &conditionWriter{generation: route.Generation, before: before, now: r.Now}
	programmed := !slices.ContainsFunc(parent.listeners, func(l *Listener) bool { return p.listenerProgress(l, r).IsSet() })
	a := &parent.acceptance
	switch {
	case !a.Accepted:
		setCondition(w, gatewayv1.RouteConditionAccepted, metav1.ConditionFalse, a.Reason, a.Message)
	case programmed:
		setCondition(w, gatewayv1.RouteConditionAccepted, metav1.ConditionTrue, a.Reason, a.Message)
	case !keepCondition(w, gatewayv1.RouteConditionAccepted):
		setCondition(w, gatewayv1.RouteConditionAccepted, metav1.ConditionUnknown, gatewayv1.RouteReasonPending, rulesWait)
	}
	if a.Dropped != "" {
		setCondition(w, gatewayv1.RouteConditionPartiallyInvalid, metav1.ConditionTrue, gatewayv1.RouteReasonUnsupportedValue, a.Dropped)
	}
	if route.resolved.IsSet() || programmed || !a.Accepted || !keepCondition(w, gatewayv1.RouteConditionResolvedRefs) {
		setResult(w, gatewayv1.RouteConditionResolvedRefs, route.resolved, gatewayv1.RouteReasonResolvedRefs, "all references are resolved")
	}
	if a.Accepted {
		problem, active := p.backendsSynced(route, parent, r)
		setResult(w, ConditionBackendsSynced, problem, v1alpha1.ReasonSynced,
			fmt.Sprintf("%d backend sets with %d active backends", len(route.sets), active))
	}
	s.Conditions = w.after
	return s
}

// rulesWait is the message of a route that the load balancer does not serve yet.
const rulesWait = "the rules of the route wait for the load balancer"

// backendsSynced returns the problem of the backend sets of a route, and the number of active backends without one.
func (p *Plan) backendsSynced(route *Route, parent *Parent, r *Reports) (problem plan.Problem, active int) {
	for _, l := range parent.listeners {
		if problem = p.listenerProgress(l, r); isPending(problem) {
			problem.Message = rulesWait
		}
		if problem.IsSet() {
			return problem, 0
		}
	}
	for _, name := range slices.Sorted(maps.Keys(route.sets)) {
		report := r.Set(name)
		switch own := p.Sets[name]; {
		case own != nil && own.Problem.IsSet():
			return own.Problem, 0
		case report == nil:
			return plan.NewProblem(v1alpha1.ReasonPending, "backend set %s waits for the load balancer", name), 0
		case !report.Synced:
			return plan.NewProblem(report.Reason, "backend set %s: %s", name, report.Message), 0
		default:
			active += report.Active
		}
	}
	return plan.Problem{}, active
}

// indexOfParent returns the index of the entry with the parent and controller of another one, -1 without one.
func indexOfParent(parents []gatewayv1.RouteParentStatus, s *gatewayv1.RouteParentStatus) int {
	return slices.IndexFunc(parents, func(x gatewayv1.RouteParentStatus) bool {
		return x.ControllerName == s.ControllerName && reflect.DeepEqual(x.ParentRef, s.ParentRef)
	})
}

// UnprogrammableStatus returns the status of a Gateway that has no load balancer.
func UnprogrammableStatus(u *UnprogrammableGateway, now time.Time) gatewayv1.GatewayStatus {
	next := *u.Status.DeepCopy()
	w := &conditionWriter{generation: u.Generation, before: u.Status.Conditions, now: now}
	setCondition(w, gatewayv1.GatewayConditionAccepted, metav1.ConditionFalse, u.Problem.Reason, u.Problem.Message)
	message := "the Gateway is not accepted"
	if strings.TrimSpace(u.Problem.Message) != "" {
		message += ": " + u.Problem.Message
	}
	setCondition(w, gatewayv1.GatewayConditionProgrammed, metav1.ConditionFalse, gatewayv1.GatewayReasonInvalid, message)
	next.Conditions = append(foreignConditions(u.Status.Conditions, w.after), w.after...)
	return next
}

// ClassStatus returns the status of a GatewayClass.
func ClassStatus(c *gatewayv1.GatewayClass, problem plan.Problem, now time.Time) gatewayv1.GatewayClassStatus {
	next := *c.Status.DeepCopy()
	w := &conditionWriter{generation: c.Generation, before: c.Status.Conditions, now: now}
	setResult(w, gatewayv1.GatewayClassConditionStatusAccepted, problem, gatewayv1.GatewayClassReasonAccepted,
		"backendset-syncer programs Gateways of this class")
	next.Conditions = append(foreignConditions(c.Status.Conditions, w.after), w.after...)
	return next
}
