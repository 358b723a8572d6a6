//go:build system

package flow

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/edge-cache/internal/config"
)

// definition is a CRD whose objects may have any fields.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.%[1]s}
spec:
  group: %[1]s
  names: {plural: %[2]s, singular: %[3]s, kind: %[4]s, listKind: %[4]sList}
  scope: %[5]s
  versions:
  - name: %[6]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// define makes a custom kind, and returns a direct client for it.
func (w *world) define(group, version, plural, singular, kind, scope string) dynamic.NamespaceableResourceInterface {
	w.t.Helper()
	require.NoError(w.t, w.cluster.Apply(w.t.Context(), fmt.Sprintf(definition, group, plural, singular, kind, scope, version)))
	resource := schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
	client, err := dynamic.NewForConfig(w.cluster.RESTConfig())
	require.NoError(w.t, err)
	api := client.Resource(resource)
	require.Eventually(w.t, func() bool {
		_, err := api.List(w.t.Context(), metav1.ListOptions{})
		return err == nil
	}, kubetest.Patience, tick, "the API server does not serve %s", plural)
	return api
}

// TestMembershipFromANodePool takes the members from a NodePool object. Labels of nodes play no part.
func TestMembershipFromANodePool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pools := w.define("apps.openyurt.io", "v1beta2", "nodepools", "nodepool", "NodePool", "Cluster")
	w.node("member", "other") // its label is older than the pool
	w.node("joins", "")
	w.node("labeled", "edge")
	w.createSlice(slice("default", "a", "a-1", "member", "joins", "labeled"))
	e := w.edge("edge", func(c *config.Config) { c.Pool.Membership = config.NodePool })
	// Without the object, nobody knows the pool.
	require.Eventually(t, func() bool {
		got, err := tryAsk(e.rest(), slicesPath)
		return err == nil && got.code == http.StatusServiceUnavailable
	}, kubetest.Patience, tick)
	e.requireReadiness("the node pool has no nodes yet")

	set := func(nodes ...any) {
		pool := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": map[string]any{"name": "edge"},
			"status": map[string]any{"nodes": nodes},
		}}
		_, err := pools.Apply(t.Context(), "edge", pool, metav1.ApplyOptions{FieldManager: "test", Force: true})
		require.NoError(t, err)
	}
	set("member")
	other := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": map[string]any{"name": "labels"},
		"status": map[string]any{"nodes": []any{"labeled"}},
	}}
	_, err := pools.Create(t.Context(), other, metav1.CreateOptions{})
	require.NoError(t, err)
	e.ready()
	r := &recorder{}
	i := e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest()))
	_, err = i.AddEventHandler(r.handler())
	require.NoError(t, err)
	synced(t, i)
	e.requireMembers("member")

	set("member", "joins")
	before := r.waitUpdate(t, "a-1", 2)
	e.requireMembers("member", "joins")
	set("joins")
	after := r.waitUpdate(t, "a-1", 1)
	assert.Greater(t, after.ResourceVersion, before.ResourceVersion)
	assert.Equal(t, "joins", *after.Endpoints[0].NodeName)
	e.requireMembers("joins")

	w.network.set(linkCut)
	e.restart()
	e.ready()
	e.requireMembers("joins")
	w.network.set(linkUp)
	// A pool that is deleted keeps its last members.
	require.NoError(t, pools.Delete(t.Context(), "edge", metav1.DeleteOptions{}))
	e.online()
	time.Sleep(500 * time.Millisecond)
	e.requireMembers("joins")
}

// requireMembers waits until the controller sees exactly these nodes, and endpoints on no other.
func (e *edge) requireMembers(names ...string) {
	e.t.Helper()
	require.EventuallyWithT(e.t, func(c *assert.CollectT) {
		nodes, err := e.client().CoreV1().Nodes().List(e.t.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		var shown, endpoints []string
		for _, n := range nodes.Items {
			shown = append(shown, n.Name)
		}
		s, err := e.client().DiscoveryV1().EndpointSlices("default").Get(e.t.Context(), "a-1", metav1.GetOptions{})
		require.NoError(c, err)
		for _, endpoint := range s.Endpoints {
			endpoints = append(endpoints, *endpoint.NodeName)
		}
		assert.ElementsMatch(c, names, shown)
		assert.ElementsMatch(c, names, endpoints)
	}, kubetest.Patience, tick)
}

// requireReadiness waits until what /readyz says matches a regular expression. A cache that serves one kind may still be listing others.
func (e *edge) requireReadiness(want string) {
	e.t.Helper()
	require.EventuallyWithT(e.t, func(c *assert.CollectT) {
		request, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, "http://"+e.address("health")+"/readyz", nil)
		require.NoError(c, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(c, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(c, err)
		assert.Regexp(c, want, string(body))
	}, kubetest.Patience, tick)
}

// TestNamespacesOfTheController restricts the controller to some namespaces. The cache does not even read others.
func TestNamespacesOfTheController(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	for _, ns := range []string{"team-a", "team-b", "secret-team"} {
		w.namespace(ns)
		w.createSlice(slice(ns, "s", "s-1", "in-1"))
	}
	tenants := w.define("example.net", "v1", "tenants", "tenant", "Tenant", "Cluster")
	_, err := tenants.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.net/v1", "kind": "Tenant", "metadata": map[string]any{"name": "t-1"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	e := w.edge("edge", func(c *config.Config) {
		c.Client.Namespaces, c.Client.Resources = []string{"team-a", "team-b"}, []string{"example.net/v1/tenants@cluster"}
	})
	path := func(ns string) string { return "/apis/discovery.k8s.io/v1/namespaces/" + ns + "/endpointslices" }
	const tenantsPath = "/apis/example.net/v1/tenants"
	served := func() {
		t.Helper()
		for _, p := range []string{path("team-a"), path("team-b"), tenantsPath} {
			require.Eventually(t, func() bool {
				got, err := tryAsk(e.rest(), p)
				return err == nil && got.code == http.StatusOK
			}, kubetest.Patience, tick, p)
		}
	}
	served()
	check := func(t *testing.T) {
		t.Helper()
		for _, ns := range []string{"team-a", "team-b"} {
			assert.Len(t, ask(t, e.rest(), path(ns), values(), "").Items, 1, ns)
		}
		for refused, remedy := range map[string]string{
			path("secret-team"): "--namespaces", slicesPath: "--providers.kubernetesIngress.namespaces",
		} {
			got := ask(t, e.rest(), refused, values(), "")
			assert.Equal(t, http.StatusForbidden, got.code, refused)
			assert.Contains(t, string(got.body), remedy)
		}
		nodes := ask(t, e.rest(), "/api/v1/nodes", values(), "")
		assert.Len(t, nodes.Items, 1, "nodes have no namespace")
		assert.Len(t, ask(t, e.rest(), tenantsPath, values(), "").Items, 1)
	}
	check(t)
	for _, ns := range []string{"team-a", "team-b"} {
		i := e.sliceInformer(t, ns, "")
		synced(t, i)
		assert.Len(t, i.GetStore().List(), 1)
		w.createSlice(slice(ns, "s", "s-2", "in-1"))
		require.Eventually(t, func() bool { return len(i.GetStore().List()) == 2 }, kubetest.Patience, tick)
		require.NoError(t, w.direct.DiscoveryV1().EndpointSlices(ns).Delete(t.Context(), "s-2", metav1.DeleteOptions{}))
		require.Eventually(t, func() bool { return len(i.GetStore().List()) == 1 }, kubetest.Patience, tick)
	}
	w.network.set(linkCut)
	e.restart()
	served()
	check(t)
}

// TestCustomKinds serves custom resources that --resources names: one that exists, and one whose definition comes later. Others are
// refused.
func TestCustomKinds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	middlewares := w.define("traefik.io", "v1alpha1", "middlewares", "middleware", "Middleware", "Namespaced")
	w.define("traefik.io", "v1alpha1", "tlsstores", "tlsstore", "TLSStore", "Namespaced")
	_, err := middlewares.Namespace("default").Create(t.Context(), middleware("m-1"), metav1.CreateOptions{})
	require.NoError(t, err)
	e := w.edge("edge", func(c *config.Config) {
		c.Client.Resources = []string{"traefik.io/v1alpha1/middlewares", "example.com/v1/tenants"}
	}).ready()
	e.requireReadiness("^ok") // a custom kind that does not exist does not hold the controller up

	i := e.customInformer(t, "traefik.io", "v1alpha1", "middlewares")
	synced(t, i)
	assert.Equal(t, []string{"default/m-1"}, i.GetStore().ListKeys())
	_, err = middlewares.Namespace("default").Create(t.Context(), middleware("m-2"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(i.GetStore().ListKeys()) == 2 }, kubetest.Patience, tick)
	shown, exists, err := i.GetStore().GetByKey("default/m-1")
	require.NoError(t, err)
	require.True(t, exists)
	direct, err := middlewares.Namespace("default").Get(t.Context(), "m-1", metav1.GetOptions{})
	require.NoError(t, err)
	direct.SetManagedFields(nil)
	assert.Equal(t, direct.Object, shown.(*unstructured.Unstructured).Object, "custom kinds keep their versions and all fields")

	const path = "/apis/traefik.io/v1alpha1/middlewares"
	assert.Equal(t, http.StatusNotAcceptable, ask(t, e.rest(), path, values(), "application/vnd.kubernetes.protobuf").code)
	assert.Equal(t, "application/json", ask(t, e.rest(), path, values(), "application/vnd.kubernetes.protobuf,application/json").kind)
	refused := ask(t, e.rest(), "/apis/traefik.io/v1alpha1/tlsstores", values(), "")
	assert.Equal(t, http.StatusForbidden, refused.code)
	assert.Contains(t, string(refused.body), "--resources")

	// The definition of the second kind comes later.
	const tenantsPath = "/apis/example.com/v1/tenants"
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		missing := ask(t, e.rest(), tenantsPath, values(), "")
		assert.Equal(c, http.StatusServiceUnavailable, missing.code)
		assert.Contains(c, string(missing.body),
			"tenants were not listed yet, and none are on disk; the last attempt: API server: 404 NotFound")
	}, kubetest.Patience, tick)
	late := e.customInformer(t, "example.com", "v1", "tenants")
	w.define("example.com", "v1", "tenants", "tenant", "Tenant", "Cluster")
	require.Eventually(t, late.HasSynced, kubetest.Patience, 100*time.Millisecond, "the cache does not notice a new kind")

	w.network.set(linkCut)
	e.restart()
	e.ready()
	offline := e.customInformer(t, "traefik.io", "v1alpha1", "middlewares")
	synced(t, offline)
	assert.ElementsMatch(t, []string{"default/m-1", "default/m-2"}, offline.GetStore().ListKeys())
	assert.Equal(t, http.StatusOK, ask(t, e.rest(), tenantsPath, values(), "").code)
}

func middleware(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "traefik.io/v1alpha1", "kind": "Middleware", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"headers": map[string]any{"sslProxyHeaders": map[string]any{"X-Forwarded-Proto": "https"}, "big": int64(9007199254740993)},
		},
	}}
}

func (e *edge) customInformer(t *testing.T, group, version, plural string) cache.SharedIndexInformer {
	t.Helper()
	client, err := dynamic.NewForConfig(e.rest())
	require.NoError(t, err)
	api := client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: plural})
	return e.informer(clientKind{kind: &unstructured.Unstructured{}}, &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return api.Watch(ctx, o) },
	})
}
