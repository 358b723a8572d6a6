//go:build system

package ome_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// revisions returns the Services of revisions of a component.
func revisions(found map[string]corev1.Service, component string) []string {
	var list []string
	for name := range found {
		if strings.HasPrefix(name, component+"-rev-") {
			list = append(list, name)
		}
	}
	return list
}

// number returns a number of a status, or -1 if it is missing.
func number(u *unstructured.Unstructured, path ...string) int64 {
	n, found, _ := unstructured.NestedInt64(u.Object, path...)
	if !found {
		return -1
	}
	return n
}

// replica returns an InferenceReplica.
func (w *world) replica(c require.TestingT, name string) *unstructured.Unstructured {
	u, err := w.replicas.Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(c, err)
	return u
}

// gone asserts that a request returned 404.
func gone(c *assert.CollectT, err error) { assert.True(c, apierrors.IsNotFound(err), "got %v", err) }

func TestReleasesDiffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("name: lean, annotations: {emulator.fairlead.dev/runtime: \"engine,router\"}", "model: {name: llama}")
	w.service("name: scaled-to-zero", "engine: {minReplicas: 0}")
	w.service("name: native", "deploymentMode: OMENative, engine: {}")
	w.service("name: nodes", "engine: {leader: {runner: {name: e, ports: [{containerPort: 30000}]}}, worker: {size: 1}}")
	w.service("name: traffic", "engine: {}")
	w.eventually(func(c *assert.CollectT) {
		assert.ElementsMatch(c, []string{"native", "native-engine", "nodes", "nodes-engine", "traffic", "traffic-engine"}, names(w.services(c)))
	})
	found := w.services(t)
	assert.Equal(t, map[string]string{"ray.io/node-type": "head"}, found["nodes-engine"].Spec.Selector)
	assert.EqualValues(t, 30000, found["nodes-engine"].Spec.Ports[0].Port)
	w.settled()
	w.stop()
	w.patchStatus("traffic", `{"status":{"addresses":[{"name":"cluster-local","url":"http://x"}],"url":"http://elsewhere"}}`)

	w.start(release13)
	w.eventually(func(c *assert.CollectT) {
		found := w.services(c)
		for _, name := range []string{"lean", "lean-engine", "lean-router", "scaled-to-zero-engine"} {
			assert.Contains(c, found, name)
		}
		assert.Equal(c, map[string]string{
			"ome.io/inferenceservice": "nodes", "component": "engine", "ome.io/managed-by": "OMENative", "ome.io/runner": "leader", "ome.io/pod-ordinal": "0",
		}, found["nodes-engine"].Spec.Selector)
		assert.Len(c, revisions(found, "native-engine"), 1, "only the headless Service, because the container declares no ports")
		assert.Len(c, revisions(found, "nodes-engine"), 2)
		assert.Equal(c, "http://traffic.models.svc.cluster.local:8080", text(w.get(c, "traffic"), "status", "url"))
		assert.Equal(c, "True", conditions(w.get(c, "lean"))["Ready"])
	})
	_, kept, _ := unstructured.NestedSlice(w.get(t, "traffic").Object, "status", "addresses")
	assert.True(t, kept, "release 1.3 has this field")
	found = w.services(t)
	assert.Empty(t, revisions(found, "traffic-engine"))
	assert.Equal(t, map[string]string{"ome.io/inferenceservice": "nodes", "component": "engine"}, found["nodes"].Spec.Selector, "selects workers")
	w.settled()

	// The next write of release 1.2 removes the fields that it does not have.
	w.stop()
	w.patchStatus("traffic", `{"status":{"url":"http://elsewhere"}}`)
	w.start()
	w.eventually(func(c *assert.CollectT) {
		live := w.get(c, "traffic")
		assert.Equal(c, "http://traffic.models.svc.cluster.local:8080", text(live, "status", "url"))
		_, kept, _ := unstructured.NestedSlice(live.Object, "status", "addresses")
		assert.False(c, kept)
	})
}

func TestInferenceReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, release13)
	w.service("name: chat", "deploymentMode: OMENative, engine: {minReplicas: 2, runner: {name: e, ports: [{containerPort: 30000}]}}, router: {}")
	w.eventually(func(c *assert.CollectT) {
		assert.Equal(c, map[string]string{
			"Ready": "True", "IngressReady": "True IngressDisabled", "EngineReady": "True Ready", "RouterReady": "True Ready",
		}, conditions(w.get(c, "chat")))
	})
	replica := w.replica(t, "chat-engine")
	assert.Equal(t, "chat", replica.GetOwnerReferences()[0].Name)
	assert.Equal(t, "chat", text(replica, "spec", "parentRef", "name"))
	assert.EqualValues(t, 2, number(replica, "status", "servingReplicas"))
	live := w.get(t, "chat")
	assert.Equal(t, "InferenceReplica", text(live, "status", "components", "engine", "scaleTargetRef", "kind"))
	assert.Equal(t, "chat-engine", text(live, "status", "components", "engine", "scaleTargetRef", "name"))
	assert.EqualValues(t, 2, number(live, "status", "components", "engine", "lifecycle", "readyReplicas"))
	found := w.services(t)
	assert.Len(t, revisions(found, "chat-engine"), 2)
	for _, name := range append(revisions(found, "chat-engine"), "chat-engine-headless") {
		assert.Equal(t, "chat", found[name].Labels["ome.io/inferenceservice"], name)
		assert.Equal(t, "engine", found[name].Labels["component"], name)
	}
	assert.Equal(t, "InferenceReplica", found["chat-engine-headless"].OwnerReferences[0].Kind)
	assert.Equal(t, corev1.ClusterIPNone, found["chat-engine-headless"].Spec.ClusterIP)

	// One instance of two serves.
	w.patch("chat", `{"metadata":{"annotations":{"emulator.fairlead.dev/serving":"engine=1"}}}`)
	w.eventually(func(c *assert.CollectT) {
		live := w.get(c, "chat")
		assert.Equal(c, "False InsufficientAvailable", conditions(live)["EngineReady"])
		assert.EqualValues(c, 1, number(live, "status", "components", "engine", "lifecycle", "servingReplicas"))
		assert.EqualValues(c, 1, number(w.replica(c, "chat-engine"), "status", "readyReplicas"))
	})

	// A changed specification is a new revision.
	before := revisions(w.services(t), "chat-engine")
	w.patch("chat", `{"spec":{"engine":{"runner":{"name":"e","ports":[{"containerPort":9000}]}}}}`)
	w.eventually(func(c *assert.CollectT) {
		found := w.services(c)
		now := revisions(found, "chat-engine")
		assert.Len(c, now, 2)
		for _, name := range now {
			assert.NotContains(c, before, name)
			if !strings.HasSuffix(name, "-headless") {
				assert.EqualValues(c, 9000, found[name].Spec.Ports[0].Port)
			}
		}
	})

	// Another mode removes the InferenceReplicas and the Services of revisions, and selects the pods of Deployments.
	w.patch("chat", `{"metadata":{"annotations":{"emulator.fairlead.dev/serving":null}},"spec":{"deploymentMode":"RawDeployment"}}`)
	w.eventually(func(c *assert.CollectT) {
		_, err := w.replicas.Get(context.Background(), "chat-engine", metav1.GetOptions{})
		gone(c, err)
		found, live := w.services(c), w.get(c, "chat")
		assert.Empty(c, revisions(found, "chat-engine"))
		assert.Equal(c, map[string]string{"app": "chat-engine"}, found["chat-engine"].Spec.Selector)
		assert.Equal(c, "Deployment", text(live, "status", "components", "engine", "scaleTargetRef", "kind"))
		assert.EqualValues(c, -1, number(live, "status", "components", "engine", "lifecycle", "readyReplicas"))
	})
	w.settled()
}

const ownReplica = `{apiVersion: ome.io/v1beta1, kind: InferenceReplica, metadata: {namespace: models, name: blue, labels: {team: a}}, spec: {component: engine, replicas: 3,
  runners: [{name: leader, size: 1, template: {spec: {containers: [{name: e, image: own:1, ports: [{containerPort: 30000, name: http}]}]}}}, {name: worker, size: 1, template: {spec: {containers: [{name: w, image: own:1}]}}}]}}`

func TestReplicasOfAUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t, release13)
	w.service("name: chat", "replicaRefs: {engine: [blue]}")
	w.eventually(func(c *assert.CollectT) {
		live := w.get(c, "chat")
		assert.Equal(c, "False ReplicaRefMissing", conditions(live)["EngineReady"])
		assert.Empty(c, text(live, "status", "components", "engine", "scaleTargetRef", "name"))
		assert.NotContains(c, w.services(c), "chat-engine")
	})

	w.apply(ownReplica)
	w.eventually(func(c *assert.CollectT) {
		live := w.get(c, "chat")
		assert.Equal(c, "True Ready", conditions(live)["EngineReady"])
		assert.Equal(c, "blue", text(live, "status", "components", "engine", "scaleTargetRef", "name"))
	})
	found := w.services(t)
	engine := found["chat-engine"]
	assert.Equal(t, map[string]string{"ome.io/inferenceservice": "chat", "component": "engine"}, engine.Labels)
	assert.Equal(t, map[string]string{
		"ome.io/inferenceservice": "blue", "component": "engine", "ome.io/managed-by": "OMENative", "ome.io/runner": "leader", "ome.io/pod-ordinal": "0",
	}, engine.Spec.Selector)
	assert.EqualValues(t, 30000, engine.Spec.Ports[0].Port)
	assert.Equal(t, map[string]string{"ome.io/inferenceservice": "blue", "component": "engine"}, found["chat"].Spec.Selector)
	assert.Equal(t, "InferenceReplica", found["blue-engine-headless"].OwnerReferences[0].Kind)
	assert.Empty(t, w.replica(t, "blue").GetOwnerReferences())
	assert.EqualValues(t, 3, number(w.replica(t, "blue"), "status", "readyReplicas"))
	w.settled()

	// The service follows an InferenceReplica that it does not own.
	_, err := w.replicas.Patch(t.Context(), "blue", types.MergePatchType, []byte(`{"spec":{"component":"decoder"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	w.eventually(func(c *assert.CollectT) {
		live := w.get(c, "chat")
		assert.Equal(c, "False ReplicaRefInvalid", conditions(live)["EngineReady"])
		assert.Empty(c, text(live, "status", "components", "engine", "scaleTargetRef", "name"))
		assert.Contains(c, w.services(c), "chat-engine", "the Service stays")
	})
}
