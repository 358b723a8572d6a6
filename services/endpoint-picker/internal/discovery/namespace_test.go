package discovery

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	inferencefake "sigs.k8s.io/gateway-api-inference-extension/client-go/clientset/versioned/fake"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// moment is enough for a change to reach everyone, on the clock of a bubble: longer than every interval and back-off of the code under
// test.
const moment = time.Minute

func TestMain(m *testing.M) {
	kubetest.DropErrorBackoff()
	goleak.VerifyTestMain(m)
}

// world is a cluster with a store that follows it.
type world struct {
	core      *fake.Clientset
	inference *inferencefake.Clientset
	store     *pool.Store
	logs      *zaptest.ObservedLogs
	served    atomic.Bool // the kind of the pool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{core: fake.NewClientset(), inference: inferencefake.NewSimpleClientset()}
	w.core.Resources = []*metav1.APIResourceList{{
		GroupVersion: PoolGroup + "/v1",
		APIResources: []metav1.APIResource{{Name: poolResource, Kind: "InferencePool", Namespaced: true}},
	}}
	w.core.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
		if w.served.Load() {
			return false, nil, nil
		}
		return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	})
	return w
}

// serveKind installs the kind of the pool.
func (w *world) serveKind() { w.served.Store(true) }

// namespace returns the caches of the namespace of the test.
func (w *world) namespace(t *testing.T, p NamespaceParams) *Namespace {
	t.Helper()
	core, logs := zaptest.New(zap.WarnLevel)
	w.logs = logs
	p.Log, p.Core, p.Namespace, p.PollInterval = zap.New(core), w.core, "ns", time.Second
	n, err := NewNamespace(p)
	require.NoError(t, err)
	return n
}

// run follows the pool until the test ends.
func (w *world) run(t *testing.T) {
	t.Helper()
	n := w.namespace(t, NamespaceParams{Inference: w.inference, Pool: "pool"})
	w.follow(t, n, n.PoolSource("pool"))
}

func (w *world) follow(t *testing.T, n *Namespace, s *PodSource) {
	t.Helper()
	w.store = pool.NewStore(zap.NewNop(), "ns/pool", s, estimate.New(prefixindex.NewMemoryBudget(1<<20)), clock.RealClock{})
	s.OnChange(w.store.MarkChanged)
	w.start(t, n.Run, w.store.Run)
}

// start runs functions until the test ends.
func (*world) start(t *testing.T, functions ...func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range functions {
		running.Go(func() { run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// serves waits a moment and compares the endpoints of the store.
func (w *world) serves(t *testing.T, why string, want ...string) {
	t.Helper()
	time.Sleep(moment)
	require.NoError(t, w.store.CheckReady(), why)
	var got []string
	for _, e := range w.store.Snapshot().Endpoints {
		got = append(got, e.Address())
	}
	require.Equal(t, want, got, why)
}

func newInferencePool(match map[string]string, ports ...int32) *inferencev1.InferencePool {
	p := &inferencev1.InferencePool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "pool", Generation: 1}}
	for key, value := range match {
		if p.Spec.Selector.MatchLabels == nil {
			p.Spec.Selector.MatchLabels = map[inferencev1.LabelKey]inferencev1.LabelValue{}
		}
		p.Spec.Selector.MatchLabels[inferencev1.LabelKey(key)] = inferencev1.LabelValue(value)
	}
	for _, port := range ports {
		p.Spec.TargetPorts = append(p.Spec.TargetPorts, inferencev1.Port{Number: inferencev1.PortNumber(port)})
	}
	return p
}

func pod(namespace, name, ip string, set map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "1", Labels: set, Annotations: map[string]string{"large": "thing"}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "vllm"}}},
		Status: corev1.PodStatus{PodIP: ip, Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: "all good"},
		}},
	}
}

var (
	model = map[string]string{"app": "model"}
	other = map[string]string{"app": "other"}
)

func TestStoreFollowsTheCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		w := newWorld(t)
		w.serveKind()
		for _, p := range []*corev1.Pod{pod("ns", "a", "10.0.0.1", model), pod("ns", "b", "10.0.0.2", other), pod("elsewhere", "c", "10.0.0.3", model)} {
			require.NoError(t, w.core.Tracker().Add(p))
		}
		require.NoError(t, w.inference.Tracker().Add(newInferencePool(model, 8000)))
		w.run(t)
		w.serves(t, "start", "10.0.0.1:8000")

		pods := w.core.CoreV1().Pods("ns")
		_, err := pods.Create(ctx, pod("ns", "d", "10.0.0.4", model), metav1.CreateOptions{})
		require.NoError(t, err)
		w.serves(t, "a pod came", "10.0.0.1:8000", "10.0.0.4:8000")

		unready := pod("ns", "a", "10.0.0.1", model)
		unready.Status.Conditions[1].Status = corev1.ConditionFalse
		_, err = pods.UpdateStatus(ctx, unready, metav1.UpdateOptions{})
		require.NoError(t, err)
		w.serves(t, "a pod became unready", "10.0.0.4:8000")

		_, err = pods.Update(ctx, pod("ns", "b", "10.0.0.2", model), metav1.UpdateOptions{})
		require.NoError(t, err)
		w.serves(t, "a pod was relabelled", "10.0.0.2:8000", "10.0.0.4:8000")

		require.NoError(t, pods.Delete(ctx, "d", metav1.DeleteOptions{}))
		w.serves(t, "a pod went", "10.0.0.2:8000")

		pools := w.inference.InferenceV1().InferencePools("ns")
		changed := newInferencePool(other, 8001, 8002)
		changed.Generation = 2
		_, err = pods.Create(ctx, pod("ns", "e", "10.0.0.5", other), metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = pools.Update(ctx, changed, metav1.UpdateOptions{})
		require.NoError(t, err)
		w.serves(t, "selector and ports changed", "10.0.0.5:8001", "10.0.0.5:8002")

		require.NoError(t, pools.Delete(ctx, "pool", metav1.DeleteOptions{}))
		time.Sleep(moment)
		require.Error(t, w.store.CheckReady(), "the pool was deleted")
		assert.Empty(t, w.store.Snapshot().Endpoints)
	})
}

func TestActivePortsComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		w := newWorld(t)
		w.serveKind()
		require.NoError(t, w.core.Tracker().Add(pod("ns", "a", "10.0.0.1", model)))
		require.NoError(t, w.inference.Tracker().Add(newInferencePool(model, 8000, 8001)))
		w.run(t)
		w.serves(t, "start", "10.0.0.1:8000", "10.0.0.1:8001")
		second := w.store.Snapshot().Endpoints[1]

		annotate := func(value string) {
			changed := pod("ns", "a", "10.0.0.1", model)
			changed.Annotations[activePortsAnnotation] = value
			_, err := w.core.CoreV1().Pods("ns").Update(ctx, changed, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
		annotate("8001")
		w.serves(t, "one port is active", "10.0.0.1:8001")
		assert.Same(t, second, w.store.Snapshot().Endpoints[0], "and is the endpoint that it was")
		annotate("9000")
		w.serves(t, "none is")
		annotate("")
		w.serves(t, "an empty list is taken for all", "10.0.0.1:8000", "10.0.0.1:8001")

		_, err := w.core.CoreV1().Pods("ns").Create(ctx, pod("ns", "b", "10.0.0.2", model), metav1.CreateOptions{})
		require.NoError(t, err)
		w.serves(t, "another pod", "10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "10.0.0.2:8001")
		complaints := w.logs.FilterMessage("Could not apply active ports of pod").All()
		require.Len(t, complaints, 2, "each value is complained of once, however often it is read")
		assert.Equal(t, map[string]any{"pod": "ns/a", "value": "", "reason": "names no port, taken for all ports of the pool"}, complaints[1].ContextMap())
	})
}

func TestFixedSelectionNeedsNoPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, p := range []*corev1.Pod{pod("ns", "a", "10.0.0.1", model), pod("ns", "b", "10.0.0.2", other), pod("ns", "c", "10.0.0.3", nil)} {
			require.NoError(t, w.core.Tracker().Add(p))
		}
		selector, err := labels.Parse("app in (model, spare)")
		require.NoError(t, err)
		n := w.namespace(t, NamespaceParams{})
		w.follow(t, n, n.SelectionSource(Selection{Selector: selector, Ports: []uint16{8000, 8001}}))
		w.serves(t, "start", "10.0.0.1:8000", "10.0.0.1:8001")

		_, err = w.core.CoreV1().Pods("ns").Update(t.Context(), pod("ns", "b", "10.0.0.2", map[string]string{"app": "spare"}), metav1.UpdateOptions{})
		require.NoError(t, err)
		w.serves(t, "a pod was relabelled", "10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "10.0.0.2:8001")
		assert.Empty(t, w.inference.Actions())
		for _, action := range w.core.Actions() {
			assert.Equal(t, "pods", action.GetResource().Resource, "nothing but pods is asked for, not even whether a kind is served")
		}
	})
}

func TestPoolsOfANamespaceShareItsPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		require.NoError(t, w.core.Tracker().Add(pod("ns", "a", "10.0.0.1", model)))
		require.NoError(t, w.core.Tracker().Add(pod("ns", "b", "10.0.0.2", other)))
		n := w.namespace(t, NamespaceParams{})
		one := n.SelectionSource(Selection{Selector: labels.SelectorFromSet(model), Ports: []uint16{8000}})
		two := n.SelectionSource(Selection{Selector: labels.SelectorFromSet(other), Ports: []uint16{9000}})
		w.follow(t, n, one)
		w.serves(t, "start", "10.0.0.1:8000")
		require.True(t, two.WaitForSync(t.Context()))
		second, err := two.ReadPool()
		require.NoError(t, err)
		require.Len(t, second, 1)
		assert.Equal(t, "10.0.0.2:9000", second[0].Address.String())
		lists := 0
		for _, action := range w.core.Actions() {
			if action.GetVerb() == "list" {
				lists++
			}
		}
		assert.Equal(t, 1, lists)
	})
}

// TestNamespace_EventsReachThePoolsThatTheyConcern counts the events of two pools.
func TestNamespace_EventsReachThePoolsThatTheyConcern(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		w := newWorld(t)
		w.serveKind()
		second := newInferencePool(other, 9000)
		second.Name, second.UID = "second", "second"
		require.NoError(t, w.inference.Tracker().Add(newInferencePool(model, 8000)))
		require.NoError(t, w.inference.Tracker().Add(second))
		require.NoError(t, w.core.Tracker().Add(pod("ns", "a", "10.0.0.1", model)))
		require.NoError(t, w.core.Tracker().Add(pod("ns", "b", "10.0.0.2", other)))
		var pools, first, others atomic.Int64
		n := w.namespace(t, NamespaceParams{Inference: w.inference, Changed: func() { pools.Add(1) }})
		one, two := n.PoolSource("pool"), n.PoolSource("second")
		one.OnChange(func() { first.Add(1) })
		two.OnChange(func() { others.Add(1) })
		w.start(t, n.Run)
		require.True(t, one.WaitForSync(ctx))
		assert.Len(t, n.AllPools(), 2)
		for _, s := range []*PodSource{one, two} {
			endpoints, err := s.ReadPool()
			require.NoError(t, err)
			require.Len(t, endpoints, 1)
		}
		time.Sleep(moment)
		require.EqualValues(t, 2, pools.Load())
		first.Store(0)
		others.Store(0)

		pods := w.core.CoreV1().Pods("ns")
		require.NoError(t, pods.Delete(ctx, "a", metav1.DeleteOptions{}))
		time.Sleep(moment)
		require.EqualValues(t, 1, first.Load(), "a pod of the first pool went")
		moved := pod("ns", "b", "10.0.0.2", model)
		_, err := pods.Update(ctx, moved, metav1.UpdateOptions{})
		require.NoError(t, err)
		time.Sleep(moment)
		require.Equal(t, []int64{2, 1}, []int64{first.Load(), others.Load()}, "a pod changed its pool")
		require.NoError(t, w.inference.InferenceV1().InferencePools("ns").Delete(ctx, "second", metav1.DeleteOptions{}))
		time.Sleep(moment)
		require.Equal(t, []int64{2, 3}, []int64{others.Load(), pools.Load()}, "the second pool was deleted")
		_, err = two.ReadPool()
		require.ErrorIs(t, err, pool.ErrNoPool)
		assert.EqualValues(t, 2, first.Load())

		one.Close()
		require.NoError(t, pods.Delete(ctx, "b", metav1.DeleteOptions{}))
		require.NoError(t, w.inference.InferenceV1().InferencePools("ns").Delete(ctx, "pool", metav1.DeleteOptions{}))
		time.Sleep(moment)
		require.EqualValues(t, 4, pools.Load())
		assert.EqualValues(t, 2, first.Load(), "a closed source is not notified")
	})
}

func TestNamespace_UnknownEventsReachAllPools(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.namespace(t, NamespaceParams{Inference: w.inference})
	calls := 0
	n.PoolSource("pool").OnChange(func() { calls++ })
	n.podChanged(nil, nil)
	n.poolChanged(nil, nil)
	assert.Equal(t, 2, calls)
}

func TestPoolKindThatComesLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		require.NoError(t, w.core.Tracker().Add(pod("ns", "a", "10.0.0.1", model)))
		w.run(t)
		time.Sleep(moment)
		require.EqualError(t, w.store.CheckReady(), "inference pool ns/pool: "+pool.ErrNoPool.Error())

		require.NoError(t, w.inference.Tracker().Add(newInferencePool(model, 8000)))
		w.serveKind()
		w.serves(t, "the kind came", "10.0.0.1:8000")
	})
}

func TestOnlyThePoolItselfIsAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.serveKind()
		require.NoError(t, w.inference.Tracker().Add(newInferencePool(model, 8000)))
		w.run(t)
		w.serves(t, "start")
		for _, action := range w.inference.Actions() {
			assert.Equal(t, "ns", action.GetNamespace())
			assert.Contains(t, []string{"list", "watch"}, action.GetVerb())
			restrictions := fields.Everything()
			switch a := action.(type) {
			case clienttesting.ListAction:
				restrictions = a.GetListRestrictions().Fields
			case clienttesting.WatchAction:
				restrictions = a.GetWatchRestrictions().Fields
			}
			assert.Equal(t, "metadata.name=pool", restrictions.String())
		}
		for _, action := range w.core.Actions() {
			if action.GetResource().Resource == "pods" {
				assert.Equal(t, "ns", action.GetNamespace())
			}
		}
	})
}

func TestReadPool(t *testing.T) {
	t.Parallel()
	p := toSelection(newInferencePool(model, 8000, 65535))
	assert.Equal(t, []uint16{8000, 65535}, p.Ports)
	assert.Equal(t, "app=model", p.Selector.String())
	assert.False(t, toSelection(newInferencePool(nil, 8000)).Selector.Matches(labels.Set(model)), "no selector is not every pod")
}

func TestStripKeepsWhatEndpointsAreMadeOf(t *testing.T) {
	t.Parallel()
	full := pod("ns", "a", "10.0.0.1", model)
	full.ResourceVersion = "7"
	full.Annotations[activePortsAnnotation], full.Annotations[legacyPortsAnnotation] = "8000", "8001"
	full.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	full.CreationTimestamp = metav1.Time{Time: time.Unix(2, 0)}
	got, err := stripPod(full)
	require.NoError(t, err)
	assert.Equal(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "a", UID: full.UID, ResourceVersion: "7", Labels: model,
			DeletionTimestamp: full.DeletionTimestamp, CreationTimestamp: full.CreationTimestamp,
			Annotations: map[string]string{activePortsAnnotation: "8000", legacyPortsAnnotation: "8001"},
		},
		Status: corev1.PodStatus{PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}, got)
	again, err := stripPod(got)
	require.NoError(t, err)
	assert.Equal(t, got, again)

	tombstone := cache.DeletedFinalStateUnknown{Key: "ns/a"}
	got, err = stripPod(tombstone)
	require.NoError(t, err)
	assert.Equal(t, tombstone, got)
}

func TestHandlerLooksAwayWhenNothingChanged(t *testing.T) {
	t.Parallel()
	base := func() *corev1.Pod { return pod("ns", "a", "10.0.0.1", maps.Clone(model)) }
	tests := []struct {
		name   string
		change func(p *corev1.Pod)
		want   int
	}{
		{name: "resync", change: func(*corev1.Pod) {}, want: 0},
		{name: "another condition", change: func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, want: 0},
		{name: "phase", change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, want: 0},
		{name: "unready", change: func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionFalse }, want: 1},
		{name: "readiness unknown", change: func(p *corev1.Pod) { p.Status.Conditions = nil }, want: 1},
		{name: "address", change: func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.2" }, want: 1},
		{name: "label", change: func(p *corev1.Pod) { p.Labels["app"] = "other" }, want: 1},
		{name: "going", change: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, want: 1},
		{name: "another annotation", change: func(p *corev1.Pod) { p.Annotations["large"] = "small" }, want: 0},
		{name: "active ports", change: func(p *corev1.Pod) { p.Annotations[activePortsAnnotation] = "8000" }, want: 1},
		{name: "active ports, empty", change: func(p *corev1.Pod) { p.Annotations[activePortsAnnotation] = "" }, want: 1},
		{name: "active ports, old name", change: func(p *corev1.Pod) { p.Annotations[legacyPortsAnnotation] = "8000" }, want: 1},
		{name: "metrics port", change: func(p *corev1.Pod) { p.Annotations[metricsPortAnnotation] = "8002" }, want: 1},
		{name: "another pod", change: func(p *corev1.Pod) { p.UID = "2" }, want: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			handler := onChange(func(_, _ *corev1.Pod) { calls++ }, samePod)
			before, err := stripPod(base())
			require.NoError(t, err)
			changed := base()
			tt.change(changed)
			after, err := stripPod(changed)
			require.NoError(t, err)
			handler.OnUpdate(before, after)
			assert.Equal(t, tt.want, calls)
			calls = 0
			handler.OnUpdate(after, before)
			assert.Equal(t, tt.want, calls, "and back")
		})
	}
}

func TestHandlerTellsOfOtherEvents(t *testing.T) {
	t.Parallel()
	calls := 0
	handler := onChange(func(_, _ *inferencev1.InferencePool) { calls++ }, samePool)
	handler.OnAdd(newInferencePool(model), true)
	handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/pool"})
	handler.OnUpdate("not", "a pool")
	assert.Equal(t, 3, calls)
	status := newInferencePool(model)
	status.Status.Parents = []inferencev1.ParentStatus{{}}
	handler.OnUpdate(newInferencePool(model), status)
	assert.Equal(t, 3, calls, "status does not count")
	recreated := newInferencePool(model)
	recreated.UID = "2"
	handler.OnUpdate(newInferencePool(model), recreated)
	assert.Equal(t, 4, calls)
}
