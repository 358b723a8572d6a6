//go:build system

package ome_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/emulators/ome"
)

func TestDeployments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *ome.Options) { o.PodImage, o.PodArgs = "server:1", []string{"--port=8080"} })
	w.service("name: chat, labels: {team: a}, annotations: {note: one}",
		"engine: {minReplicas: 2, runner: {name: e, args: [--port=9000], ports: [{containerPort: 9000}]}}, router: {leader: {}, runner: {name: r, image: own:1}}")
	w.eventually(func(c *assert.CollectT) {
		assert.Equal(c, "False Initializing", conditions(w.get(c, "chat"))["EngineReady"])
		assert.Equal(c, "False Initializing", conditions(w.get(c, "chat"))["RouterReady"])
	})
	deployments := w.kube.AppsV1().Deployments(namespace)
	engine, err := deployments.Get(t.Context(), "chat-engine", metav1.GetOptions{})
	require.NoError(t, err)
	router, err := deployments.Get(t.Context(), "chat-router", metav1.GetOptions{})
	require.NoError(t, err)
	pods := engine.Spec.Template
	assert.Equal(t, "server:1", pods.Spec.Containers[0].Image)
	assert.Equal(t, "own:1", router.Spec.Template.Spec.Containers[0].Image)
	assert.Equal(t, []string{"--port=9000"}, pods.Spec.Containers[0].Args)
	assert.Equal(t, []string{"--port=8080"}, router.Spec.Template.Spec.Containers[0].Args)
	assert.Equal(t, 9000, pods.Spec.Containers[0].ReadinessProbe.TCPSocket.Port.IntValue())
	assert.Equal(t, 8080, router.Spec.Template.Spec.Containers[0].ReadinessProbe.TCPSocket.Port.IntValue())
	assert.EqualValues(t, 2, *engine.Spec.Replicas)
	assert.Equal(t, "chat", engine.OwnerReferences[0].Name)
	assert.Equal(t, "a", pods.Labels["team"])
	assert.Equal(t, "one", pods.Annotations["note"])
	for key, value := range w.services(t)["chat"].Spec.Selector {
		assert.Equal(t, value, router.Spec.Template.Labels[key], key)
	}
	for key, value := range w.services(t)["chat-engine"].Spec.Selector {
		assert.Equal(t, value, pods.Labels[key], key)
	}

	// Readiness and observedGeneration come from Deployments.
	before := w.settled()
	_, err = deployments.Patch(t.Context(), "chat-engine", types.MergePatchType, []byte(
		`{"status":{"observedGeneration":7,"conditions":[{"type":"Available","status":"True","reason":"MinimumReplicasAvailable"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	_, err = deployments.Patch(t.Context(), "chat-router", types.MergePatchType, []byte(
		`{"status":{"observedGeneration":5,"conditions":[{"type":"Available","status":"False","reason":"MinimumReplicasUnavailable"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	w.eventually(func(c *assert.CollectT) {
		live := w.get(c, "chat")
		assert.Equal(c, "True MinimumReplicasAvailable", conditions(live)["EngineReady"])
		assert.Equal(c, "False MinimumReplicasUnavailable", conditions(live)["RouterReady"])
		observed, _, _ := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
		assert.EqualValues(c, 5, observed)
	})
	update := ome.Write{Verb: "update", Kind: "Deployment"}
	assert.Equal(t, before[update], w.settled()[update])

	// A new annotation of the InferenceService restarts pods.
	w.patch("chat", `{"metadata":{"annotations":{"note":"two"}}}`)
	w.eventually(func(c *assert.CollectT) {
		engine, err := deployments.Get(context.Background(), "chat-engine", metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, "two", engine.Spec.Template.Annotations["note"])
	})
	// The Deployment of a removed component is deleted.
	w.patch("chat", `{"spec":{"router":null}}`)
	w.eventually(func(c *assert.CollectT) {
		_, err := deployments.Get(context.Background(), "chat-router", metav1.GetOptions{})
		assert.True(c, apierrors.IsNotFound(err), "got %v", err)
		assert.NotContains(c, w.services(c), "chat-router")
		assert.Equal(c, "engine", w.services(c)["chat"].Spec.Selector["component"])
	})
	w.settled()
}

// TestAutoscalers: OME makes an autoscaler for a Deployment, or keeps the replicas that another program writes.
func TestAutoscalers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *ome.Options) { o.PodImage = "server:1" })
	w.service("name: chat", "engine: {minReplicas: 2, maxReplicas: 4}")
	deployments, autoscalers := w.kube.AppsV1().Deployments(namespace), w.kube.AutoscalingV2().HorizontalPodAutoscalers(namespace)
	w.eventually(func(c *assert.CollectT) {
		hpa, err := autoscalers.Get(context.Background(), "chat-engine", metav1.GetOptions{})
		require.NoError(c, err)
		assert.EqualValues(c, 2, *hpa.Spec.MinReplicas)
		assert.EqualValues(c, 4, hpa.Spec.MaxReplicas)
		assert.Equal(c, "chat-engine", hpa.Spec.ScaleTargetRef.Name)
		assert.Equal(c, "chat", hpa.OwnerReferences[0].Name)
	})
	w.patch("chat", `{"metadata":{"annotations":{"ome.io/autoscalerClass":"external"}}}`)
	w.eventually(func(c *assert.CollectT) {
		_, err := autoscalers.Get(context.Background(), "chat-engine", metav1.GetOptions{})
		assert.True(c, apierrors.IsNotFound(err), "got %v", err)
		engine, err := deployments.Get(context.Background(), "chat-engine", metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, "external", engine.Annotations[ome.AnnotationAutoscaler])
	})
	_, err := deployments.Patch(t.Context(), "chat-engine", types.MergePatchType, []byte(`{"spec":{"replicas":7}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	w.patch("chat", `{"metadata":{"annotations":{"note":"two"}},"spec":{"engine":{"minReplicas":1}}}`)
	w.eventually(func(c *assert.CollectT) {
		engine, err := deployments.Get(context.Background(), "chat-engine", metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, "two", engine.Annotations["note"])
		assert.EqualValues(c, 7, *engine.Spec.Replicas)
	})
	w.settled()
}

func TestPodsOfLeadersAndWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, release13, func(o *ome.Options) { o.PodImage = "server:1" })
	w.service("name: chat", "engine: {leader: {runner: {name: e, ports: [{containerPort: 30000}]}}, worker: {size: 2}}")
	deployments := w.kube.AppsV1().Deployments(namespace)
	ready := func(name string, n string) {
		w.eventually(func(c *assert.CollectT) {
			_, err := deployments.Patch(context.Background(), name, types.MergePatchType, []byte(`{"status":{"replicas":`+n+`,"readyReplicas":`+n+`}}`), metav1.PatchOptions{}, "status")
			assert.NoError(c, err)
		})
	}
	ready("chat-engine-leader", "1")
	ready("chat-engine-worker", "1")
	w.settled()
	assert.Equal(t, "False InsufficientAvailable", conditions(w.get(t, "chat"))["EngineReady"], "an instance includes its workers")
	ready("chat-engine-worker", "2")
	w.eventually(func(c *assert.CollectT) { assert.Equal(c, "True Ready", conditions(w.get(c, "chat"))["EngineReady"]) })

	// A service in another mode has other Deployments.
	w.patch("chat", `{"spec":{"engine":{"annotations":{"ome.io/deploymentMode":"MultiNode"}}}}`)
	w.eventually(func(c *assert.CollectT) {
		list, err := deployments.List(context.Background(), metav1.ListOptions{})
		require.NoError(c, err)
		var found []string
		for i := range list.Items {
			found = append(found, list.Items[i].Name)
		}
		assert.ElementsMatch(c, []string{"chat-engine-lws", "chat-engine-lws-worker"}, found)
	})
	w.patch("chat", `{"spec":{"engine":{"annotations":null}}}`)
	w.eventually(func(c *assert.CollectT) {
		_, err := deployments.Get(context.Background(), "chat-engine-lws-worker", metav1.GetOptions{})
		gone(c, err)
	})
	w.patch("chat", `{"spec":{"deploymentMode":"RawDeployment"}}`)
	w.eventually(func(c *assert.CollectT) {
		for _, name := range []string{"chat-engine-leader", "chat-engine-worker"} {
			_, err := deployments.Get(context.Background(), name, metav1.GetOptions{})
			gone(c, err)
		}
		_, err := deployments.Get(context.Background(), "chat-engine", metav1.GetOptions{})
		assert.NoError(c, err)
	})
	w.settled()
}

// OME 1.2 writes a LeaderWorkerSet beside the Deployment of the mode before, which stays.
func TestDeploymentOfTheModeBeforeStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *ome.Options) { o.PodImage = "server:1" })
	w.service("name: chat", "engine: {}")
	names := func(want ...string) {
		w.eventually(func(c *assert.CollectT) {
			list, err := w.kube.AppsV1().Deployments(namespace).List(context.Background(), metav1.ListOptions{})
			require.NoError(c, err)
			var found []string
			for i := range list.Items {
				found = append(found, list.Items[i].Name)
			}
			assert.ElementsMatch(c, want, found)
		})
	}
	names("chat-engine")
	w.patch("chat", `{"spec":{"engine":{"leader":{},"worker":{"size":1}}}}`)
	names("chat-engine", "chat-engine-lws", "chat-engine-lws-worker")
	w.settled()
	assert.Equal(t, map[string]string{"ray.io/node-type": "head"}, w.services(t)["chat-engine"].Spec.Selector)
}
