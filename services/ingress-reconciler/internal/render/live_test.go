package render

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/golden"
)

const (
	nginxController = "k8s.io/ingress-nginx"
	ownerUID        = "6d5f4c1e-0000-4000-8000-000000000000"
)

// liveIngress returns an Ingress of service chat for chat.models.example.com/. Its name is from a release that did not include the
// controller in names.
func liveIngress(change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
		"metadata": map[string]any{
			"namespace": "models", "name": "chat-fairlead-fcf94e91",
			"annotations": map[string]any{annotationClaim: "chat.models.example.com/"},
		},
		"spec": map[string]any{"ingressClassName": "nginx"},
	}}
	u.SetCreationTimestamp(metav1.NewTime(time.Unix(2, 0)))
	u.SetOwnerReferences([]metav1.OwnerReference{{UID: ownerUID, Controller: new(true)}})
	if change != nil {
		change(u)
	}
	return u
}

func liveVirtualService(gateway string) *unstructured.Unstructured {
	return liveIngress(func(u *unstructured.Unstructured) {
		u.SetAPIVersion("networking.istio.io/v1beta1")
		u.SetKind("VirtualService")
		u.Object["spec"] = map[string]any{"gateways": []any{gateway}}
	})
}

func ingressClass(name, controller string, isDefault bool) *networkingv1.IngressClass {
	c := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressClassSpec{Controller: controller}}
	if isDefault {
		c.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	}
	return c
}

// entry renders the entry of service chat with live objects, and returns the name of the route and the class of an Ingress.
func entry(t *testing.T, config string, classes []*networkingv1.IngressClass, live ...*unstructured.Unstructured) (name, class string) {
	t.Helper()
	in := given{
		Config: golden.Decode[map[string]any](t, []byte("ingressDomain: example.com\n"+config)),
		Service: golden.Decode[map[string]any](t,
			[]byte("{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: chat}, spec: {engine: {}}}")),
		Classes: classes,
	}
	p, params := in.plan(t)
	params.Live, params.Classes = live, classes
	objects := render(t, p, params)
	require.Len(t, objects, 1)
	class, _, err := unstructured.NestedString(objects[0].Object.Object, "spec", "ingressClassName")
	require.NoError(t, err)
	return objects[0].Object.GetName(), class
}

// The admission webhook of ingress-nginx rejects a second Ingress of the same host and path.
func TestAnIngressOfTheSameControllerKeepsItsName(t *testing.T) {
	t.Parallel()
	const old = "chat-fairlead-fcf94e91"
	classes := []*networkingv1.IngressClass{
		ingressClass("nginx", nginxController, true), ingressClass("nginx-internal", nginxController, false),
		ingressClass("traefik", "traefik.io/ingress-controller", false),
	}
	tests := []struct {
		name, config string
		classes      []*networkingv1.IngressClass
		live         func(*unstructured.Unstructured)
		keeps        bool
		class        string
	}{
		{name: "the default class, by a name of an earlier release", classes: classes, keeps: true, class: "nginx"},
		{name: "its class by name", config: "ingressClassName: nginx", classes: classes, keeps: true, class: "nginx"},
		{
			name: "another class of its controller", config: "ingressClassName: nginx-internal", classes: classes, keeps: true,
			class: "nginx-internal",
		},
		{name: "a class of another controller", config: "ingressClassName: traefik", classes: classes, class: "traefik"},
		{name: "its class, which is not there", config: "ingressClassName: nginx", keeps: true, class: "nginx"},
		{name: "another class, which is not there", config: "ingressClassName: gone", classes: classes, class: "gone"},
		{name: "no class, and no default", classes: classes[1:], keeps: true, class: "nginx"},
		{name: "another host", config: "domainTemplate: other.example.com", classes: classes, class: "nginx"},
		{
			name: "one without a class, which is of the default", classes: classes, keeps: true, class: "nginx",
			live: func(u *unstructured.Unstructured) {
				unstructured.RemoveNestedField(u.Object, "spec", "ingressClassName")
			},
		},
		{name: "an object of another owner", classes: classes, class: "nginx", live: func(u *unstructured.Unstructured) {
			u.SetOwnerReferences([]metav1.OwnerReference{{UID: types.UID("other"), Controller: new(true)}})
		}},
		{
			name: "an object without an owner", classes: classes, class: "nginx",
			live: func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) },
		},
		{
			name: "an object without a claim", classes: classes, class: "nginx",
			live: func(u *unstructured.Unstructured) { u.SetAnnotations(nil) },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			name, class := entry(t, tt.config, tt.classes, liveIngress(tt.live))
			assert.Equal(t, tt.keeps, name == old, name)
			assert.Equal(t, tt.class, class)
		})
	}
}

func TestANewIngressIsNamedAfterItsController(t *testing.T) {
	t.Parallel()
	classes := []*networkingv1.IngressClass{
		ingressClass("a", nginxController, true), ingressClass("b", nginxController, false),
		ingressClass("c", "traefik.io/ingress-controller", false),
	}
	byDefault, _ := entry(t, "", classes)
	a, _ := entry(t, "ingressClassName: a", classes)
	b, _ := entry(t, "ingressClassName: b", classes)
	c, _ := entry(t, "ingressClassName: c", classes)
	missing, _ := entry(t, "ingressClassName: d", classes)
	assert.Equal(t, byDefault, a)
	assert.Equal(t, a, b)
	assert.NotEqual(t, a, c)
	assert.NotEqual(t, a, missing)
	_, class := entry(t, "", classes[1:])
	assert.Empty(t, class, "the cluster has no default class")
}

func TestOfSeveralLiveObjectsTheOldestKeepsItsName(t *testing.T) {
	t.Parallel()
	classes := []*networkingv1.IngressClass{ingressClass("nginx", nginxController, true)}
	named := func(name string, created int64) *unstructured.Unstructured {
		return liveIngress(func(u *unstructured.Unstructured) {
			u.SetName(name)
			u.SetCreationTimestamp(metav1.NewTime(time.Unix(created, 0)))
		})
	}
	for _, live := range [][]*unstructured.Unstructured{
		{named("a", 3), named("b", 2), named("c", 2)}, {named("c", 2), named("b", 2), named("a", 3)},
	} {
		name, _ := entry(t, "", classes, live...)
		assert.Equal(t, "b", name, "of objects with the same age, the first by name keeps its name")
	}
}

func TestAVirtualServiceKeepsItsNameAtItsGateway(t *testing.T) {
	t.Parallel()
	const at = "strategy: virtualservice\ningressGateway: istio/"
	first, _ := entry(t, at+"public", nil)
	second, _ := entry(t, at+"inner", nil)
	assert.NotEqual(t, first, second, "the old object serves requests until the new object does")

	const old = "chat-fairlead-fcf94e91"
	name, _ := entry(t, at+"public", nil, liveVirtualService("istio/public"))
	assert.Equal(t, old, name, "an object with a name of an earlier release keeps its name")
	name, _ = entry(t, at+"inner", nil, liveVirtualService("istio/public"))
	assert.Equal(t, second, name)
	name, _ = entry(t, at+"public", nil, liveIngress(nil))
	assert.Equal(t, first, name, "a VirtualService does not reuse the name of an Ingress")
	name, _ = entry(t, "omeIngressGateway: gateways/public", nil, liveVirtualService("istio/public"), liveIngress(nil))
	assert.True(t, strings.HasPrefix(name, "chat-fairlead-") && name != old, "an HTTPRoute does not reuse the name of another object")
}
