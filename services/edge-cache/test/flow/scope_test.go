//go:build system

package flow

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kubetest"
)

// sliceInformer is an informer of a namespace, "" is all, with a label selector.
func (e *edge) sliceInformer(t *testing.T, namespace, selector string) cache.SharedIndexInformer {
	t.Helper()
	client, err := kubernetes.NewForConfig(e.rest())
	require.NoError(t, err)
	api := client.DiscoveryV1().EndpointSlices(namespace)
	return e.informer(clientKind{kind: &discoveryv1.EndpointSlice{}}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return api.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return api.Watch(ctx, o)
		},
	})
}

// TestScopesDoNotMix runs informers of one kind with different namespaces and selectors. Each sees its own part, online and offline.
func TestScopesDoNotMix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.namespace("team")
	w.createSlice(slice("default", "a", "a-1", "in-1"))
	w.createSlice(slice("team", "a", "a-2", "in-1"))
	w.createSlice(slice("team", "b", "b-1", "in-1"))
	e := w.edge("edge").ready()
	all, team := e.sliceInformer(t, "", ""), e.sliceInformer(t, "team", "")
	ofA, teamB := e.sliceInformer(t, "", "kubernetes.io/service-name=a"), e.sliceInformer(t, "team", "kubernetes.io/service-name=b")
	informers := []cache.SharedIndexInformer{all, team, ofA, teamB}
	for _, i := range informers {
		synced(t, i)
	}
	requireKeys := func(want ...[]string) {
		t.Helper()
		for n, i := range informers {
			require.EventuallyWithT(t,
				func(c *assert.CollectT) { assert.ElementsMatch(c, want[n], i.GetStore().ListKeys(), "informer %d", n) },
				kubetest.Patience, tick)
		}
	}
	requireKeys([]string{"default/kubernetes", "default/a-1", "team/a-2", "team/b-1"}, []string{"team/a-2", "team/b-1"},
		[]string{"default/a-1", "team/a-2"}, []string{"team/b-1"})

	w.createSlice(slice("default", "b", "b-2", "in-1"))
	w.createSlice(slice("team", "b", "b-3", "in-1"))
	require.NoError(t, w.direct.DiscoveryV1().EndpointSlices("team").Delete(t.Context(), "b-1", metav1.DeleteOptions{}))
	after := [][]string{
		{"default/kubernetes", "default/a-1", "default/b-2", "team/a-2", "team/b-3"}, {"team/a-2", "team/b-3"}, {"default/a-1", "team/a-2"},
		{"team/b-3"},
	}
	requireKeys(after...)

	w.network.set(linkCut)
	e.restart()
	e.ready()
	informers = []cache.SharedIndexInformer{
		e.sliceInformer(t, "", ""), e.sliceInformer(t, "team", ""), e.sliceInformer(t, "", "kubernetes.io/service-name=a"),
		e.sliceInformer(t, "team", "kubernetes.io/service-name=b"),
	}
	for _, i := range informers {
		synced(t, i)
	}
	requireKeys(after...)
}

// TestSlicesThatChangeTheirService relabels a slice, and deletes and creates a Service, online and during an outage. An index by service,
// as ingress controllers have one, never has a slice under two services, nor under one that it left.
func TestSlicesThatChangeTheirService(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	service := func(name string) *corev1.Service {
		made, err := w.direct.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		return made
	}
	service("a")
	service("b")
	w.createSlice(slice("default", "a", "x", "in-1", "out-1"))
	w.createSlice(slice("default", "a", "y", "in-1"))
	e := w.edge("edge").ready()
	all := e.sliceInformer(t, "", "")
	require.NoError(t, all.AddIndexers(cache.Indexers{"service": func(o any) ([]string, error) {
		return []string{o.(*discoveryv1.EndpointSlice).Labels[discoveryv1.LabelServiceName]}, nil
	}}))
	ofA, ofB := e.sliceInformer(t, "default", "kubernetes.io/service-name=a"), e.sliceInformer(t, "default", "kubernetes.io/service-name=b")
	services := e.serviceInformer(t)
	for _, i := range []cache.SharedIndexInformer{all, ofA, ofB, services} {
		synced(t, i)
	}
	requireSlices := func(a, b []string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			for service, want := range map[string][]string{"a": a, "b": b} {
				indexed, err := all.GetIndexer().IndexKeys("service", service)
				require.NoError(c, err)
				assert.ElementsMatch(c, want, indexed, service)
			}
			assert.ElementsMatch(c, a, ofA.GetStore().ListKeys())
			assert.ElementsMatch(c, b, ofB.GetStore().ListKeys())
		}, kubetest.Patience, tick)
		e.converges(all)
	}
	relabel := func(name, service string) {
		t.Helper()
		_, err := w.direct.DiscoveryV1().EndpointSlices("default").Patch(t.Context(), name, "application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"kubernetes.io/service-name":"`+service+`"}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	replace := func(name string) {
		t.Helper()
		require.NoError(t, w.direct.CoreV1().Services("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
		want := service(name)
		if w.network.is(linkCut) {
			w.network.set(linkUp)
		}
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			got, exists, err := services.GetStore().GetByKey("default/" + name)
			require.NoError(c, err)
			require.True(c, exists)
			assert.Equal(c, want.UID, got.(*corev1.Service).UID)
		}, kubetest.Patience, tick)
	}
	requireSlices([]string{"default/x", "default/y"}, nil)
	relabel("x", "b")
	requireSlices([]string{"default/y"}, []string{"default/x"})
	replace("a")
	requireSlices([]string{"default/y"}, []string{"default/x"})

	w.network.set(linkCut)
	relabel("y", "b")
	relabel("x", "a")
	require.NoError(t, w.direct.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "y", metav1.DeleteOptions{}))
	w.createSlice(slice("default", "b", "y", "in-1")) // the same name, another slice
	replace("b")
	requireSlices([]string{"default/x"}, []string{"default/y"})
}

func (e *edge) serviceInformer(t *testing.T) cache.SharedIndexInformer {
	t.Helper()
	client, err := kubernetes.NewForConfig(e.rest())
	require.NoError(t, err)
	api := client.CoreV1().Services("")
	return e.informer(clientKind{kind: &corev1.Service{}}, &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return api.Watch(ctx, o) },
	})
}
