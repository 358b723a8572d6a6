// Package bindings reconciles BackendSetBindings: it reads what a binding refers to, tells the actor of its load balancer what the backend
// set should have, and writes the actor's report to the status.
//
//	observe   the Service, its EndpointSlices, and the pods with readiness gates
//	permit    the configuration, the limits of the namespace, and the owner of the backend set
//	want      the actor reads the load balancer and, once the binding has claimed the set, writes
//	claim     the status records the owner, before the first write to the set
//	status    conditions and counts, written only if they differ
package bindings

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	clientset "fairlead.dev/pkg/client/clientset/versioned/typed/fairlead/v1alpha1"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/notify"
	"fairlead.dev/services/backendset-syncer/internal/policy"
)

// actors write backend sets.
type actors interface {
	WantSet(key actor.Key, w *actor.Wanted)
	DropSet(key actor.Key)
	BackendSetReport(key actor.Key) *actor.Report
}

// Params holds the arguments of New.
type Params struct {
	Caches        informers.Caches
	Actors        actors
	Configuration policy.Source
	Records       string // namespace of the records of load balancers
	Client        clientset.BackendSetBindingsGetter
	Owner         string              // field manager
	Reasons       *controller.Reasons // of the conditions of bindings
	Recorder      notify.Recorder
	Enqueue       func(cache.ObjectName)
	Clock         clock.PassiveClock
}

// Reconciler reconciles bindings.
type Reconciler struct {
	p         Params
	evaluator *Evaluator

	mu     sync.Mutex
	keys   map[cache.ObjectName]actor.Key // of bindings whose sets actors write
	events map[cache.ObjectName]time.Time // of the first event that was not reconciled
}

// New returns a Reconciler.
func New(p Params) *Reconciler {
	return &Reconciler{
		p: p, evaluator: NewEvaluator(p.Caches, p.Configuration, p.Records), keys: map[cache.ObjectName]actor.Key{},
		events: map[cache.ObjectName]time.Time{},
	}
}

// ClearTerm forgets the state of a term.
func (r *Reconciler) ClearTerm() {
	r.evaluator.owners.clearGrants()
	r.p.Reasons.Clear()
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.keys)
	clear(r.events)
}

// ReconcileAll enqueues all bindings.
func (r *Reconciler) ReconcileAll() {
	for _, b := range informers.ListAll[v1alpha1.BackendSetBinding](r.p.Caches.Bindings) {
		r.p.Enqueue(nameOf(b))
	}
}

// NoteEvent notes when the first event about a binding was seen.
func (r *Reconciler) NoteEvent(name cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, noted := r.events[name]; !noted {
		r.events[name] = r.p.Clock.Now()
	}
}

func nameOf(b *v1alpha1.BackendSetBinding) cache.ObjectName {
	return cache.ObjectName{Namespace: b.Namespace, Name: b.Name}
}

// Reconcile implements controller.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, name cache.ObjectName) error {
	b := informers.FindObject[v1alpha1.BackendSetBinding](r.p.Caches.Bindings, name)
	if b == nil {
		r.dropSet(name)
		r.p.Reasons.Forget(name)
		return nil
	}
	d := r.evaluator.Evaluate(b)
	done, err := r.updateFinalizer(ctx, b, d)
	switch {
	case done || err != nil:
		return err
	case !d.writes:
		r.dropSet(name)
		return r.writeStatus(ctx, b, d, nil)
	}
	r.wantSet(b, d)
	report := r.p.Actors.BackendSetReport(d.key)
	if b.Status.HeldSince == nil && (d.takesOver || report != nil && report.Known && report.Foreign == 0) {
		return r.claimSet(ctx, b)
	}
	return r.writeStatus(ctx, b, d, report)
}

// claimSet records in the status that the binding owns its set. The event of the status continues.
func (r *Reconciler) claimSet(ctx context.Context, b *v1alpha1.BackendSetBinding) error {
	next := b.DeepCopy()
	now := metav1.NewTime(r.p.Clock.Now().UTC().Truncate(time.Second))
	next.Status.HeldSince = &now
	if err := r.updateStatus(ctx, next); err != nil {
		return fmt.Errorf("claim backend set %s: %w", b.Spec.BackendSetName, err)
	}
	return nil
}

// wantSet tells the actor what the backend set should have.
func (r *Reconciler) wantSet(b *v1alpha1.BackendSetBinding, d *Decision) {
	name, w := nameOf(b), d.BuildWanted(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.keys[name]
	r.keys[name] = d.key
	w.Since = r.events[name]
	delete(r.events, name)
	if known && before != d.key { // deleted, and created again
		r.dropKey(before)
	}
	r.p.Actors.WantSet(d.key, w)
}

// dropSet lets the actor forget the set of a binding.
func (r *Reconciler) dropSet(name cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, known := r.keys[name]
	delete(r.keys, name)
	delete(r.events, name)
	if known {
		r.dropKey(key)
	}
}

// dropKey lets the actor forget a set, unless another binding wants it by now. The caller has mu.
func (r *Reconciler) dropKey(key actor.Key) {
	for _, wanted := range r.keys {
		if wanted == key {
			return
		}
	}
	r.p.Actors.DropSet(key)
}

// updateFinalizer adds or removes the finalizer. It reports whether the pass ends here: the event of its write continues, or a binding that
// is being deleted leaves its set as it is.
func (r *Reconciler) updateFinalizer(ctx context.Context, b *v1alpha1.BackendSetBinding, d *Decision) (done bool, err error) {
	has := slices.Contains(b.Finalizers, v1alpha1.FinalizerEmpty)
	needs := b.Spec.DeletionPolicy == v1alpha1.EmptyBackends && d.owns && b.Status.HeldSince != nil
	if b.DeletionTimestamp != nil {
		if !has {
			r.dropSet(nameOf(b))
			return true, nil
		}
		needs = needs && !isEmpty(r.p.Actors.BackendSetReport(d.key))
	}
	if needs == has || has && !d.configured { // without a configuration nothing is known
		return false, nil
	}
	next := b.DeepCopy()
	if needs {
		next.Finalizers = append(next.Finalizers, v1alpha1.FinalizerEmpty)
	} else {
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerEmpty })
	}
	_, err = r.p.Client.BackendSetBindings(b.Namespace).Update(ctx, next, metav1.UpdateOptions{FieldManager: r.p.Owner})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("update finalizers: %w", err)
	}
	logging.FromContext(ctx).Debug("Updated finalizers", zap.Strings("finalizers", next.Finalizers))
	return true, nil
}

// isEmpty reports whether a backend set has no backends, or does not exist.
func isEmpty(r *actor.Report) bool {
	return r != nil && (r.Gone || r.Known && r.Active+r.Draining == 0)
}
