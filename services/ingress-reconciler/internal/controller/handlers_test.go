package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/apply"
	"fairlead.dev/pkg/golden"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/ingress-reconciler/internal/dependents"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

func newGateway(change func(*gatewayv1.Gateway)) *gatewayv1.Gateway {
	g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "gateways", Name: "public", UID: "1"}}
	g.Spec.Listeners = []gatewayv1.Listener{{Name: "http", Port: 80}}
	change(g)
	return g
}

func newSlice(addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "models", Labels: map[string]string{"ome.io/inferenceservice": "chat"}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

// The status of a Gateway contains the number of its routes. Without the filter, each of 2 000 services would enqueue all others.
func TestIgnoredUpdates(t *testing.T) {
	t.Parallel()
	condition := func(kind, status string) func(*gatewayv1.Gateway) {
		return func(g *gatewayv1.Gateway) {
			g.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionStatus(status), Reason: "Test"}}
		}
	}
	const owned = "ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: u, controller: true}]"
	newRoute := func(text string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(text))}
	}
	tests := []struct {
		name         string
		old, current any
		want         bool
	}{
		{name: "attached routes", old: newGateway(func(*gatewayv1.Gateway) {}), current: newGateway(func(g *gatewayv1.Gateway) {
			g.Status.Listeners = []gatewayv1.ListenerStatus{{Name: "http", AttachedRoutes: 7}}
		}), want: true},
		{
			name: "another condition", old: newGateway(func(*gatewayv1.Gateway) {}), current: newGateway(condition("Accepted", "True")),
			want: true,
		},
		{name: "programmed", old: newGateway(condition("Programmed", "False")), current: newGateway(condition("Programmed", "True"))},
		{
			name: "a listener", old: newGateway(func(*gatewayv1.Gateway) {}),
			current: newGateway(func(g *gatewayv1.Gateway) { g.Spec.Listeners[0].Port = 81 }),
		},
		{name: "made anew", old: newGateway(func(*gatewayv1.Gateway) {}), current: newGateway(func(g *gatewayv1.Gateway) { g.UID = "2" })},
		{name: "features of a class", old: &gatewayv1.GatewayClass{}, current: &gatewayv1.GatewayClass{Status: gatewayv1.GatewayClassStatus{
			SupportedFeatures: []gatewayv1.SupportedFeature{{Name: "HTTPRoutePathRewrite"}},
		}}},
		{name: "a class's condition", old: &gatewayv1.GatewayClass{}, current: &gatewayv1.GatewayClass{Status: gatewayv1.GatewayClassStatus{
			Conditions: []metav1.Condition{{Type: "Accepted"}},
		}}, want: true},
		{
			name: "a namespace's annotation", old: &metav1.PartialObjectMetadata{},
			current: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}}, want: true,
		},
		{
			name: "a namespace's label", old: &metav1.PartialObjectMetadata{},
			current: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}},
		},
		{
			name: "a Service's status", old: &corev1.Service{},
			current: &corev1.Service{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "2"}}, want: true,
		},
		{
			name: "a Service's port", old: &corev1.Service{},
			current: &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
		},
		{
			name: "a Service's selector", old: &corev1.Service{},
			current: &corev1.Service{Spec: corev1.ServiceSpec{Selector: map[string]string{"a": "b"}}},
		},
		{
			name: "a Service that is going", old: &corev1.Service{},
			current: &corev1.Service{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}},
		},
		{
			name: "a Service's annotation for Traefik", old: &corev1.Service{},
			current: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}},
		},
		{name: "the status of somebody else's route", old: newRoute("{}"), current: newRoute("{status: {parents: []}}"), want: true},
		{name: "the spec of somebody else's route", old: newRoute("{}"), current: newRoute("{spec: {hostnames: [a]}}")},
		{name: "an annotation of somebody else's route", old: newRoute("{}"), current: newRoute("{metadata: {annotations: {a: b}}}")},
		{
			name: "somebody else's route is being deleted", old: newRoute("{}"),
			current: newRoute(`{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}}`),
		},
		{
			name: "the status of a service's route", old: newRoute("{metadata: {" + owned + "}}"),
			current: newRoute("{metadata: {" + owned + "}, status: {parents: []}}"),
		},
		{name: "an endpoint's address", old: newSlice("10.0.0.1"), current: newSlice("10.0.0.2"), want: true},
		{name: "the first endpoint", old: newSlice(), current: newSlice("10.0.0.2")},
		{
			name: "an object that could not be decoded before", old: &metav1.PartialObjectMetadata{},
			current: newGateway(func(*gatewayv1.Gateway) {}),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, isUnchanged(tt.old, tt.current))
		})
	}
}

func TestAGatewayConcernsThoseThatUseIt(t *testing.T) {
	t.Parallel()
	users := dependents.New()
	public, other := cache.ObjectName{Namespace: "gateways", Name: "public"}, cache.ObjectName{Namespace: "gateways", Name: "other"}
	users.SetDependencies(cache.ObjectName{Namespace: "models", Name: "a"}, []dependents.Object{{Kind: dependents.Gateway, Name: public}})
	users.SetDependencies(cache.ObjectName{Namespace: "models", Name: "b"}, []dependents.Object{
		{Kind: dependents.Gateway, Name: other}, {Kind: dependents.InferencePool, Name: public},
	})
	users.SetDependencies(cache.ObjectName{Namespace: "models", Name: "c"}, []dependents.Object{
		{Kind: dependents.Gateway, Name: other}, {Kind: dependents.Gateway, Name: public},
	})
	h := handlers{index: users}
	got := h.namesForKind(dependents.Gateway)(newGateway(func(*gatewayv1.Gateway) {}))
	assert.ElementsMatch(t, []cache.ObjectName{{Namespace: "models", Name: "a"}, {Namespace: "models", Name: "c"}}, got)
}

func TestOwner(t *testing.T) {
	t.Parallel()
	yes := true
	of := func(version, kind string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace:       "models",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "chat", Controller: &yes}},
		}}
	}
	assert.Equal(t, []cache.ObjectName{chat}, ownerName(of("ome.io/v1beta1", "InferenceService")))
	assert.Equal(t, []cache.ObjectName{chat}, ownerName(of("ome.io/v2", "InferenceService")))
	for _, other := range []*metav1.PartialObjectMetadata{
		of("serving.kserve.io/v1beta1", "InferenceService"), of("v1beta1", "InferenceService"), of("a/b/c", "InferenceService"),
		of("ome.io/v1beta1", "InferenceReplica"), of("apps/v1", "Deployment"), {},
	} {
		assert.Empty(t, ownerName(other), other.OwnerReferences)
	}
	assert.Empty(t, ownerName("nothing"))
}

func TestEndpointsConcernTheServiceOfTheirLabel(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []cache.ObjectName{chat}, sliceOwner(newSlice()))
	assert.Empty(t, sliceOwner("nothing"))
}

// A route of somebody else concerns the services with its host. An Ingress of this program concerns the services with its TLS Secret, if it
// requests the certificate.
func TestRoutesConcernThoseWithTheirHostOrSecret(t *testing.T) {
	t.Parallel()
	const ingress = `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: models, name: %s, creationTimestamp: "%s",
	labels: {fairlead.dev/managed-by: ingress-reconciler}%s},
		spec: {tls: [{hosts: [a.example.com], secretName: tls}], rules: [{host: a.example.com}, {host: b.example.com}]}}`
	const owned = ", ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: u, controller: true}]"
	object := func(name, created, more string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(fmt.Sprintf(ingress, name, created, more)))}
	}
	first, second := object("b", "2026-01-01T00:00:00Z", owned), object("a", "2026-01-02T00:00:00Z", owned)
	caches, err := informers.Declare([]string{"ingresses"}).Read(kit.Snapshot{Objects: []*unstructured.Unstructured{first, second}})
	require.NoError(t, err)
	byHost, bySecret := cache.ObjectName{Namespace: "models", Name: "by-host"}, cache.ObjectName{Namespace: "models", Name: "by-secret"}
	users := dependents.New()
	users.SetDependencies(byHost, []dependents.Object{{Kind: dependents.Host, Name: cache.ObjectName{Name: "b.example.com"}}})
	users.SetDependencies(bySecret,
		[]dependents.Object{{Kind: dependents.Secret, Name: cache.ObjectName{Namespace: "models", Name: "tls"}}})
	h := handlers{requester: func(namespace, host, secret string) *unstructured.Unstructured {
		return informers.OldestIngress(caches.Managed[render.Ingresses], namespace, host, secret)
	}, index: users}
	assert.Equal(t, []cache.ObjectName{byHost}, h.namesForHosts(object("c", "2026-01-01T00:00:00Z", "")), "somebody else's")
	everyHost := cache.ObjectName{Namespace: "models", Name: "every-host"}
	users.SetDependencies(everyHost, []dependents.Object{{Kind: dependents.Host, Name: cache.ObjectName{Name: informers.EveryHost}}})
	route := &unstructured.Unstructured{
		Object: golden.Decode[map[string]any](t,
			[]byte("{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: a, namespace: b}, spec: {}}")),
	}
	assert.Equal(t, []cache.ObjectName{everyHost}, h.namesForHosts(route), "without hostnames it has those of listeners")
	assert.Equal(t, []cache.ObjectName{bySecret}, h.namesForHosts(first), "it requests the certificate")
	assert.Equal(t, []cache.ObjectName{bySecret}, h.namesForHosts(object("c", "2025-01-01T00:00:00Z", owned)), "it did, and was deleted")
	assert.Empty(t, h.namesForHosts(second))
	assert.Empty(t, h.namesForHosts("nothing"))
}

// An older Ingress of somebody else answers, although the Ingress of the service exists and has an address: the condition says so, and the
// service is reconciled again when a route for its host changes. An Ingress that nobody understands does not hide it.
func TestStoredRoutesAreContested(t *testing.T) {
	t.Parallel()
	const foreign = `
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: legacy, namespace: models, creationTimestamp: "2025-01-01T00:00:00Z"}
spec: {rules: [{host: chat.models.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: legacy,
  port: {number: 80}}}}]}}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: broken, namespace: models, creationTimestamp: "2025-01-01T00:00:00Z"}
spec: {rules: [{host: chat.models.example.com, http: 7}]}
`
	r := newRig(t, world+foreign, "ingressDomain: example.com\ntlsSecretName: tls")
	r.applier.EXPECT().Apply(mock.Anything, render.Ingresses, mock.Anything, mock.Anything).RunAndReturn(
		func(_ context.Context, _ schema.GroupVersionResource, wanted, _ *unstructured.Unstructured,
		) (*unstructured.Unstructured, apply.Result, error) {
			wanted.SetCreationTimestamp(metav1.NewTime(start))
			return wanted, apply.Created, unstructured.SetNestedSlice(wanted.Object, []any{map[string]any{"ip": "10.0.0.1"}}, "status",
				"loadBalancer", "ingress")
		})
	r.recorder.EXPECT().Event(mock.Anything, "Warning", "HostConflict", mock.Anything).Once()
	written := r.expectStatus(nil)
	require.NoError(t, r.Reconcile(t.Context(), chat))
	assert.Equal(t, "False HostConflict", *written)
	assert.Equal(t, []cache.ObjectName{chat}, r.Dependents.DependentsOf(dependents.Object{
		Kind: dependents.Host, Name: cache.ObjectName{Name: "chat.models.example.com"},
	}))
	assert.Equal(t, []cache.ObjectName{chat}, r.Dependents.DependentsOf(dependents.Object{
		Kind: dependents.Secret, Name: cache.ObjectName{Namespace: "models", Name: "tls"},
	}))
	assert.Empty(t, r.Dependents.DependentsOf(dependents.Object{Kind: dependents.Host, Name: cache.ObjectName{Name: informers.EveryHost}}))
}

// At a listener for exactly its host, a service also depends on routes without hostnames.
func TestAListenerForOneHostConcernsEveryRoute(t *testing.T) {
	t.Parallel()
	const gateway = `
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: models}
spec: {listeners: [{name: chat, hostname: chat.models.example.com, port: 80, protocol: HTTP}]}
`
	r := newRig(t, world+gateway, "ingressDomain: example.com\nomeIngressGateway: models/public")
	r.applies(render.HTTPRoutes, apply.Created, nil)
	r.expectStatus(nil)
	require.NoError(t, r.Reconcile(t.Context(), chat))
	assert.Equal(t, []cache.ObjectName{chat}, r.Dependents.DependentsOf(dependents.Object{
		Kind: dependents.Host, Name: cache.ObjectName{Name: informers.EveryHost},
	}))
}
