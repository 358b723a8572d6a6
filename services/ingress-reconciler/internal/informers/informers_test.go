package informers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/golden"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// read returns caches with the objects in manifests.
func read(t *testing.T, manifests ...string) Caches {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, m := range manifests {
		objects = append(objects, &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(m))})
	}
	caches, err := Declare(nil).Read(kit.Snapshot{Objects: objects})
	require.NoError(t, err)
	return caches
}

// A cluster can have many Services. Of a Service that is not OME's, the cache keeps only the fields that identify an endpoint picker.
func TestServiceTransform(t *testing.T) {
	t.Parallel()
	const spec = `spec: {clusterIP: 10.0.0.1, type: NodePort, selector: {app: x}, ports: [{name: grpc, port: 9002}]}, status: ` +
		`{loadBalancer: {ingress: [{ip: 192.0.2.1}]}}`
	caches := read(t,
		`{apiVersion: v1, kind: Service, metadata: {name: chat-engine, namespace: models, labels: {ome.io/inferenceservice: chat,
		component: engine}, annotations: {a: b},
			ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: u, controller: true}]}, `+spec+`}`,
		`{apiVersion: v1, kind: Service, metadata: {name: picker, namespace: models, labels: {app: x}, annotations: {a: b}, finalizers: `+
			`[x/y]}, `+spec+`}`)
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
		TypeMeta: picker.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "picker"},
		Spec: corev1.ServiceSpec{Ports: ports},
	}, *picker)
	assert.Len(t, ByOwner[any](caches.Services, cache.ObjectName{Namespace: "models", Name: "chat"}), 1)
}

// KServe also has InferenceServices. The index ignores their Knative Services, even if the names are the same.
func TestInferenceServicesOfOthers(t *testing.T) {
	t.Parallel()
	const knative = `{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: chat-engine, namespace: models, ` +
		`ownerReferences: [{apiVersion: %, kind: InferenceService, name: chat, uid: u, controller: true}]}}`
	chat := cache.ObjectName{Namespace: "models", Name: "chat"}
	for version, want := range map[string]int{"ome.io/v1beta1": 1, "serving.kserve.io/v1beta1": 0} {
		caches := read(t, strings.Replace(knative, "%", version, 1))
		assert.Len(t, ByOwner[any](caches.Knative, chat), want, version)
	}
}

func TestKindsThatMayNotBeWritten(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		writable []string
		off      []string // as resource or resource and selector
	}{
		{name: "all"},
		{name: "HTTPRoutes alone", writable: []string{"httproutes"}, off: []string{
			"ingressclasses.networking.k8s.io", "gateways.networking.istio.io", "inferencepools.inference.networking.k8s.io",
			"services ours", "inferencepools.inference.networking.k8s.io ours", "middlewares.traefik.io ours",
			"ingresses.networking.k8s.io", "virtualservices.networking.istio.io",
		}},
		{
			name: "all but HTTPRoutes", writable: []string{"ingresses", "virtualservices", "middlewares", "inferencepools", "services"},
			off: []string{
				"gateways.gateway.networking.k8s.io", "listenersets.gateway.networking.k8s.io", "gatewayclasses.gateway.networking.k8s.io",
				"httproutes.gateway.networking.k8s.io",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var off []string
			all := 0
			Declare(tt.writable)(func(k kit.Kind) kit.Informer {
				all++
				if k.Off {
					off = append(off, strings.Replace(k.String(), "fairlead.dev/managed-by=ingress-reconciler", "ours", 1))
				}
				return nil
			})
			assert.ElementsMatch(t, tt.off, off)
			assert.Len(t, Declare(tt.writable).EnabledKinds(), all-len(tt.off))
		})
	}
}

// A kind that is off counts as not served, even if objects of the kind exist.
func TestSnapshotOfKindsThatMayNotBeWritten(t *testing.T) {
	t.Parallel()
	// without an owner: somebody else's
	route := golden.Decode[map[string]any](t,
		[]byte(`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: a, namespace: models, labels: `+
			`{fairlead.dev/managed-by: ingress-reconciler}}}`))
	world := kit.Snapshot{Objects: []*unstructured.Unstructured{{Object: route}}}
	for _, off := range []bool{false, true} {
		writable := []string{"httproutes"}
		if off {
			writable = []string{"ingresses"}
		}
		caches, err := Declare(writable).Read(world)
		require.NoError(t, err)
		ours := caches.Managed[render.HTTPRoutes]
		assert.Equal(t, !off, ours.Listed())
		assert.Equal(t, !off, len(ours.List()) == 1)
		assert.True(t, caches.Services.Listed(), "Services of components are always read")
	}
}

// The oldest Ingress of this program that stays requests a certificate.
func TestOldestOf(t *testing.T) {
	t.Parallel()
	ingress := func(name, created, more string) string {
		return `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: ` + name + `, namespace: models, creationTimestamp: "` +
			created + `",
			labels: {fairlead.dev/managed-by: ingress-reconciler}, ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService,
			name: chat, uid: u, controller: true}]` + more + `},
			spec: {tls: [{hosts: [a.example.com], secretName: tls}]}}`
	}
	const going = `, deletionTimestamp: "2026-01-02T00:00:00Z", finalizers: [a/b]`
	managed := read(t,
		ingress("d", "2026-01-03T00:00:00Z", ""), ingress("c", "2026-01-02T00:00:00Z", ""), ingress("b", "2026-01-02T00:00:00Z", ""),
		ingress("a", "2026-01-01T00:00:00Z", going),
	).Managed[render.Ingresses]
	assert.Equal(t, "b", OldestIngress(managed, "models", "a.example.com", "tls").GetName())
	assert.Nil(t, OldestIngress(managed, "models", "b.example.com", "tls"))
	assert.Nil(t, OldestIngress(managed, "models", "a.example.com", "other"))
	assert.Nil(t, OldestIngress(managed, "other", "a.example.com", "tls"))
}

// TestRoutesOfOthersAreTrimmed: tenants decide how large their routes are.
func TestRoutesOfOthersAreTrimmed(t *testing.T) {
	t.Parallel()
	const owner = `, ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: u, controller: true}]`
	const ours = `, labels: {fairlead.dev/managed-by: ingress-reconciler}` + owner
	for name, tt := range map[string]struct {
		more                string
		annotations, status bool
	}{
		"of somebody":       {},
		"of OME":            {more: owner, status: true},
		"of this program":   {more: ours, annotations: true, status: true},
		"with its label":    {more: `, labels: {fairlead.dev/managed-by: ingress-reconciler}`},
		"of another object": {more: `, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: chat, uid: u, controller: true}]`},
	} {
		u := &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(`{apiVersion: networking.k8s.io/v1, kind: Ingress,
			metadata: {name: a, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}", a: b},
			managedFields: [{manager: kubectl}]`+tt.more+`},
			spec: {ingressClassName: nginx}, status: {loadBalancer: {ingress: [{ip: 10.0.0.1}]}}}`))}
		trimmed, err := managedKind(render.Ingresses).Transform(u)
		require.NoError(t, err)
		got := trimmed.(*unstructured.Unstructured)
		assert.Empty(t, got.GetManagedFields(), name)
		assert.Equal(t, "b", got.GetAnnotations()["a"], name)
		assert.Equal(t, tt.annotations, len(got.GetAnnotations()) == 2, name)
		assert.Equal(t, tt.status, got.Object["status"] != nil, name)
		assert.NotNil(t, got.Object["spec"], name)
	}
}
