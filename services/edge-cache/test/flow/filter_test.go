//go:build system

package flow

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/edge-cache/internal/config"
)

// recorder is a handler that ignores updates with an equal resourceVersion, as Traefik does.
type recorder struct {
	mu      sync.Mutex
	updates []*discoveryv1.EndpointSlice
	deleted int
}

func (r *recorder) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(was, is any) {
			before, after := was.(*discoveryv1.EndpointSlice), is.(*discoveryv1.EndpointSlice)
			if before.ResourceVersion == after.ResourceVersion {
				return
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.updates = append(r.updates, after)
		},
		DeleteFunc: func(any) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.deleted++
		},
	}
}

func (r *recorder) last() (*discoveryv1.EndpointSlice, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.updates) == 0 {
		return nil, 0
	}
	return r.updates[len(r.updates)-1], len(r.updates)
}

// waitUpdate waits for an update with a number of endpoints.
func (r *recorder) waitUpdate(t *testing.T, name string, endpoints int) *discoveryv1.EndpointSlice {
	t.Helper()
	var found *discoveryv1.EndpointSlice
	require.Eventually(t, func() bool {
		last, _ := r.last()
		if last != nil && last.Name == name && len(last.Endpoints) == endpoints {
			found = last
		}
		return found != nil
	}, kubetest.Patience, tick)
	return found
}

func TestMembershipIsAnUpdateWithANewVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.node("mover", "other")
	made := w.createSlice(slice("default", "a", "a-1", "in-1", "mover"))
	w.createSlice(slice("default", "b", "untouched", "in-1"))
	e := w.edge("edge").ready()
	r := &recorder{}
	i := e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest()))
	_, err := i.AddEventHandler(r.handler())
	require.NoError(t, err)
	synced(t, i)

	w.label("mover", "edge")
	first := r.waitUpdate(t, "a-1", 2)
	w.label("mover", "")
	second := r.waitUpdate(t, "a-1", 1)
	assert.Greater(t, second.ResourceVersion, first.ResourceVersion)
	assert.Equal(t, made.UID, second.UID)
	_, updates := r.last()
	assert.Equal(t, 2, updates, "only the slice of the node is sent again")

	// The last endpoint of the pool leaves: an update without endpoints, no deletion, no silence.
	require.NoError(t, w.direct.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "untouched", metav1.DeleteOptions{}))
	live, err := w.direct.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "a-1", metav1.GetOptions{})
	require.NoError(t, err)
	live.Endpoints = live.Endpoints[1:]
	_, err = w.direct.DiscoveryV1().EndpointSlices("default").Update(t.Context(), live, metav1.UpdateOptions{})
	require.NoError(t, err)
	empty := r.waitUpdate(t, "a-1", 0)
	assert.NotEmpty(t, empty.Ports)
	assert.Equal(t, 1, r.deleted)
}

func TestMembershipThatChangedWhileTheCacheWasDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.node("mover", "other")
	w.createSlice(slice("default", "a", "a-1", "in-1", "mover"))
	e := w.edge("edge").ready()
	r := &recorder{}
	i := e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest()))
	_, err := i.AddEventHandler(r.handler())
	require.NoError(t, err)
	synced(t, i)
	e.stop()
	w.label("mover", "edge")
	e.start()
	e.ready()
	r.waitUpdate(t, "a-1", 2)
	assert.Zero(t, r.deleted)
}

func TestEmptyPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createSlice(slice("default", "a", "a-1", "n1"))
	e := w.edge("edge")
	// A pool without nodes is a mistake: the cache is not ready, and shows no empty slices.
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + e.address("health") + "/readyz/stores")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, kubetest.Patience, tick)
	assert.Equal(t, http.StatusServiceUnavailable, ask(t, e.rest(), slicesPath, values(), "").code)
	w.node("n1", "edge")
	e.ready()
	i := e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest()))
	synced(t, i)
	e.converges(i)
	// A pool that loses its last node keeps it.
	w.label("n1", "")
	time.Sleep(300 * time.Millisecond)
	got, err := e.client().DiscoveryV1().EndpointSlices("default").Get(t.Context(), "a-1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Len(t, got.Endpoints, 1)
}

func TestTwoPoolsShareNothingAndMissNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, n := range []string{"a1", "a2"} {
		w.node(n, "a")
	}
	for _, n := range []string{"b1", "b2"} {
		w.node(n, "b")
	}
	w.createSlice(slice("default", "s", "s-1", "a1", "b1", "a2", "b2"))
	count := map[string]int{}
	for _, pool := range []string{"a", "b"} {
		e := w.edge(pool).ready()
		s, err := e.client().DiscoveryV1().EndpointSlices("default").Get(t.Context(), "s-1", metav1.GetOptions{})
		require.NoError(t, err)
		for _, endpoint := range s.Endpoints {
			count[*endpoint.NodeName]++
		}
		nodes, err := e.client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		assert.Len(t, nodes.Items, 2)
	}
	assert.Equal(t, map[string]int{"a1": 1, "a2": 1, "b1": 1, "b2": 1}, count)
}

func TestLegacyEndpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	address := func(ip, node string) corev1.EndpointAddress { return corev1.EndpointAddress{IP: ip, NodeName: &node} }
	ports := []corev1.EndpointPort{{Port: 80}}
	_, err := w.direct.CoreV1().Endpoints("default").Create(t.Context(), &corev1.Endpoints{ //nolint:staticcheck // old controllers read it
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Subsets: []corev1.EndpointSubset{ //nolint:staticcheck // as above
			{Addresses: []corev1.EndpointAddress{address("10.0.0.1", "in-1"), address("10.0.0.2", "out-1")}, Ports: ports},
			{NotReadyAddresses: []corev1.EndpointAddress{address("10.0.0.3", "out-1")}, Ports: ports},
			{NotReadyAddresses: []corev1.EndpointAddress{address("10.0.0.4", "in-1")}, Ports: []corev1.EndpointPort{{Port: 81}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	e := w.edge("edge", func(c *config.Config) { c.Client.Profile = "haproxy-ingress" }).ready()
	got, err := e.client().CoreV1().Endpoints("default").Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, got.Subsets, 2, "a subset without an address is not valid")
	total := 0
	for _, s := range got.Subsets {
		for _, a := range append(s.Addresses, s.NotReadyAddresses...) {
			total++
			assert.Equal(t, "in-1", *a.NodeName)
		}
	}
	assert.Equal(t, 2, total)
}
