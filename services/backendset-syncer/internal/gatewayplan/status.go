package gatewayplan

import (
	"cmp"
	"fmt"
	"maps"
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

// progress is how far objects of the load balancer are.
type progress int

const (
	programmed progress = iota
	pending
	failing
)

// progressOf returns how far the objects are that something needs, with the problem of the first that fails.
func (p *Plan) progressOf(needs []lblayout.Ref, r *Reports) (progress, plan.Problem) {
	switch {
	case len(p.Lost) > 0:
		return failing, plan.Problem{Reason: reasonRecordLost, Message: p.lostMessage()}
	case r.Layout == nil || r.Layout.Live == nil:
		if r.Layout != nil && r.Layout.Reason != "" {
			return failing, r.Layout.Problem
		}
		return pending, plan.Problem{}
	case !r.Current:
		return pending, plan.Problem{}
	}
	waits := false
	for _, ref := range needs {
		state, behind := r.Layout.Behind[ref]
		switch {
		case !behind:
		case state.Reason != v1alpha1.ReasonPending:
			return failing, state
		case r.Layout.Reason != "":
			return failing, r.Layout.Problem
		default:
			waits = true
		}
	}
	if waits {
		return pending, plan.Problem{}
	}
	return programmed, plan.Problem{}
}

func (p *Plan) lostMessage() string {
	first := p.Lost[0]
	return fmt.Sprintf("the load balancer has %s %s, which only this program makes, and the record of the program does not list it: "+
		"the record was lost. Nothing is changed until `backendset-syncer adopt` has written a new record", first.Kind, first.Name)
}

// writer computes the conditions of one object.
type conditionWriter struct {
	generation int64
	before     []metav1.Condition
	now        time.Time
	after      []metav1.Condition
}

// setCondition sets a condition.
func (w *conditionWriter) setCondition(kind, status, reason, message string) {
	next := metav1.Condition{
		Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message, ObservedGeneration: w.generation,
	}
	w.after = append(w.after, conditions.Set(meta.FindStatusCondition(w.before, kind), next, w.now))
}

// keepCondition leaves a condition as it is, and reports whether there is one.
func (w *conditionWriter) keepCondition(kind string) bool {
	c := meta.FindStatusCondition(w.before, kind)
	if c != nil {
		w.after = append(w.after, *c)
	}
	return c != nil
}

// Statuses of conditions.
const (
	isTrue    = string(metav1.ConditionTrue)
	isFalse   = string(metav1.ConditionFalse)
	isUnknown = string(metav1.ConditionUnknown)
)

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
	worst, problem := programmed, plan.Problem{}
	for _, l := range p.Listeners {
		if l.gateway != g {
			continue
		}
		total++
		if l.isValid() {
			valid++
		}
		next.Listeners = append(next.Listeners, p.listenerStatus(l, r))
		state, why := p.listenerProgress(l, r)
		if l.isValid() && state > worst {
			worst, problem = state, why
		}
	}
	w := &conditionWriter{generation: g.Generation, before: g.Status.Conditions, now: r.Now}
	w.gatewayAccepted(valid, total)
	kind := string(gatewayv1.GatewayConditionProgrammed)
	switch {
	case total == 0 || valid == 0:
		w.setCondition(kind, isFalse, string(gatewayv1.GatewayReasonInvalid), "no listener is valid: see the conditions of the listeners")
	case worst == failing:
		w.setCondition(kind, isFalse, problem.Reason, problem.Message)
	case worst == programmed:
		w.setCondition(kind, isTrue, string(gatewayv1.GatewayReasonProgrammed), "the load balancer has all listeners")
	case !w.keepCondition(kind) || isDefault(w.after[len(w.after)-1]):
		w.after = slices.DeleteFunc(w.after, func(c metav1.Condition) bool { return c.Type == kind })
		w.setCondition(kind, isFalse, string(gatewayv1.GatewayReasonPending), "the listeners wait for the load balancer")
	}
	next.Conditions = append(foreignConditions(g.Status.Conditions, w.after), w.after...)
	return next
}

// isDefault reports whether a condition is the one that the CRD gives to new Gateways.
func isDefault(c metav1.Condition) bool { return c.Status == metav1.ConditionUnknown }

// gatewayAccepted sets the condition Accepted.
func (w *conditionWriter) gatewayAccepted(valid, total int) {
	kind := string(gatewayv1.GatewayConditionAccepted)
	switch {
	case valid == 0:
		w.setCondition(kind, isFalse, string(gatewayv1.GatewayReasonListenersNotValid),
			"no listener is valid: see the conditions of the listeners")
	case valid < total:
		w.setCondition(kind, isTrue, string(gatewayv1.GatewayReasonListenersNotValid),
			fmt.Sprintf("%d of %d listeners are valid: see the conditions of the listeners", valid, total))
	default:
		w.setCondition(kind, isTrue, string(gatewayv1.GatewayReasonAccepted), "the load balancer is programmed by this Gateway")
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

// listenerProgress returns how far a listener is. A listener that keeps an old certificate is programmed.
func (p *Plan) listenerProgress(l *Listener, r *Reports) (progress, plan.Problem) {
	if l.name == "" {
		return failing, plan.Problem{Reason: string(gatewayv1.ListenerReasonInvalid), Message: cmp.Or(l.resolved.Message, "the listener is not valid")}
	}
	return p.progressOf(l.needs, r)
}

func (p *Plan) listenerStatus(l *Listener, r *Reports) gatewayv1.ListenerStatus {
	s := gatewayv1.ListenerStatus{Name: l.Name, SupportedKinds: l.kinds, AttachedRoutes: l.attached}
	var before []metav1.Condition
	for i := range l.gateway.Status.Listeners {
		if l.gateway.Status.Listeners[i].Name == l.Name {
			before = l.gateway.Status.Listeners[i].Conditions
		}
	}
	w := &conditionWriter{generation: l.gateway.Generation, before: before, now: r.Now}
	accepted, conflicted := string(gatewayv1.ListenerConditionAccepted), string(gatewayv1.ListenerConditionConflicted)
	switch {
	case l.accepted.IsSet():
		w.setCondition(accepted, isFalse, l.accepted.Reason, l.accepted.Message)
		w.setCondition(conflicted, isFalse, string(gatewayv1.ListenerReasonNoConflicts), "")
	case l.conflicted.IsSet():
		w.setCondition(accepted, isFalse, l.conflicted.Reason, l.conflicted.Message)
		w.setCondition(conflicted, isTrue, l.conflicted.Reason, l.conflicted.Message)
	default:
		w.setCondition(accepted, isTrue, string(gatewayv1.ListenerReasonAccepted), "the listener is valid")
		w.setCondition(conflicted, isFalse, string(gatewayv1.ListenerReasonNoConflicts), "")
	}
	resolved := string(gatewayv1.ListenerConditionResolvedRefs)
	if l.resolved.IsSet() {
		w.setCondition(resolved, isFalse, l.resolved.Reason, l.resolved.Message)
	} else {
		w.setCondition(resolved, isTrue, string(gatewayv1.ListenerReasonResolvedRefs), "all references are resolved")
	}
	kind := string(gatewayv1.ListenerConditionProgrammed)
	switch state, problem := p.listenerProgress(l, r); {
	case !l.isValid():
		w.setCondition(kind, isFalse, string(gatewayv1.ListenerReasonInvalid), "the listener is not valid: see its other conditions")
	case state == failing:
		w.setCondition(kind, isFalse, problem.Reason, problem.Message)
	case state == programmed:
		w.setCondition(kind, isTrue, string(gatewayv1.ListenerReasonProgrammed), "the load balancer has the listener")
	case !w.keepCondition(kind):
		w.setCondition(kind, isFalse, string(gatewayv1.ListenerReasonPending), "the listener waits for the load balancer")
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
	state := p.routeProgress(parent, r)
	accepted, resolved := string(gatewayv1.RouteConditionAccepted), string(gatewayv1.RouteConditionResolvedRefs)
	a := &parent.acceptance
	switch {
	case !a.Accepted:
		w.setCondition(accepted, isFalse, a.Reason, a.Message)
	case state == programmed:
		w.setCondition(accepted, isTrue, a.Reason, a.Message)
	case !w.keepCondition(accepted):
		w.setCondition(accepted, isUnknown, string(gatewayv1.RouteReasonPending), "the rules of the route wait for the load balancer")
	}
	if a.Dropped != "" {
		w.setCondition(string(gatewayv1.RouteConditionPartiallyInvalid), isTrue, string(gatewayv1.RouteReasonUnsupportedValue), a.Dropped)
	}
	switch {
	case route.resolved.IsSet():
		w.setCondition(resolved, isFalse, route.resolved.Reason, route.resolved.Message)
	case state != programmed && a.Accepted && w.keepCondition(resolved):
	default:
		w.setCondition(resolved, isTrue, string(gatewayv1.RouteReasonResolvedRefs), "all references are resolved")
	}
	if a.Accepted {
		synced := p.backendsSynced(route, parent, r)
		w.setCondition(ConditionBackendsSynced, synced.status, synced.Reason, synced.Message)
	}
	s.Conditions = w.after
	return s
}

// routeProgress returns how far the rules of a route are on the listeners of a parent.
func (p *Plan) routeProgress(parent *Parent, r *Reports) progress {
	var worst progress
	for _, l := range parent.listeners {
		state, _ := p.listenerProgress(l, r)
		worst = max(worst, state)
	}
	return worst
}

// conditionContent is the content of a condition.
type conditionContent struct {
	plan.Problem

	status string
}

// backendsSynced returns the condition of the backend sets of a route.
func (p *Plan) backendsSynced(route *Route, parent *Parent, r *Reports) conditionContent {
	for _, l := range parent.listeners {
		switch state, problem := p.listenerProgress(l, r); state {
		case failing:
			return conditionContent{problem, isFalse}
		case pending:
			return conditionContent{plan.Problem{Reason: v1alpha1.ReasonPending, Message: "the rules of the route wait for the load balancer"}, isFalse}
		case programmed:
		}
	}
	active := 0
	for _, name := range slices.Sorted(maps.Keys(route.sets)) {
		report := r.Set(name)
		switch own := p.Sets[name]; {
		case own != nil && own.Problem.IsSet():
			return conditionContent{own.Problem, isFalse}
		case report == nil:
			return conditionContent{
				plan.NewProblem(v1alpha1.ReasonPending, "backend set %s waits for the load balancer", name), isFalse,
			}
		case !report.Synced:
			return conditionContent{plan.NewProblem(report.Reason, "backend set %s: %s", name, report.Message), isFalse}
		default:
			active += report.Active
		}
	}
	return conditionContent{
		plan.NewProblem(v1alpha1.ReasonSynced, "%d backend sets with %d active backends", len(route.sets), active), isTrue,
	}
}

// indexOfParent returns the index of the entry with the parent and controller of another one, -1 without one.
func indexOfParent(parents []gatewayv1.RouteParentStatus, s *gatewayv1.RouteParentStatus) int {
	return slices.IndexFunc(parents, func(x gatewayv1.RouteParentStatus) bool {
		return x.ControllerName == s.ControllerName && SameParent(&x.ParentRef, &s.ParentRef)
	})
}

// SameParent reports whether two references of one route are equal.
func SameParent(a, b *gatewayv1.ParentReference) bool {
	return equalValues(a.Group, b.Group) && equalValues(a.Kind, b.Kind) && equalValues(a.Namespace, b.Namespace) && a.Name == b.Name &&
		equalValues(a.SectionName, b.SectionName) && equalValues(a.Port, b.Port)
}

func equalValues[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// UnprogrammableStatus returns the status of a Gateway that has no load balancer.
func UnprogrammableStatus(u *UnprogrammableGateway, now time.Time) gatewayv1.GatewayStatus {
	next := *u.Status.DeepCopy()
	w := &conditionWriter{generation: u.Generation, before: u.Status.Conditions, now: now}
	w.setCondition(string(gatewayv1.GatewayConditionAccepted), isFalse, u.Problem.Reason, u.Problem.Message)
	message := "the Gateway is not accepted"
	if strings.TrimSpace(u.Problem.Message) != "" {
		message += ": " + u.Problem.Message
	}
	w.setCondition(string(gatewayv1.GatewayConditionProgrammed), isFalse, string(gatewayv1.GatewayReasonInvalid), message)
	next.Conditions = append(foreignConditions(u.Status.Conditions, w.after), w.after...)
	return next
}

// ClassStatus returns the status of a GatewayClass.
func ClassStatus(c *gatewayv1.GatewayClass, problem plan.Problem, now time.Time) gatewayv1.GatewayClassStatus {
	next := *c.Status.DeepCopy()
	w := &conditionWriter{generation: c.Generation, before: c.Status.Conditions, now: now}
	kind := string(gatewayv1.GatewayClassConditionStatusAccepted)
	if problem.IsSet() {
		w.setCondition(kind, isFalse, problem.Reason, problem.Message)
	} else {
		w.setCondition(kind, isTrue, string(gatewayv1.GatewayClassReasonAccepted), "backendset-syncer programs Gateways of this class")
	}
	next.Conditions = append(foreignConditions(c.Status.Conditions, w.after), w.after...)
	return next
}
