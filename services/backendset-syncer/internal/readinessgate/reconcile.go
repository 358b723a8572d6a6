// Package readinessgate opens the readiness gate fairlead.dev/oci-lb-ready of pods: a pod with the gate becomes ready once the load
// balancers send it requests. So a roll-out waits for load balancers before it ends old pods. The backend sets of a pod are those of
// bindings of its Services, and those that routes of Gateways use.
//
// The gate fails open, and never closes again: a pod whose load balancers fail later stays ready, as other clients may reach it.
//
//	the containers are not ready                   closed
//	no backend set has the pod as an endpoint      open, 10 s after its containers became ready
//	a backend set cannot be written                open, as far as that set is concerned
//	the sets of routes are not known yet           closed, until --readiness-gate-timeout has passed
//	a load balancer does not send requests yet     closed, until --readiness-gate-timeout has passed
//	all load balancers send requests               open
package readinessgate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/observe"
)

// unboundDelay is the time for a binding or a route, or for the EndpointSlice of a new pod, to appear. Informers take less than a second.
const unboundDelay = 10 * time.Second

// unknownDelay is the time between two looks at the sets of routes while they are not known, at the beginning of a term: a thousand pods
// ask a thousand times per second.
const unknownDelay = time.Second

// Reasons of the condition.
const (
	reasonInService = "InService"
	reasonUnbound   = "NoBinding"
	reasonTimeout   = "Timeout"
	reasonWaiting   = "WaitingForLoadBalancer"
)

// userErrorReasons are the reasons of bindings that do not write their set until a user changes something.
var userErrorReasons = []string{
	v1alpha1.ReasonNotAllowed, v1alpha1.ReasonConflict, v1alpha1.ReasonServiceInvalid, v1alpha1.ReasonBackendSetNotFound,
}

// observer reads pods and the bindings that they are endpoints of.
type observer interface {
	FindGatedPod(name cache.ObjectName) *corev1.Pod
	ListGatedPods() []*corev1.Pod
	BindingsOfPod(pod *corev1.Pod) []observe.PodBinding
}

// Params holds the arguments of New.
type Params struct {
	Observer observer
	// SetsOf returns the backend sets that routes of Gateways give to a pod. known is false until all load balancers of Gateways were
	// planned.
	SetsOf  func(pod *corev1.Pod) (sets []observe.Registration, known bool)
	Report  func(key actor.Key) *actor.Report // of a backend set
	Pods    typedcorev1.PodsGetter
	Timeout time.Duration
	Clock   clock.PassiveClock
}

// Reconciler opens readiness gates.
type Reconciler struct{ p Params }

// New returns a Reconciler.
func New(p Params) *Reconciler { return &Reconciler{p: p} }

// ReconcileAll enqueues all pods with the gate.
func (r *Reconciler) ReconcileAll(enqueue func(cache.ObjectName)) {
	for _, p := range r.p.Observer.ListGatedPods() {
		enqueue(cache.ObjectName{Namespace: p.Namespace, Name: p.Name})
	}
}

// Reconcile implements controller.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, name cache.ObjectName) error {
	pod := r.p.Observer.FindGatedPod(name)
	if pod == nil || pod.DeletionTimestamp != nil || informers.IsTrue(pod, v1alpha1.ReadinessGate) {
		return nil
	}
	ready := informers.FindCondition(pod, corev1.ContainersReady)
	if ready == nil || ready.Status != corev1.ConditionTrue {
		return nil
	}
	next, wait := r.decideCondition(pod, r.p.Clock.Since(ready.LastTransitionTime.Time))
	if err := r.writeCondition(ctx, pod, next); err != nil {
		return err
	}
	if wait > 0 {
		return controller.RequeueAfter(wait, next.Reason)
	}
	return nil
}

// decideCondition returns the condition of a pod whose containers have been ready for a time, and when time alone changes it.
func (r *Reconciler) decideCondition(pod *corev1.Pod, since time.Duration) (next corev1.PodCondition, wait time.Duration) {
	next = corev1.PodCondition{
		Type: v1alpha1.ReadinessGate, Status: corev1.ConditionTrue, Reason: reasonInService,
		Message: "all load balancers send requests to the pod",
	}
	sets, known := r.awaitedSets(pod)
	i := slices.IndexFunc(sets, func(s observe.Registration) bool { return !r.inService(&s) })
	problem := "the load balancers of Gateways have not all been planned"
	if i >= 0 {
		problem = fmt.Sprintf("backend set %s does not send requests to the pod", sets[i].Set)
	}
	switch {
	case len(sets) == 0 && known:
		next.Reason, next.Message = reasonUnbound, "no BackendSetBinding and no route of a Gateway writes the pod to a backend set"
		if since < unboundDelay {
			next.Status, wait = corev1.ConditionFalse, unboundDelay-since
		}
		return next, wait
	case i < 0 && known:
		return next, 0
	case since >= r.p.Timeout:
		next.Reason, next.Message = reasonTimeout, problem+", and the time is over"
		return next, 0
	}
	next.Status, next.Reason, next.Message = corev1.ConditionFalse, reasonWaiting, problem+" yet"
	if wait = r.p.Timeout - since; !known {
		wait = min(wait, unknownDelay)
	}
	return next, wait
}

// awaitedSets returns the backend sets that a pod waits for: those of bindings and of routes. known is false if there may be others.
func (r *Reconciler) awaitedSets(pod *corev1.Pod) (sets []observe.Registration, known bool) {
	for _, u := range r.p.Observer.BindingsOfPod(pod) {
		c := meta.FindStatusCondition(u.Binding.Status.Conditions, v1alpha1.ConditionSynced)
		if u.Binding.DeletionTimestamp == nil && (c == nil || !slices.Contains(userErrorReasons, c.Reason)) {
			sets = append(sets,
				observe.Registration{
					LoadBalancer: u.Binding.Spec.LoadBalancerID, Set: u.Binding.Spec.BackendSetName, Addresses: u.Addresses,
				})
		}
	}
	routed, known := r.p.SetsOf(pod)
	return append(sets, routed...), known
}

// inService reports whether the load balancer of a backend set sends requests to all addresses of a pod.
func (r *Reconciler) inService(s *observe.Registration) bool {
	report := r.p.Report(actor.Key{LoadBalancer: s.LoadBalancer, Set: s.Set})
	return report != nil && (report.Used || !s.Routed) && len(s.Addresses) > 0 &&
		!slices.ContainsFunc(s.Addresses, func(a netip.AddrPort) bool { return !report.Serving[a] })
}

// writeCondition writes the condition, if it differs.
func (r *Reconciler) writeCondition(ctx context.Context, pod *corev1.Pod, next corev1.PodCondition) error {
	before := informers.FindCondition(pod, next.Type)
	if before != nil && before.Status == next.Status && before.Reason == next.Reason && before.Message == next.Message {
		return nil
	}
	next.LastTransitionTime = metav1.NewTime(r.p.Clock.Now().UTC().Truncate(time.Second))
	if before != nil && before.Status == next.Status {
		next.LastTransitionTime = before.LastTransitionTime
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, // another pod of the name gives a conflict
		"status":   map[string]any{"conditions": []corev1.PodCondition{next}},
	})
	if err != nil {
		return fmt.Errorf("encode readiness gate: %w", err)
	}
	_, err = r.p.Pods.Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // the pod is gone
	case err != nil:
		return fmt.Errorf("write readiness gate: %w", err)
	}
	if next.Status == corev1.ConditionTrue {
		logging.FromContext(ctx).Info("Opened readiness gate", zap.String(logging.KeyReason, next.Reason))
	}
	return nil
}

// AddHandlers registers event handlers that enqueue the pods that a changed object affects: a pod itself, and the pods of the Services of
// bindings and EndpointSlices.
func AddHandlers(i *informers.Informers, enqueue func(cache.ObjectName)) {
	i.Pods.AddEventHandler(controller.TypedHandler(enqueue, func(p *corev1.Pod) []cache.ObjectName {
		if informers.HasGate(p) {
			return []cache.ObjectName{{Namespace: p.Namespace, Name: p.Name}}
		}
		return nil
	}))
	i.Bindings.AddEventHandler(controller.TypedHandler(enqueue, func(b *v1alpha1.BackendSetBinding) []cache.ObjectName {
		return podsOf(i, b)
	}))
	i.EndpointSlices.AddEventHandler(controller.TypedHandler(enqueue, func(s *discoveryv1.EndpointSlice) []cache.ObjectName {
		return informers.ClosedGatesIn(i.Pods, s)
	}))
}

// OnReport returns the function that enqueues the pods of a backend set whose report has changed.
func OnReport(i *informers.Informers, enqueue func(cache.ObjectName)) func(actor.Key) {
	return func(key actor.Key) {
		for _, b := range informers.BindingsOfSet(i.Bindings, key.LoadBalancer, key.Set) {
			for _, pod := range podsOf(i, b) {
				enqueue(pod)
			}
		}
	}
}

// podsOf returns the pods of the Service of a binding whose gate is closed.
func podsOf(i *informers.Informers, b *v1alpha1.BackendSetBinding) []cache.ObjectName {
	return informers.ClosedGates(i.EndpointSlices, i.Pods, cache.ObjectName{Namespace: b.Namespace, Name: b.Spec.ServiceRef.Name})
}
