//go:build system

package ome_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/emulators/ome"
)

func TestShippedDefaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	uid := w.service("name: chat, labels: {team: a}, annotations: {service.beta.kubernetes.io/x: \"1\", note: text}", "model: {name: llama}, runtime: {name: srt}, "+
		"engine: {runner: {name: e, ports: [{containerPort: 30000, name: http1}, {containerPort: 9000, name: metrics}]}}, router: {}, decoder: {}")
	w.eventually(func(c *assert.CollectT) {
		live := w.get(c, "chat")
		assert.Equal(c, map[string]string{
			"Ready": "True", "IngressReady": "True IngressDisabled", "EngineReady": "True MinimumReplicasAvailable", "RouterReady": "True MinimumReplicasAvailable", "DecoderReady": "True MinimumReplicasAvailable",
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
		"team": "a", "ome.io/inferenceservice": "chat", "component": "engine", "serving-runtime": "srt", "base-model-name": "llama", "app": "chat-engine",
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

	// OME ignores a condition of another writer, a field that OME's conditions do not have, and an unknown field.
	list, _, err := unstructured.NestedSlice(live.Object, "status", "conditions")
	require.NoError(t, err)
	list = append(list, map[string]any{"type": "fairlead.dev/Programmed", "status": "True", "reason": "Programmed", "observedGeneration": int64(1), "lastTransitionTime": "2026-11-01T10:00:00Z"})
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": list, "fairlead": "x"}})
	require.NoError(t, err)
	before := w.settled()
	w.patchStatus("chat", string(patch))
	assert.Equal(t, before, w.settled())

	// OME restores its URL. This write removes unknown fields, and the condition keeps only six fields.
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

	// In mode VirtualDeployment OME replaces the whole list.
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
			"Ready": "True", "IngressReady": "True IngressDisabled", "EngineReady": "True MinimumReplicasAvailable", "RouterReady": "False Initializing",
		}, conditions(w.get(c, "chat")))
	})
	w.patch("chat", `{"metadata":{"annotations":{"emulator.fairlead.dev/ready":"router"}}}`)
	w.eventually(func(c *assert.CollectT) {
		live := w.get(c, "chat")
		assert.Equal(c, map[string]string{
			"Ready": "False MinimumReplicasUnavailable", "IngressReady": "True IngressDisabled",
			"EngineReady": "False MinimumReplicasUnavailable", "RouterReady": "True MinimumReplicasAvailable",
		}, conditions(live))
		assert.NotEmpty(c, text(live, "status", "components", "engine", "url"), "OME never removes a URL")
	})
	w.settled()
}

func TestCleanUp(t *testing.T) {
	t.Parallel()
	w := newCluster(t)
	w.apply(virtualServiceCRD)
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
	object(configMap, "goes-external", ", component: external-service", uid) // only a Service can have this component
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
		assert.Equal(c, "True MinimumReplicasAvailable", conditions(live)["DecoderReady"], "OME never removes conditions")
	})
	w.settled()
}

func TestServiceOfItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	foreign := "{apiVersion: v1, kind: Service, metadata: {namespace: models, name: chat, labels: {theirs: \"1\"}}, spec: {ports: [{port: 80}], selector: {app: theirs}}}"
	w.apply(foreign)
	w.service(`name: chat, annotations: {ome.io/service-type: NodePort}`, "engine: {}")

	// OME replaces the Service, but does not become its owner.
	w.eventually(func(c *assert.CollectT) {
		s := w.services(c)["chat"]
		assert.Equal(c, corev1.ServiceTypeNodePort, s.Spec.Type)
		assert.Equal(c, "external-service", s.Labels["component"])
		assert.Equal(c, "engine", s.Spec.Selector["component"])
		assert.Empty(c, s.OwnerReferences)
		assert.Equal(c, corev1.ServiceTypeNodePort, w.services(c)["chat-engine"].Spec.Type, "the component's Service also has this type")
	})
	// The allocated node port is a difference in each reconcile. OME's update changes nothing.
	before := w.settled()
	w.patch("chat", `{"metadata":{"annotations":{"note":"1"}}}`)
	w.eventually(func(c *assert.CollectT) {
		update := ome.Write{Verb: "update", Kind: "Service"}
		assert.Greater(c, w.ome.Writes()[update], before[update])
	})
	w.settled()

	// If its ingress is enabled, OME deletes any Service with that name.
	w.patch("chat", `{"metadata":{"annotations":{"ome.io/ingress-disable-creation":"false"}}}`)
	w.eventually(func(c *assert.CollectT) { assert.NotContains(c, w.services(c), "chat") })
	w.apply(foreign)
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
	assert.Equal(t, "1", live.Labels["theirs"], "OME replaces the Ingress only when the component is ready")

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
		assert.EqualValues(t, 8080, rule.HTTP.Paths[0].Backend.Service.Port.Number, "release 1.2 ignores the port of the Service")
	}
	assert.Equal(t, [][2]string{
		{"chat.models.example.com", "chat-router"}, {"chat-router.models.example.com", "chat-router"},
		{"chat-engine.models.example.com", "chat-engine"}, {"chat-decoder.models.example.com", "chat-decoder"},
	}, backends)
	assert.NotContains(t, w.services(t), "chat")

	// OME does not watch the ConfigMap: a change takes effect in the next reconcile of a service. The Ingress stays.
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

func TestFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("name: chat, labels: {networking.knative.dev/visibility: cluster-local}", "engine: {}")
	w.eventually(func(c *assert.CollectT) { assert.Contains(c, w.services(c), "chat-engine") })
	w.fails("chat", "Service chat does not exist")
	assert.Empty(t, conditions(w.get(t, "chat")), "OME does not write the status after an error")
	assert.NotContains(t, w.services(t), "chat")

	w.patch("chat", `{"metadata":{"labels":{"networking.knative.dev/visibility":null}}}`)
	w.eventually(func(c *assert.CollectT) { assert.Equal(c, "True", conditions(w.get(c, "chat"))["Ready"]) })

	// If a value is not JSON, OME does nothing.
	w.settled()
	maps := w.kube.CoreV1().ConfigMaps("ome")
	live, err := maps.Get(t.Context(), ome.ConfigName, metav1.GetOptions{})
	require.NoError(t, err)
	live.Data["ingress"] = "ingressDomain: example.com"
	_, err = maps.Update(t.Context(), live, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.patch("chat", `{"spec":{"router":{}}}`)
	w.fails("chat", "parse ingress")
	assert.NotContains(t, w.services(t), "chat-router", "OME creates no Service")
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
