//go:build system

package apply

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/pkg/kubetest/cluster"
)

// TestApplier shows in one API server what fakes cannot: managed fields, defaults and admission.
func TestApplier(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.ControlPlaneOnly)
	t.Run("steps", func(t *testing.T) { testSteps(t, c) })
	t.Run("changes inside lists", func(t *testing.T) { testChangesInsideLists(t, c) })
	t.Run("contradictions", func(t *testing.T) { testContradictions(t, c) })
	t.Run("node ports", func(t *testing.T) { testNodePorts(t, c) })
}

func testSteps(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	client := dynamic.NewForConfigOrDie(c.RESTConfig())
	require.NoError(t, c.Apply(t.Context(), `{apiVersion: v1, kind: ConfigMap, metadata: {name: owner, namespace: default}}`))
	owner, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default").Get(t.Context(), "owner", metav1.GetOptions{})
	require.NoError(t, err)
	uid := owner.GetUID()
	objects := client.Resource(services).Namespace("default")
	a := New(client, "test")
	live := func() *unstructured.Unstructured {
		u, err := objects.Get(t.Context(), "chat", metav1.GetOptions{})
		require.NoError(t, err)
		return u
	}
	apply := func(wanted, live *unstructured.Unstructured) Result {
		before := wanted.DeepCopy()
		stored, r, err := a.Apply(t.Context(), services, wanted, live)
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(before, wanted), "Apply does not modify wanted")
		assert.False(t, Differs(wanted, stored), "the stored object is up to date")
		assert.Contains(t, stored.Object, "status")
		return r
	}

	wanted := service(uid)
	assert.Equal(t, Created, apply(wanted, nil))
	assert.Equal(t, Unchanged, apply(wanted, nil), "the informer is stale")
	assert.Equal(t, Updated, apply(service(uid, with("back", "metadata", "labels", "tier")), nil), "the informer is stale, and the wanted object has changed")
	assert.Equal(t, Updated, apply(wanted, live()))
	first := live()
	assert.Equal(t, Unchanged, apply(wanted, first), "defaults of the API server are no difference")

	// Apply removes fields that are no longer wanted, even if Create set them, and keeps fields of other clients.
	_, err = objects.Patch(t.Context(), "chat", types.MergePatchType, []byte(`{"metadata":{"labels":{"not a name":"label"}}}`), metav1.PatchOptions{FieldManager: "kubectl"})
	require.Error(t, err, "invalid label name")
	_, err = objects.Patch(t.Context(), "chat", types.MergePatchType, []byte(`{"metadata":{"labels":{"theirs":"1"}}}`), metav1.PatchOptions{FieldManager: "kubectl"})
	require.NoError(t, err)
	smaller := service(uid, without("metadata", "labels", "tier"))
	assert.Equal(t, Updated, apply(smaller, live()))
	assert.Equal(t, map[string]string{"app": "chat", "theirs": "1"}, live().GetLabels())
	assert.Equal(t, Unchanged, apply(smaller, live()))

	// Apply reverts changes of other clients to wanted fields.
	_, err = objects.Patch(t.Context(), "chat", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"theirs"}},"spec":{"selector":{"app":"theirs"}}}`), metav1.PatchOptions{FieldManager: "kubectl"})
	require.NoError(t, err)
	assert.Equal(t, Updated, apply(smaller, live()))
	assert.Equal(t, "chat", live().GetLabels()["app"])

	// Apply removes elements that other clients have added to lists.
	_, err = objects.Patch(t.Context(), "chat", types.MergePatchType, []byte(`{"spec":{"ports":[{"name":"theirs","port":81},{"name":"http","port":80}]}}`), metav1.PatchOptions{FieldManager: "kubectl"})
	require.NoError(t, err)
	assert.Equal(t, Updated, apply(smaller, live()))
	ports, _, err := unstructured.NestedSlice(live().Object, "spec", "ports")
	require.NoError(t, err)
	assert.Len(t, ports, 1)
	assert.Equal(t, Unchanged, apply(smaller, live()))

	// Apply keeps an annotation that Annotate sets.
	note := func() string { return live().GetAnnotations()["note"] }
	require.NoError(t, a.Annotate(t.Context(), services, live(), "note", "old"))
	assert.Equal(t, "old", note())
	assert.Equal(t, Unchanged, apply(smaller, live()))
	require.Error(t, a.Annotate(t.Context(), services, first, "note", "older"), "stale version")
	require.NoError(t, a.Annotate(t.Context(), services, live(), "note", ""))
	assert.Empty(t, note())

	// Apply and Delete do not change an object of another owner, or one that was recreated with the same name.
	_, _, err = a.Apply(t.Context(), services, service("another"), live())
	require.ErrorIs(t, err, ErrForeign)
	_, _, err = a.Apply(t.Context(), services, service("another"), nil)
	require.ErrorIs(t, err, ErrForeign, "also if the informer does not have the object")
	require.ErrorIs(t, a.Delete(t.Context(), services, live(), "another"), ErrForeign)
	stale := live()
	require.NoError(t, objects.Delete(t.Context(), "chat", metav1.DeleteOptions{}))
	require.NoError(t, c.Apply(t.Context(), `{apiVersion: v1, kind: Service, metadata: {name: chat, namespace: default}, spec: {ports: [{port: 1}]}}`))
	_, _, err = a.Apply(t.Context(), services, service(uid, with("x", "metadata", "labels", "new")), stale)
	require.Error(t, err)
	assert.Empty(t, live().GetLabels())
	require.NoError(t, a.Delete(t.Context(), services, stale, uid), "the object no longer exists")
	assert.NotEmpty(t, live().GetUID(), "the recreated object is kept")

	require.NoError(t, objects.Delete(t.Context(), "chat", metav1.DeleteOptions{}))
	assert.Equal(t, Created, apply(wanted, nil))
	require.NoError(t, a.Delete(t.Context(), services, live(), uid))
	require.NoError(t, a.Delete(t.Context(), services, stale, uid))
}

// Another client adds a field to an element of a list. In a comparison of fields, it looks like a default of the API server.
func testChangesInsideLists(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	client := dynamic.NewForConfigOrDie(c.RESTConfig())
	ingresses := schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
	objects, a := client.Resource(ingresses).Namespace("default"), New(client, "test")
	wanted := func(secret string) *unstructured.Unstructured {
		return service("uid", func(u *unstructured.Unstructured) {
			u.SetAPIVersion("networking.k8s.io/v1")
			u.SetKind("Ingress")
			u.Object["spec"] = map[string]any{
				"defaultBackend": map[string]any{"service": map[string]any{"name": "a", "port": map[string]any{"number": int64(80)}}},
				"tls":            []any{map[string]any{"secretName": secret}},
			}
		})
	}
	live := func() *unstructured.Unstructured {
		u, err := objects.Get(t.Context(), "chat", metav1.GetOptions{})
		require.NoError(t, err)
		return u
	}
	settles := func(wanted *unstructured.Unstructured) {
		t.Helper()
		for range 3 {
			_, result, err := a.Apply(t.Context(), ingresses, wanted, live())
			require.NoError(t, err)
			if result == Unchanged {
				return
			}
		}
		t.Fatal("Apply does not settle")
	}
	first, _, err := a.Apply(t.Context(), ingresses, wanted("a"), nil)
	require.NoError(t, err)
	assert.False(t, Differs(wanted("a"), first))

	_, err = objects.Patch(t.Context(), "chat", types.MergePatchType, []byte(`{"spec":{"tls":[{"secretName":"a","hosts":["x.example.com"]}]}}`), metav1.PatchOptions{FieldManager: "kubectl"})
	require.NoError(t, err)
	assert.True(t, Differs(wanted("a"), live()))
	settles(wanted("a"))
	assert.Equal(t, []any{map[string]any{"secretName": "a"}}, live().Object["spec"].(map[string]any)["tls"])

	_, err = objects.Patch(t.Context(), "chat", types.MergePatchType, []byte(`{"spec":{"ingressClassName":"theirs"}}`), metav1.PatchOptions{FieldManager: "kubectl"})
	require.NoError(t, err)
	settles(wanted("a"))
	assert.Equal(t, "theirs", live().Object["spec"].(map[string]any)["ingressClassName"], "a field of another client is kept")

	second, result, err := a.Apply(t.Context(), ingresses, wanted("b"), live())
	require.NoError(t, err)
	assert.Equal(t, Updated, result)
	assert.False(t, Differs(wanted("b"), second), "a new specification needs only one apply")
}

// testContradictions: another client has changed a Service so that the wanted one cannot be merged into it.
func testContradictions(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	client := dynamic.NewForConfigOrDie(c.RESTConfig())
	objects, a := client.Resource(services).Namespace("default"), New(client, "test")
	_, _, err := a.Apply(t.Context(), services, service("uid"), nil)
	require.NoError(t, err)
	for _, patch := range []string{
		`{"spec": {"ports": [{"name": "http", "port": 81}]}}`, // an apply keeps it, and two ports cannot have one name
		`{"spec": {"selector": {"app": "chat", "track": "theirs"}}}`,
	} {
		_, err = objects.Patch(t.Context(), "chat", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl"})
		require.NoError(t, err)
		live, err := objects.Get(t.Context(), "chat", metav1.GetOptions{})
		require.NoError(t, err)
		require.True(t, Differs(service("uid"), live), patch)
		stored, _, err := a.Apply(t.Context(), services, service("uid"), live)
		require.NoError(t, err, patch)
		spec := stored.Object["spec"].(map[string]any)
		assert.Equal(t, map[string]any{"app": "chat"}, spec["selector"])
		require.Len(t, spec["ports"], 1)
		assert.Equal(t, int64(80), spec["ports"].([]any)[0].(map[string]any)["port"])
		assert.False(t, Differs(service("uid"), stored), patch)
	}
	_, _, err = a.Apply(t.Context(), services, service("uid", with([]any{map[string]any{"name": "http", "port": int64(-1)}}, "spec", "ports")), nil)
	require.ErrorContains(t, err, "Invalid value: -1", "the answer to the apply, not to the replacement of lists")
}

// testNodePorts gives new Services fixed node ports. The API server allocates one twice if it first applies to a stale object in its cache.
func testNodePorts(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	a := New(dynamic.NewForConfigOrDie(c.RESTConfig()), "test")
	for port := int64(30000); port < 30086; port++ { // the API server gives these only to Services that name them
		named := with(fmt.Sprintf("port-%d", port), "metadata", "name")
		live, _, err := a.Apply(t.Context(), services, service("uid", named), nil)
		require.NoError(t, err)
		_, result, err := a.Apply(t.Context(), services, service("uid", named, with("NodePort", "spec", "type"),
			with([]any{map[string]any{"name": "http", "port": int64(80), "nodePort": port}}, "spec", "ports")), live)
		require.NoError(t, err)
		assert.Equal(t, Updated, result)
	}
}
