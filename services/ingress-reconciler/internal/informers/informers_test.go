package informers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/golden"
)

// read returns the caches of manifests.
func read(t *testing.T, manifests ...string) Caches {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, m := range manifests {
		objects = append(objects, &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(m))})
	}
	caches, err := Snapshot(objects, func(schema.GroupVersionResource) bool { return true })
	require.NoError(t, err)
	return caches
}

// A cluster has many Services: of those that are not OME's only what an endpoint picker is checked by is kept.
func TestWhatIsKeptOfServices(t *testing.T) {
	t.Parallel()
	const spec = `spec: {clusterIP: 10.0.0.1, type: NodePort, selector: {app: x}, ports: [{name: grpc, port: 9002}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}`
	caches := read(t,
		`{apiVersion: v1, kind: Service, metadata: {name: chat-engine, namespace: models, labels: {ome.io/inferenceservice: chat, component: engine}, annotations: {a: b},
			ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: u, controller: true}]}, `+spec+`}`,
		`{apiVersion: v1, kind: Service, metadata: {name: picker, namespace: models, labels: {app: x}, annotations: {a: b}, finalizers: [x/y]}, `+spec+`}`)
	get := func(name string) *corev1.Service {
		obj, found := caches.Services.Get(cache.ObjectName{Namespace: "models", Name: name})
		require.True(t, found)
		return obj.(*corev1.Service)
	}
	ports := []corev1.ServicePort{{Name: "grpc", Port: 9002}}
	engine := get("chat-engine")
	assert.Equal(t, corev1.ServiceSpec{ClusterIP: "10.0.0.1", Selector: map[string]string{"app": "x"}, Ports: ports}, engine.Spec)
	assert.Equal(t, "engine", engine.Labels["component"])
	assert.Empty(t, engine.Annotations)
	assert.Empty(t, engine.Status)
	picker := get("picker")
	assert.Equal(t, corev1.Service{
		TypeMeta: picker.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "picker"}, Spec: corev1.ServiceSpec{Ports: ports},
	}, *picker)
	assert.Len(t, OwnedBy(caches.Services, cache.ObjectName{Namespace: "models", Name: "chat"}), 1)
}

// KServe has InferenceServices, too, and a Knative Service of one of the same name is none of ours.
func TestInferenceServicesOfOthers(t *testing.T) {
	t.Parallel()
	const knative = `{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: chat-engine, namespace: models, ownerReferences: [{apiVersion: %, kind: InferenceService, name: chat, uid: u, controller: true}]}}`
	chat := cache.ObjectName{Namespace: "models", Name: "chat"}
	for version, want := range map[string]int{"ome.io/v1beta1": 1, "serving.kserve.io/v1beta1": 0} {
		caches := read(t, strings.Replace(knative, "%", version, 1))
		assert.Len(t, OwnedBy(caches.Knative, chat), want, version)
	}
}
