package ome_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/pkg/kubetest/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	namespace = "models"
	patience  = 30 * time.Second
)

// world is a control plane with OME's objects, and an OME in it.
type world struct {
	*testing.T
	cluster *cluster.Cluster
	kube    kubernetes.Interface
	isvc    dynamic.ResourceInterface
	ome     *ome.Emulator
	stop    func()
}

// newWorld starts a control plane with the CRD and the ConfigMap, and an emulator.
func newWorld(t *testing.T, change ...func(*ome.Options)) *world {
	t.Helper()
	w := newCluster(t)
	w.start(change...)
	return w
}

// newCluster is newWorld without an emulator yet.
func newCluster(t *testing.T) *world {
	t.Helper()
	c := cluster.Start(t, cluster.ControlPlaneOnly)
	for _, name := range []string{"ome", namespace} {
		_, err := c.Kubectl(t.Context(), "create", "namespace", name)
		require.NoError(t, err)
	}
	require.NoError(t, c.Apply(t.Context(), ome.CRD()))
	require.NoError(t, c.Apply(t.Context(), ome.Config()))
	_, err := c.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd/inferenceservices.ome.io")
	require.NoError(t, err)
	gvr := schema.GroupVersionResource{Group: "ome.io", Version: "v1beta1", Resource: "inferenceservices"}
	return &world{T: t, cluster: c, kube: c.Clientset(), isvc: dynamic.NewForConfigOrDie(c.RESTConfig()).Resource(gvr).Namespace(namespace)}
}

// start runs an emulator until stop is called or the test ends.
func (w *world) start(change ...func(*ome.Options)) {
	w.Helper()
	options := ome.DefaultOptions()
	for _, f := range change {
		f(&options)
	}
	e, err := ome.New(ome.Params{Options: options, Config: w.cluster.RESTConfig(), Log: zaptest.NewLogger(w)})
	require.NoError(w, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	w.ome = e
	stopped := false
	w.stop = func() {
		if !stopped {
			cancel()
			assert.NoError(w, <-ended)
		}
		stopped = true
	}
	w.Cleanup(w.stop)
	require.Eventually(w, e.Synced, patience, 10*time.Millisecond)
}

// apply is kubectl apply in the namespace.
func (w *world) apply(manifest string) {
	w.Helper()
	require.NoError(w, w.cluster.Apply(w.Context(), manifest))
}

// service makes an InferenceService with metadata and spec in YAML's short form.
func (w *world) service(metadata, spec string) types.UID {
	w.Helper()
	w.apply("{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {namespace: models, " + metadata + "}, spec: {" + spec + "}}")
	live, err := w.isvc.List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	return live.Items[0].GetUID()
}

func (w *world) patch(name, patch string) {
	w.Helper()
	_, err := w.isvc.Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(w, err)
}

func (w *world) patchStatus(name, patch string) {
	w.Helper()
	_, err := w.isvc.Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(w, err)
}

// configure changes keys of OME's ingress configuration.
func (w *world) configure(change map[string]any) {
	w.Helper()
	maps := w.kube.CoreV1().ConfigMaps("ome")
	live, err := maps.Get(w.Context(), ome.ConfigName, metav1.GetOptions{})
	require.NoError(w, err)
	values := map[string]any{}
	require.NoError(w, json.Unmarshal([]byte(live.Data["ingress"]), &values))
	for key, value := range change {
		values[key] = value
	}
	text, err := json.Marshal(values)
	require.NoError(w, err)
	live.Data["ingress"] = string(text)
	_, err = maps.Update(w.Context(), live, metav1.UpdateOptions{})
	require.NoError(w, err)
}

// eventually waits until check asserts nothing that does not hold.
func (w *world) eventually(check func(*assert.CollectT)) {
	w.Helper()
	require.EventuallyWithT(w, check, patience, 20*time.Millisecond)
}

func (w *world) get(c require.TestingT, name string) *unstructured.Unstructured {
	u, err := w.isvc.Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(c, err)
	return u
}

// conditions returns status and reason by type.
func conditions(u *unstructured.Unstructured) map[string]string {
	found := map[string]string{}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range list {
		c := item.(map[string]any)
		text, _ := c["status"].(string)
		if reason, ok := c["reason"].(string); ok {
			text += " " + reason
		}
		found[c["type"].(string)] = text
	}
	return found
}

func text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}

// services returns those of the namespace by name.
func (w *world) services(c require.TestingT) map[string]corev1.Service {
	list, err := w.kube.CoreV1().Services(namespace).List(context.Background(), metav1.ListOptions{})
	require.NoError(c, err)
	found := map[string]corev1.Service{}
	for i := range list.Items {
		found[list.Items[i].Name] = list.Items[i]
	}
	return found
}

func names[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for name := range m {
		list = append(list, name)
	}
	return list
}

// settled waits until nothing has been written for some time, and returns what was by then.
func (w *world) settled() map[ome.Write]int {
	w.Helper()
	const quiet = 500 * time.Millisecond
	deadline := time.Now().Add(patience)
	for before := w.ome.Writes(); ; {
		time.Sleep(quiet)
		after := w.ome.Writes()
		if assert.ObjectsAreEqual(before, after) {
			return after
		}
		require.True(w, time.Now().Before(deadline), "it goes on writing: %v, then %v", before, after)
		before = after
	}
}

func TestShippedDefaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	uid := w.service("name: chat, labels: {team: a}, annotations: {service.beta.kubernetes.io/x: \"1\", note: text}", "model: {name: llama}, runtime: {name: srt}, "+
		"engine: {runner: {name: e, ports: [{containerPort: 30000, name: http1}, {containerPort: 9000, name: metrics}]}}, router: {}, decoder: {}")
	w.eventually(func(c *assert.CollectT) {
		live := w.get(c, "chat")
		assert.Equal(c, map[string]string{
			"Ready": "True", "IngressReady": "True IngressDisabled", "EngineReady": "True", "RouterReady": "True", "DecoderReady": "True",
		}, conditions(live))
		assert.Equal(c, []string{ome.Finalizer}, live.GetFinalizers())
		assert.Equal(c, "http://chat.models.svc.cluster.local:8080", text(live, "status", "url"))
		assert.Equal(c, "http://chat.models.svc.cluster.local:8080", text(live, "status", "address", "url"))
		assert.Equal(c, "http://chat-engine.models.svc.cluster.local", text(live, "status", "components", "engine", "url"))
	})
	found := w.services(t)
	assert.ElementsMatch(t, []string{"chat", "chat-engine", "chat-decoder", "chat-router"}, names(found))
	yes := true
	owner := []metav1.OwnerReference{{APIVersion: "ome.io/v1beta1", Kind: "InferenceService", Name: "chat", UID: uid, Controller: &yes, BlockOwnerDeletion: &yes}}
	for name, s := range found {
		assert.Equal(t, owner, s.OwnerReferences, name)
	}

	engine := found["chat-engine"]
	assert.Equal(t, map[string]string{
		"team": "a", "ome.io/inferenceservice": "chat", "component": "engine", "serving-runtime": "srt", "base-model-name": "llama",
	}, engine.Labels)
	assert.Equal(t, "text", engine.Annotations["note"])
	assert.NotContains(t, engine.Annotations, corev1.LastAppliedConfigAnnotation)
	assert.Equal(t, map[string]string{"app": "chat-engine"}, engine.Spec.Selector)
	assert.Equal(t, []int32{30000, 9000}, []int32{engine.Spec.Ports[0].Port, engine.Spec.Ports[1].Port})
	assert.Equal(t, "http1", engine.Spec.Ports[0].Name)
	assert.EqualValues(t, 8080, found["chat-router"].Spec.Ports[0].Port)
	assert.Equal(t, "ome-container", found["chat-router"].Spec.Ports[0].Name)

	external := found["chat"]
	assert.Equal(t, map[string]string{"ome.io/inferenceservice": "chat", "component": "external-service"}, external.Labels)
	assert.Equal(t, map[string]string{"service.beta.kubernetes.io/x": "1"}, external.Annotations)
	assert.Equal(t, map[string]string{"ome.io/inferenceservice": "chat", "component": "router"}, external.Spec.Selector)
	assert.Equal(t, corev1.ServiceTypeClusterIP, external.Spec.Type)
	require.Len(t, external.Spec.Ports, 1)
	assert.Equal(t, "http", external.Spec.Ports[0].Name)

	writes := w.settled()
	assert.Equal(t, 4, writes[ome.Write{Verb: "create", Kind: "Service"}])
	assert.Zero(t, writes[ome.Write{Verb: "update", Kind: "Service"}])
}

func TestStatusIsRewritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("name: chat", "engine: {}")
	ready := func(c *assert.CollectT) { assert.Equal(c, "True", conditions(w.get(c, "chat"))["Ready"]) }
	w.eventually(ready)
	live := w.get(t, "chat")

	// A condition of somebody else's, with one field too many, and a field that OME does not know, are no difference.
	list, _, err := unstructured.NestedSlice(live.Object, "status", "conditions")
	require.NoError(t, err)
	list = append(list, map[string]any{"type": "fairlead.dev/Programmed", "status": "True", "reason": "Programmed", "observedGeneration": int64(1), "lastTransitionTime": "2026-11-01T10:00:00Z"})
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": list, "fairlead": "x"}})
	require.NoError(t, err)
	before := w.settled()
	w.patchStatus("chat", string(patch))
	assert.Equal(t, before, w.settled())

	// The URL is OME's. With it all that OME does not know is lost, and the condition is kept with six fields.
	w.patchStatus("chat", `{"status":{"url":"http://elsewhere","address":{"url":"http://elsewhere"}}}`)
	w.eventually(func(c *assert.CollectT) {
		live := w.get(c, "chat")
		assert.Equal(c, "http://chat.models.svc.cluster.local:8080", text(live, "status", "url"))
		assert.Equal(c, "http://chat.models.svc.cluster.local:8080", text(live, "status", "address", "url"))
	})
	live = w.get(t, "chat")
	assert.Empty(t, text(live, "status", "fairlead"))
	assert.Equal(t, "True Programmed", conditions(live)["fairlead.dev/Programmed"])
	list, _, err = unstructured.NestedSlice(live.Object, "status", "conditions")
	require.NoError(t, err)
	assert.Contains(t, list, map[string]any{"type": "fairlead.dev/Programmed", "status": "True", "reason": "Programmed", "lastTransitionTime": "2026-11-01T10:00:00Z"})
	w.settled()

	// In VirtualDeployment the whole list is OME's.
	w.patch("chat", `{"metadata":{"annotations":{"ome.io/deploymentMode":"VirtualDeployment"}}}`)
	w.eventually(func(c *assert.CollectT) {
		live := w.get(c, "chat")
		assert.Equal(c, map[string]string{"Ready": "True VirtualDeployment"}, conditions(live))
		assert.Equal(c, "http://chat.models.svc.cluster.local", text(live, "status", "url"))
		assert.Equal(c, "http://chat.models.svc.cluster.local", text(live, "status", "components", "predictor", "url"))
	})
	w.settled()
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service(`name: chat, annotations: {emulator.fairlead.dev/ready: ""}`, "engine: {}, router: {}")
	w.eventually(func(c *assert.CollectT) {
		live := w.get(c, "chat")
		assert.Equal(c, map[string]string{
			"Ready": "False Initializing", "IngressReady": "True IngressDisabled", "EngineReady": "False Initializing", "RouterReady": "False Initializing",
		}, conditions(live))
		assert.Empty(c, text(live, "status", "components", "engine", "url"))
	})
	w.patch("chat", `{"metadata":{"annotations":{"emulator.fairlead.dev/ready":"engine"}}}`)
	w.eventually(func(c *assert.CollectT) {
		assert.Equal(c, map[string]string{
			"Ready": "True", "IngressReady": "True IngressDisabled", "EngineReady": "True", "RouterReady": "False Initializing",
		}, conditions(w.get(c, "chat")))
	})
	w.patch("chat", `{"metadata":{"annotations":{"emulator.fairlead.dev/ready":"router"}}}`)
	w.eventually(func(c *assert.CollectT) {
		live := w.get(c, "chat")
		assert.Equal(c, map[string]string{
			"Ready": "False MinimumReplicasUnavailable", "IngressReady": "True IngressDisabled",
			"EngineReady": "False MinimumReplicasUnavailable", "RouterReady": "True",
		}, conditions(live))
		assert.NotEmpty(c, text(live, "status", "components", "engine", "url"), "it stays once it is known")
	})
	w.settled()
}

func TestCleanUp(t *testing.T) {
	t.Parallel()
	w := newCluster(t)
	w.apply(virtualServiceCRD)
	_, err := w.cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd/virtualservices.networking.istio.io")
	require.NoError(t, err)
	w.start()
	uid := string(w.service("name: chat", "engine: {}, decoder: {}"))
	w.eventually(func(c *assert.CollectT) { assert.Equal(c, "True", conditions(w.get(c, "chat"))["Ready"]) })

	object := func(kind, name, labels, owner string) {
		w.apply("{apiVersion: " + kind + ", metadata: {namespace: models, name: " + name + ", labels: {ome.io/inferenceservice: chat" + labels +
			"}, ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: " + owner + "}]}" + map[string]string{
			"networking.k8s.io/v1, kind: Ingress": ", spec: {defaultBackend: {service: {name: x, port: {number: 80}}}}", "v1, kind: Service": ", spec: {ports: [{port: 80}]}",
		}[kind] + "}")
	}
	const ingress, service, configMap, virtual = "networking.k8s.io/v1, kind: Ingress", "v1, kind: Service", "v1, kind: ConfigMap", "networking.istio.io/v1beta1, kind: VirtualService"
	for _, kind := range []string{ingress, service, configMap, virtual} {
		object(kind, "stays-no-component", "", uid)
		object(kind, "stays-active", ", component: engine", uid)
		object(kind, "stays-other-owner", ", component: route", "someone")
		object(kind, "goes-unknown", ", component: route", uid)
	}
	object(configMap, "goes-external", ", component: external-service", uid) // only a Service may be that
	w.patch("chat", `{"spec":{"decoder":null}}`)
	kept := []string{"stays-active", "stays-no-component", "stays-other-owner"}
	list := func(c require.TestingT, kind string) []string {
		out, err := w.cluster.Kubectl(context.Background(), "get", kind, "-n", namespace, "-l", "ome.io/inferenceservice", "-o", `jsonpath={.items[*].metadata.name}`)
		require.NoError(c, err)
		return strings.Fields(out)
	}
	w.eventually(func(c *assert.CollectT) {
		assert.Equal(c, append([]string{"chat", "chat-engine"}, kept...), list(c, "services"))
		assert.Equal(c, kept, list(c, "configmaps"))
		assert.Equal(c, kept, list(c, "ingresses"))
		assert.Equal(c, kept, list(c, "virtualservices.networking.istio.io"))
		live := w.get(c, "chat")
		components, _, _ := unstructured.NestedMap(live.Object, "status", "components")
		assert.NotContains(c, components, "decoder")
		assert.Equal(c, "True", conditions(live)["DecoderReady"], "conditions are never removed")
	})
	w.settled()
}

func TestServiceOfItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	somebodys := "{apiVersion: v1, kind: Service, metadata: {namespace: models, name: chat, labels: {theirs: \"1\"}}, spec: {ports: [{port: 80}], selector: {app: theirs}}}"
	w.apply(somebodys)
	w.service(`name: chat, annotations: {ome.io/service-type: NodePort}`, "engine: {}")

	// It is taken over, though not owned.
	w.eventually(func(c *assert.CollectT) {
		s := w.services(c)["chat"]
		assert.Equal(c, corev1.ServiceTypeNodePort, s.Spec.Type)
		assert.Equal(c, "external-service", s.Labels["component"])
		assert.Equal(c, "engine", s.Spec.Selector["component"])
		assert.Empty(c, s.OwnerReferences)
		assert.Equal(c, corev1.ServiceTypeNodePort, w.services(c)["chat-engine"].Spec.Type, "and so has the component's that type")
	})
	// What is given to a port of nodes is a difference with every reconcile, if one that comes to nothing.
	before := w.settled()
	w.patch("chat", `{"metadata":{"annotations":{"note":"1"}}}`)
	w.eventually(func(c *assert.CollectT) {
		update := ome.Write{Verb: "update", Kind: "Service"}
		assert.Greater(c, w.ome.Writes()[update], before[update])
	})
	w.settled()

	// Switched on, OME deletes any Service of that name.
	w.patch("chat", `{"metadata":{"annotations":{"ome.io/ingress-disable-creation":"false"}}}`)
	w.eventually(func(c *assert.CollectT) { assert.NotContains(c, w.services(c), "chat") })
	w.apply(somebodys)
	w.patch("chat", `{"metadata":{"annotations":{"note":"2"}}}`)
	w.eventually(func(c *assert.CollectT) { assert.NotContains(c, w.services(c), "chat") })
}

func TestIngressOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure(map[string]any{"disableIngressCreation": false, "ingressDomain": "example.com", "ingressClassName": "nginx"})
	w.apply("{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: models, name: chat, labels: {theirs: \"1\"}}, spec: {defaultBackend: {service: {name: theirs, port: {number: 80}}}}}")
	w.service(`name: chat, annotations: {note: text, emulator.fairlead.dev/ready: engine}`,
		"engine: {runner: {name: e, ports: [{containerPort: 30000, name: http1}]}}, decoder: {}, router: {runner: {name: r, ports: [{containerPort: 30080}]}}")
	w.eventually(func(c *assert.CollectT) {
		assert.Equal(c, "False ComponentNotReady", conditions(w.get(c, "chat"))["IngressReady"])
	})
	ingresses := w.kube.NetworkingV1().Ingresses(namespace)
	live, err := ingresses.Get(t.Context(), "chat", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "1", live.Labels["theirs"], "nothing is overwritten before its time")

	w.patch("chat", `{"metadata":{"annotations":{"emulator.fairlead.dev/ready":null}}}`)
	w.eventually(func(c *assert.CollectT) {
		service := w.get(c, "chat")
		assert.Equal(c, "True", conditions(service)["IngressReady"])
		assert.Equal(c, "http://chat.models.example.com:30080", text(service, "status", "url"))
		assert.Equal(c, "http://chat-router.models.svc.cluster.local:30080", text(service, "status", "address", "url"))
		assert.Equal(c, "http://chat-engine.models.example.com", text(service, "status", "components", "engine", "url"))
	})
	live, err = ingresses.Get(t.Context(), "chat", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, live.Labels)
	assert.Equal(t, "text", live.Annotations["note"])
	assert.Equal(t, "chat", live.OwnerReferences[0].Name)
	assert.Equal(t, "nginx", *live.Spec.IngressClassName)
	backends := [][2]string{}
	for _, rule := range live.Spec.Rules {
		backends = append(backends, [2]string{rule.Host, rule.HTTP.Paths[0].Backend.Service.Name})
		assert.EqualValues(t, 8080, rule.HTTP.Paths[0].Backend.Service.Port.Number, "whatever the Service has")
	}
	assert.Equal(t, [][2]string{
		{"chat.models.example.com", "chat-router"}, {"chat-router.models.example.com", "chat-router"},
		{"chat-engine.models.example.com", "chat-engine"}, {"chat-decoder.models.example.com", "chat-decoder"},
	}, backends)
	assert.NotContains(t, w.services(t), "chat")

	// The ConfigMap is not watched; a service learns of it when something else happens to it. Its Ingress is left behind.
	before := w.settled()
	w.configure(map[string]any{"disableIngressCreation": true})
	assert.Equal(t, before, w.settled())
	w.patch("chat", `{"metadata":{"annotations":{"note":"m"}}}`)
	w.eventually(func(c *assert.CollectT) {
		assert.Equal(c, "True IngressDisabled", conditions(w.get(c, "chat"))["IngressReady"])
		assert.Contains(c, w.services(c), "chat")
	})
	left, err := ingresses.Get(t.Context(), "chat", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, live, left)
}

// never looks at a condition for half a second. Unlike require.Never it looks at nothing after it has returned.
func never(t *testing.T, condition func() bool, message string) {
	t.Helper()
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		require.False(t, condition(), message)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("name: chat, labels: {networking.knative.dev/visibility: cluster-local}", "engine: {}")
	w.eventually(func(c *assert.CollectT) { assert.Contains(c, w.services(c), "chat-engine") })
	never(t, func() bool { return len(conditions(w.get(t, "chat"))) > 0 }, "the status is never written")
	assert.NotContains(t, w.services(t), "chat")

	w.patch("chat", `{"metadata":{"labels":{"networking.knative.dev/visibility":null}}}`)
	w.eventually(func(c *assert.CollectT) { assert.Equal(c, "True", conditions(w.get(c, "chat"))["Ready"]) })

	// With a value that is not JSON, OME does nothing at all.
	maps := w.kube.CoreV1().ConfigMaps("ome")
	live, err := maps.Get(t.Context(), ome.ConfigName, metav1.GetOptions{})
	require.NoError(t, err)
	live.Data["ingress"] = "ingressDomain: example.com"
	_, err = maps.Update(t.Context(), live, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.patch("chat", `{"spec":{"router":{}}}`)
	never(t, func() bool { _, ok := w.services(t)["chat-router"]; return ok }, "no Service is made")
}

func TestDeletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("name: chat", "engine: {}")
	w.eventually(func(c *assert.CollectT) { assert.NotEmpty(c, w.get(c, "chat").GetFinalizers()) })
	require.NoError(t, w.isvc.Delete(t.Context(), "chat", metav1.DeleteOptions{}))
	w.eventually(func(c *assert.CollectT) {
		_, err := w.isvc.Get(t.Context(), "chat", metav1.GetOptions{})
		assert.True(c, apierrors.IsNotFound(err), "got %v", err)
	})
}

func TestServicesAreRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("name: chat", "engine: {}")
	w.eventually(func(c *assert.CollectT) { assert.Len(c, w.services(c), 2) })
	require.NoError(t, w.kube.CoreV1().Services(namespace).Delete(t.Context(), "chat-engine", metav1.DeleteOptions{}))
	w.eventually(func(c *assert.CollectT) { assert.Contains(c, w.services(c), "chat-engine") })
	_, err := w.kube.CoreV1().Services(namespace).Patch(t.Context(), "chat-engine", types.MergePatchType, []byte(`{"spec":{"selector":{"app":"theirs"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	w.eventually(func(c *assert.CollectT) {
		assert.Equal(c, map[string]string{"app": "chat-engine"}, w.services(c)["chat-engine"].Spec.Selector)
	})
	w.settled()
}

const virtualServiceCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: virtualservices.networking.istio.io}
spec:
  group: networking.istio.io
  names: {kind: VirtualService, plural: virtualservices, singular: virtualservice}
  scope: Namespaced
  versions:
  - {name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

func TestReleasesDiffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("name: lean, annotations: {emulator.fairlead.dev/runtime: \"engine,router\"}", "model: {name: llama}")
	w.service("name: scaled-to-zero", "engine: {minReplicas: 0}")
	w.service("name: native", "deploymentMode: OMENative, engine: {}")
	w.service("name: nodes", "engine: {leader: {runner: {name: e, ports: [{containerPort: 30000}]}}, worker: {}}")
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

	w.start(func(o *ome.Options) { o.Release = ome.Release13 })
	var native, nodes []string
	w.eventually(func(c *assert.CollectT) {
		found := w.services(c)
		for _, name := range []string{"lean", "lean-engine", "lean-router", "scaled-to-zero-engine"} {
			assert.Contains(c, found, name)
		}
		native, nodes = revisions(found, "native-engine"), revisions(found, "nodes-engine")
		assert.Len(c, native, 1)
		assert.Len(c, nodes, 1)
		assert.Equal(c, "http://traffic.models.svc.cluster.local:8080", text(w.get(c, "traffic"), "status", "url"))
		assert.Equal(c, "True", conditions(w.get(c, "lean"))["Ready"])
	})
	_, kept, _ := unstructured.NestedSlice(w.get(t, "traffic").Object, "status", "addresses")
	assert.True(t, kept, "release 1.3 knows that field")
	found = w.services(t)
	for _, name := range []string{native[0], "native-engine-headless"} {
		assert.Equal(t, "native", found[name].Labels["ome.io/inferenceservice"], name)
		assert.Equal(t, "engine", found[name].Labels["component"], name)
		assert.Equal(t, "native", found[name].OwnerReferences[0].Name, name)
	}
	assert.Equal(t, corev1.ClusterIPNone, found["native-engine-headless"].Spec.ClusterIP)
	assert.Equal(t, map[string]string{"app": "nodes-engine"}, found["nodes-engine"].Spec.Selector)
	assert.Empty(t, revisions(found, "traffic-engine"))

	// Another specification is another revision.
	w.patch("native", `{"spec":{"engine":{"runner":{"name":"e","ports":[{"containerPort":9000}]}}}}`)
	w.eventually(func(c *assert.CollectT) {
		found := w.services(c)
		now := revisions(found, "native-engine")
		if assert.Len(c, now, 1) {
			assert.NotEqual(c, native, now)
			assert.EqualValues(c, 9000, found[now[0]].Spec.Ports[0].Port)
		}
	})
	w.settled()

	// The other release loses what it does not know, with the next thing that it has to say.
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

	// The Deployment says what is ready, and which generation was observed: its own.
	before := w.settled()
	_, err = deployments.Patch(t.Context(), "chat-engine", types.MergePatchType, []byte(
		`{"status":{"observedGeneration":7,"conditions":[{"type":"Available","status":"True","reason":"MinimumReplicasAvailable"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	_, err = deployments.Patch(t.Context(), "chat-router", types.MergePatchType, []byte(
		`{"status":{"observedGeneration":5,"conditions":[{"type":"Available","status":"False","reason":"MinimumReplicasUnavailable"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	w.eventually(func(c *assert.CollectT) {
		live := w.get(c, "chat")
		assert.Equal(c, "True", conditions(live)["EngineReady"])
		assert.Equal(c, "False MinimumReplicasUnavailable", conditions(live)["RouterReady"])
		observed, _, _ := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
		assert.EqualValues(c, 5, observed)
	})
	update := ome.Write{Verb: "update", Kind: "Deployment"}
	assert.Equal(t, before[update], w.settled()[update])

	// An annotation of the service restarts its pods.
	w.patch("chat", `{"metadata":{"annotations":{"note":"two"}}}`)
	w.eventually(func(c *assert.CollectT) {
		engine, err := deployments.Get(context.Background(), "chat-engine", metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, "two", engine.Spec.Template.Annotations["note"])
	})
	// A component that is no more takes its Deployment along.
	w.patch("chat", `{"spec":{"router":null}}`)
	w.eventually(func(c *assert.CollectT) {
		_, err := deployments.Get(context.Background(), "chat-router", metav1.GetOptions{})
		assert.True(c, apierrors.IsNotFound(err), "got %v", err)
		assert.NotContains(c, w.services(c), "chat-router")
		assert.Equal(c, "engine", w.services(c)["chat"].Spec.Selector["component"])
	})
	w.settled()
}
