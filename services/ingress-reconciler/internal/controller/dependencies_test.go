package controller

import (
	"fmt"
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
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/dependents"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/istiogateway"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
)

// A path that an Ingress of somebody else prevents is exposed when that Ingress is gone.
func TestARefusedPathDependsOnTheRoutesOfItsHost(t *testing.T) {
	t.Parallel()
	const nginx = `---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: nginx}
spec: {controller: k8s.io/ingress-nginx}
`
	const legacy = `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: legacy, namespace: others},
		spec: {ingressClassName: nginx, rules: [{host: llm.example.com}]}}`
	r := newRig(t, world+nginx+"---\n"+legacy, "ingressDomain: example.com\nperISVCSubdomain: false\ningressClassName: nginx")
	run := r.begun()
	require.Empty(t, run.plan.Exposures)
	require.Equal(t, "PathRewriteUnsupported", run.plan.Reasons[0].Reason)
	foreign := &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(legacy))}
	assert.Equal(t, []cache.ObjectName{chat}, handlers{index: r.Dependents}.namesForHosts(foreign))
}

// lateInformer has no objects for its first reader: they appear right after the first Get.
type lateInformer struct {
	kit.Informer

	reads int
}

func (l *lateInformer) Get(name cache.ObjectName) (any, bool) {
	if l.reads++; l.reads == 1 {
		return nil, false
	}
	return l.Informer.Get(name)
}

// The event of an object that appears after it was read, and before the service depends on it, enqueues nobody.
func TestAChangeBeforeTheDependencyIsObserved(t *testing.T) {
	t.Parallel()
	const gateway = `---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: models}
spec: {listeners: [{name: http, port: 80, protocol: HTTP}]}
`
	r := newRig(t, world+gateway, "ingressDomain: example.com\nomeIngressGateway: models/public")
	late := &lateInformer{Informer: r.Observer.Gateways}
	r.Observer.Gateways = late
	assert.Empty(t, r.begun().plan.Exposures[0].Attachment.Reason)
	assert.Equal(t, 2, late.reads)
	r.begun()
	assert.Equal(t, 3, late.reads, "without new dependencies it observes once")
}

// The Gateway of a VirtualService is judged once Istio's kind is served. No event reports that it is served without this Gateway.
func TestAVirtualServiceWaitsForTheKindOfItsGateway(t *testing.T) {
	t.Parallel()
	newRun := func(config string) *run {
		r := newRig(t, world, "ingressDomain: example.com\nstrategy: virtualservice\n"+config)
		r.Observer = observerOf(t, func(s *kit.Snapshot, writable []string) []string {
			s.Served = func(g schema.GroupVersionResource) bool { return g != istiogateway.Resource }
			return writable
		})
		return r.begun()
	}
	waiting := newRun("ingressGateway: istio/public")
	gateway := &istiogateway.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "istio", Name: "public"}}
	h := handlers{index: waiting.reconciler.Dependents}
	assert.Equal(t, []cache.ObjectName{chat}, h.namesForKind(dependents.IstioGateway)(gateway))
	assert.Equal(t, recheckInterval, waiting.requeueDelay)
	assert.Zero(t, newRun("ingressGateway: mesh").requeueDelay, "sidecars have no Gateway")
}

// chatIngress is an Ingress that this program wrote for service chat.
const chatIngress = `---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: chat-fairlead-0
  namespace: models
  labels: {fairlead.dev/managed-by: ingress-reconciler}
  annotations: {fairlead.dev/claim: chat.example.com/}
  ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: chat, controller: true}]
`

// An Ingress of somebody else keeps this program's Ingress from yielding its path to OME's.
func TestARouteThatIsHandedOverDependsOnItsHost(t *testing.T) {
	t.Parallel()
	handed := strings.Replace(world, "uid: chat,", `uid: chat, annotations: {ome.io/ingress-disable-creation: "false"},`, 1)
	r := newRig(t, handed+chatIngress, "ingressDomain: example.com")
	require.True(t, r.begun().plan.HandedToOME)
	foreign := &unstructured.Unstructured{
		Object: golden.Decode[map[string]any](t, []byte(omesIngress("labels: {a: b}", "{path: /, pathType: Prefix}", ""))),
	}
	assert.Equal(t, []cache.ObjectName{chat}, handlers{index: r.Dependents}.namesForHosts(foreign))
}

// A listener can select the routes of somebody else by the labels of their namespace. Routes of this program have claims instead.
func TestANamespaceConcernsThoseWithAHostOfItsRoutes(t *testing.T) {
	t.Parallel()
	const route = `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: others, name: %s},
		spec: {hostnames: [%s]}}`
	var objects []*unstructured.Unstructured
	for _, text := range []string{
		fmt.Sprintf(route, "a", "chat.example.com"), fmt.Sprintf(route, "b", "chat.example.com"), fmt.Sprintf(route, "c", ""),
		strings.Replace(fmt.Sprintf(route, "d", "own.example.com"), "name: d", "labels: {fairlead.dev/managed-by: ingress-reconciler}, "+
			"name: d, "+omesOwner, 1),
	} {
		objects = append(objects, &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(text))})
	}
	caches, err := informers.Declare(nil).Read(kit.Snapshot{Objects: objects})
	require.NoError(t, err)
	h := handlers{index: dependents.New(), informers: &informers.Informers{Caches: caches}}
	var users []cache.ObjectName
	for _, host := range []string{"chat.example.com", informers.EveryHost, "own.example.com"} {
		users = append(users, cache.ObjectName{Namespace: "models", Name: "user-of-" + host})
		h.index.SetDependencies(users[len(users)-1], []dependents.Object{{Kind: dependents.Host, Name: cache.ObjectName{Name: host}}})
	}
	namespace := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "others"}}
	assert.ElementsMatch(t, users[:2], h.namesForNamespace(namespace), "each once")
	namespace.Name = "models"
	assert.Empty(t, h.namesForNamespace(namespace))
}

// A worker may drop the claims of a deleted service between their read and their registration. They would then block others for good.
func TestDeletedServicesWithClaimsAreReconciled(t *testing.T) {
	t.Parallel()
	r := newRig(t, strings.SplitN(world, "---\n", 3)[2]+chatIngress, "ingressDomain: example.com")
	r.ReconcileAll()
	require.Equal(t, []cache.ObjectName{chat}, r.enqueued)
	empty, err := informers.Declare(nil).Read(kit.Snapshot{})
	require.NoError(t, err)
	r.Observer = observe.New(empty) // the last event of the route was handled before its claim was registered
	require.NoError(t, r.Reconcile(t.Context(), chat))
	claim := ownership.Claim{Host: "chat.example.com", Path: "/"}
	refused, _ := r.Ownership.Set(ownership.Owner{Namespace: "models", Name: "other"}, start, []ownership.Ask{{Claim: claim}})
	assert.Empty(t, refused)
}

func TestAForeignServiceConcernsTheServiceOfItsName(t *testing.T) {
	t.Parallel()
	r := newRig(t, strings.Replace(world, "uid: chat, controller", "uid: other, controller", 1), "ingressDomain: example.com")
	require.Equal(t, "NameConflict", r.begun().plan.Reasons[0].Reason)
	h := handlers{index: r.Dependents}
	for _, r := range isvc.Roles {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "chat-" + string(r)}}
		assert.Equal(t, []cache.ObjectName{chat}, h.namesForKind(dependents.Service)(service), r)
	}
}
