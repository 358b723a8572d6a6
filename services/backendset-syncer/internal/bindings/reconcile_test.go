package bindings

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/client/clientset/versioned/fake"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/informers"
)

// world is what a reconcile sees, and what it does.
type world struct {
	t       *testing.T
	binding *v1alpha1.BackendSetBinding
	rivals  []*v1alpha1.BackendSetBinding
	report  *actor.Report
	text    string // of the configuration
	fail    error  // of writes
	wanted  *actor.Wanted
	dropped bool
	status  *v1alpha1.BackendSetBindingStatus
	updated *v1alpha1.BackendSetBinding
	events  []string
}

// Event implements the recorder.
func (w *world) Event(_ *corev1.ObjectReference, kind, reason, _ string) {
	w.events = append(w.events, kind+" "+reason)
}

// update records the write of a binding.
func (w *world) update(action clienttesting.Action) (bool, runtime.Object, error) {
	b := action.(clienttesting.UpdateAction).GetObject().(*v1alpha1.BackendSetBinding)
	if action.GetSubresource() == "status" {
		w.status = &b.Status
	} else {
		w.updated = b
	}
	return true, b, w.fail
}

// caches returns what the reconcile reads.
func (w *world) caches() informers.Caches {
	all := slices.Clone(w.rivals)
	if w.binding != nil {
		all = append(all, w.binding)
	}
	return cachesOf(w.t, all, service)
}

const permits = "loadBalancers: [{id: " + lb + "}]"

func (w *world) reconciler() *Reconciler {
	key := actor.Key{LoadBalancer: lb, Set: "chat"}
	actors := newMockActors(w.t)
	actors.EXPECT().WantSet(key, mock.Anything).Run(func(_ actor.Key, x *actor.Wanted) { w.wanted = x }).Return().Maybe()
	actors.EXPECT().DropSet(key).Run(func(actor.Key) { w.dropped = true }).Return().Maybe()
	actors.EXPECT().BackendSetReport(key).Return(w.report).Maybe()
	client := fake.NewSimpleClientset()
	client.PrependReactor("update", "backendsetbindings", w.update)
	text := w.text
	if text == "" {
		text = permits
	}
	return New(Params{
		Caches: w.caches(), Actors: actors, Configuration: configured(w.t, text), Client: client.FairleadV1alpha1(), Recorder: w,
		Reasons: controller.NewReasons(prometheus.NewRegistry(), "bindings", "Bindings."), Enqueue: func(cache.ObjectName) {},
		Clock: clocktesting.NewFakePassiveClock(now),
	})
}

func (w *world) reconcile() error {
	r := w.reconciler()
	name := cache.ObjectName{Namespace: "models", Name: "a"}
	r.keys[name] = actor.Key{LoadBalancer: lb, Set: "chat"} // an earlier pass
	return r.Reconcile(w.t.Context(), name)
}

// condition returns the condition that was written.
func (w *world) condition() string {
	if w.status == nil || len(w.status.Conditions) == 0 {
		return ""
	}
	c := w.status.Conditions[0]
	assert.EqualValues(w.t, 3, c.ObservedGeneration)
	return string(c.Status) + " " + c.Reason
}

func empties(b *v1alpha1.BackendSetBinding) { b.Spec.DeletionPolicy = v1alpha1.EmptyBackends }
func finalized(b *v1alpha1.BackendSetBinding) {
	b.Finalizers = []string{"other", v1alpha1.FinalizerEmpty}
}

func conditioned(reason string, status metav1.ConditionStatus, message string) func(b *v1alpha1.BackendSetBinding) {
	return func(b *v1alpha1.BackendSetBinding) {
		b.Status.ObservedGeneration = b.Generation
		b.Status.Conditions = []metav1.Condition{
			{
				Type: "Synced", Status: status, Reason: reason, Message: message, ObservedGeneration: b.Generation,
				LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
			},
		}
	}
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	synced := &actor.Report{Synced: true, Reason: "Synced", Message: "it is", Known: true, Active: 2, Draining: 1}
	tests := []struct {
		name       string
		binding    *v1alpha1.BackendSetBinding
		rivals     []*v1alpha1.BackendSetBinding
		report     *actor.Report
		text       string
		condition  string
		held       bool // after it
		wants      bool
		drops      bool
		finalizers []string // written
		events     []string
	}{
		{name: "a binding that is gone", drops: true},
		{name: "a new binding waits until its set was read", binding: bindingOf("a", 1), condition: "False Pending", wants: true},
		{name: "then it claims its set", binding: bindingOf("a", 1), report: &actor.Report{Known: true}, held: true, wants: true},
		{name: "not if it has backends of others", binding: bindingOf("a", 1),
			report: &actor.Report{Known: true, Foreign: 1, Reason: "Conflict"}, condition: "False Conflict", wants: true,
			events: []string{"Warning Conflict"}},
		{name: "unless the administrator permits it", binding: bindingOf("a", 1), text: "loadBalancers: [{id: " + lb + ", takeOver: true}]",
			report: &actor.Report{Known: true, Foreign: 1, Reason: "Conflict"}, held: true, wants: true},
		{name: "then it writes", binding: bindingOf("a", 1, held(1)), condition: "False Pending", held: true, wants: true},
		{name: "a report", binding: bindingOf("a", 1, held(1)), report: synced, condition: "True Synced", held: true, wants: true},
		{name: "nothing new", binding: bindingOf("a", 1, held(1), conditioned("Synced", "True", "it is"),
			func(b *v1alpha1.BackendSetBinding) {
				b.Status.Backends = &v1alpha1.BackendCounts{Active: 2, Draining: 1}
			}), report: synced, wants: true},
		{name: "a problem has an Event", binding: bindingOf("a", 1, held(1),
			conditioned("Synced", "True", "it is")), report: &actor.Report{Reason: "AuthFailed", Message: "no"},
			condition: "False AuthFailed", held: true, wants: true, events: []string{"Warning AuthFailed"}},
		{name: "its end, too", binding: bindingOf("a", 1, held(1),
			conditioned("AuthFailed", "False", "no")), report: synced, condition: "True Synced", held: true, wants: true,
			events: []string{"Normal Synced"}},
		{name: "changes that wait have none", binding: bindingOf("a", 1, held(1),
			conditioned("Synced", "True", "it is")), report: &actor.Report{Reason: "Pending", Message: "soon"},
			condition: "False Pending", held: true, wants: true},
		{
			name: "a binding that may not", binding: bindingOf("a", 1, held(1)), text: "loadBalancers: []", condition: "False NotAllowed",
			drops: true, events: []string{"Warning NotAllowed"},
		},
		{name: "a binding that comes late", binding: bindingOf("a", 1), rivals: []*v1alpha1.BackendSetBinding{bindingOf("b", 1, held(1))},
			condition: "False Conflict", drops: true,
			events: []string{"Warning Conflict"}},
		{
			name: "the finalizer comes before the first write", binding: bindingOf("a", 1, held(1), empties),
			finalizers: []string{v1alpha1.FinalizerEmpty},
		},
		{name: "not before the claim", binding: bindingOf("a", 1, empties), report: &actor.Report{Known: true}, held: true, wants: true},
		{name: "the policy changes to Keep", binding: bindingOf("a", 1, held(1), finalized), finalizers: []string{"other"}},
		{name: "deleted, keeps its backends", binding: bindingOf("a", 1, held(1), deleting), drops: true},
		{
			name: "deleted, empties the set", binding: bindingOf("a", 1, held(1), deleting, empties, finalized), report: synced,
			condition: "True Synced", held: true, wants: true,
		},
		{
			name: "deleted, and the set is empty", binding: bindingOf("a", 1, held(1), deleting, empties, finalized),
			report: &actor.Report{Known: true}, finalizers: []string{"other"},
		},
		{name: "deleted, and the state is not known", binding: bindingOf("a", 1, held(1), deleting, empties, finalized),
			report:    &actor.Report{Reason: "AuthFailed"},
			condition: "False AuthFailed", held: true, wants: true, events: []string{"Warning AuthFailed"}},
		{name: "deleted, and another one owns the set", binding: bindingOf("a", 1, deleting, empties, finalized),
			rivals:     []*v1alpha1.BackendSetBinding{bindingOf("b", 1, held(1))},
			finalizers: []string{"other"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := &world{t: t, binding: tt.binding, rivals: tt.rivals, report: tt.report, text: tt.text}
			require.NoError(t, w.reconcile())
			assert.Equal(t, tt.condition, w.condition())
			assert.Equal(t, tt.wants, w.wanted != nil)
			if tt.wants {
				assert.Equal(t, tt.binding.Status.HeldSince == nil, w.wanted.Watching, "nothing is written before the claim")
			}
			assert.Equal(t, tt.drops, w.dropped)
			assert.Equal(t, tt.events, w.events)
			if w.status != nil {
				assert.Equal(t, tt.held, w.status.HeldSince != nil)
			}
			var finalizers []string
			if w.updated != nil {
				finalizers = w.updated.Finalizers
			}
			assert.Equal(t, tt.finalizers, finalizers)
		})
	}
}

func TestWritesThatFail(t *testing.T) {
	t.Parallel()
	for want, b := range map[string]*v1alpha1.BackendSetBinding{
		"claim backend set chat: no": bindingOf("a", 1), "update status: no": bindingOf("a", 1, held(1)),
		"update finalizers: no": bindingOf("a", 1, held(1), empties),
	} {
		w := &world{t: t, binding: b, fail: errors.New("no"), report: &actor.Report{Known: true}}
		require.EqualError(t, w.reconcile(), want)
	}
}

func TestABindingThatWasCreatedAgainWithAnotherSet(t *testing.T) {
	t.Parallel()
	w := &world{t: t, binding: bindingOf("a", 1, held(1))}
	r := w.reconciler()
	name := cache.ObjectName{Namespace: "models", Name: "a"}
	require.NoError(t, r.Reconcile(t.Context(), name))
	w.binding.Spec.BackendSetName = "embed"
	r.p.Caches = w.caches()
	r.evaluator.caches = r.p.Caches
	actors := newMockActors(t)
	actors.EXPECT().DropSet(actor.Key{LoadBalancer: lb, Set: "chat"}).Return()
	actors.EXPECT().WantSet(actor.Key{LoadBalancer: lb, Set: "embed"}, mock.Anything).Return()
	actors.EXPECT().BackendSetReport(mock.Anything).Return(nil)
	r.p.Actors = actors
	require.NoError(t, r.Reconcile(t.Context(), name))
}

// TestASetThatAnotherBindingHasTakenOver stays wanted when its former owner lets it go.
func TestASetThatAnotherBindingHasTakenOver(t *testing.T) {
	t.Parallel()
	w := &world{t: t}
	r := w.reconciler()
	former, set := cache.ObjectName{Namespace: "models", Name: "former"}, actor.Key{LoadBalancer: lb, Set: "chat"}
	r.keys[former], r.keys[cache.ObjectName{Namespace: "models", Name: "owner"}] = set, set
	require.NoError(t, r.Reconcile(t.Context(), former))
	assert.False(t, w.dropped)
	require.NoError(t, r.Reconcile(t.Context(), cache.ObjectName{Namespace: "models", Name: "owner"}))
	assert.True(t, w.dropped, "nobody wants it")
}

func TestEventsAreTimed(t *testing.T) {
	t.Parallel()
	w := &world{t: t, binding: bindingOf("a", 1, held(1))}
	r := w.reconciler()
	name := cache.ObjectName{Namespace: "models", Name: "a"}
	r.NoteEvent(name)
	require.NoError(t, r.Reconcile(t.Context(), name))
	assert.Equal(t, now, w.wanted.Since)
	require.NoError(t, r.Reconcile(t.Context(), name))
	assert.Zero(t, w.wanted.Since, "each event counts once")
}

// TestConditionsOfHeldBackends: what is wrong with the binding explains why the endpoints are gone, but not a problem of the load balancer.
func TestConditionsOfHeldBackends(t *testing.T) {
	t.Parallel()
	missing := &Decision{writes: true, reason: "ServiceInvalid"}
	for _, tt := range []struct {
		verdict *Decision
		report  *actor.Report
		want    string
	}{
		{verdict: &Decision{writes: true}, report: &actor.Report{Reason: "Pending", HoldsVanished: true}, want: "Pending"},
		{verdict: missing, report: &actor.Report{Reason: "Pending", HoldsVanished: true}, want: "ServiceInvalid"},
		{verdict: missing, report: &actor.Report{Reason: "AuthFailed"}, want: "AuthFailed"},
	} {
		c := buildCondition(bindingOf("a", 1), tt.verdict, tt.report)
		assert.Equal(t, tt.want, c.Reason)
		assert.Equal(t, metav1.ConditionFalse, c.Status)
	}
}

// TestSlicesRecheckTheirAddresses when they appear or change. A slice that is deleted takes no address.
func TestSlicesRecheckTheirAddresses(t *testing.T) {
	t.Parallel()
	slice := func(version string, addresses ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
		for _, a := range addresses {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
		}
		return s
	}
	var got [][]string
	h := addressHandler(func(addresses []string) { got = append(got, addresses) })
	h.OnAdd(slice("1", "10.0.0.1"), true)
	h.OnUpdate(slice("1", "10.0.0.1"), slice("2", "10.0.0.1", "::ffff:10.0.0.2"))
	h.OnUpdate(slice("2", "10.0.0.1"), slice("2", "10.0.0.1"))
	h.OnDelete(slice("2", "10.0.0.1"))
	assert.Equal(t, [][]string{{"10.0.0.1"}, {"10.0.0.1", "10.0.0.2"}}, got)
}
