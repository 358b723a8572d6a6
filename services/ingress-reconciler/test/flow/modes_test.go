//go:build system

package flow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

var (
	knativeServices = schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}
	endpointSlices  = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
)

// An engine without replicas is a Knative Service in OME 1.2: only a VirtualService through Knative's gateway reaches it. With replicas
// it has a Service, and the usual route.
func TestKnativeServices(t *testing.T) {
	t.Parallel()
	r := newRig(t, ome.Release12, gatewayAPI+"ingressGateway: istio/public\n")
	r.apply(gateway)
	r.start()
	const (
		host    = "chat.models.example.com"
		virtual = "virtualservice " + host + "/ -> knative-local-gateway"
		route   = "httproute " + host + "/ -> chat-engine by public"
	)
	r.yaml(ns, "chat", "engine: {minReplicas: 0}", map[string]any{ome.AnnotationReady: ""})
	r.awaitCondition("chat", "False ComponentNotReady: the engine is not ready")
	r.has()
	r.patch(isvc.Resource, ns, "chat", `{"metadata":{"annotations":{"`+ome.AnnotationReady+`":null}}}`)
	r.has(virtual)
	r.awaitCondition("chat", "True Programmed: http://"+host+"/; Istio Gateway istio/public: accepted")
	live := r.only(render.VirtualServices)
	assert.Equal(t, "chat-engine.models.svc.cluster.local", field(live, "spec", "http", 0, "rewrite", "authority"),
		"by which Knative's gateway finds the service")
	r.settles()

	t.Log("OME writes a Service, and leaves the Knative Service behind")
	gaps := r.planes.watchGaps(host)
	r.patch(isvc.Resource, ns, "chat", `{"spec":{"engine":{"minReplicas":1}}}`)
	r.has(route)
	r.awaitCondition("chat", fmt.Sprintf(accepted, host))
	_, err := r.client.Resource(knativeServices).Namespace(ns).Get(t.Context(), "chat-engine", metav1.GetOptions{})
	require.NoError(t, err)
	r.settles()

	t.Log("and back")
	r.patch(isvc.Resource, ns, "chat", `{"spec":{"engine":{"minReplicas":0}}}`)
	r.has(virtual)
	r.settles()
	assert.Empty(t, gaps())

	t.Log("A Knative router in front of a decoder: OME deletes it when it leaves the specification, and no route returns to it")
	r.patch(isvc.Resource, ns, "chat", `{"spec":{"engine":{"minReplicas":1},"router":{"minReplicas":0}}}`)
	r.eventually(func() (string, bool) {
		_, err := r.client.Resource(knativeServices).Namespace(ns).Get(t.Context(), "chat-router", metav1.GetOptions{})
		return fmt.Sprint(err), err == nil
	}, "OME creates the router")
	r.eventually(func() (string, bool) {
		got := r.condition(ns, "chat")
		return got, strings.Contains(got, "Istio Gateway")
	}, "the router takes the requests")
	r.patch(isvc.Resource, ns, "chat", `{"spec":{"router":null}}`)
	r.has(route)
	r.eventually(func() (string, bool) {
		_, err := r.client.Resource(knativeServices).Namespace(ns).Get(t.Context(), "chat-router", metav1.GetOptions{})
		return fmt.Sprint(err), apierrors.IsNotFound(err)
	}, "OME deletes the router")
	r.settles()
	r.has(route)
}

// OME 1.2 gives the Service of mode MultiNodeRayVLLM a selector that its pods do not match. The port of the API is the one with the
// component's name, not one of Ray's.
func TestRayServices(t *testing.T) {
	t.Parallel()
	r := newRig(t, ome.Release12, gatewayAPI)
	r.apply(gateway)
	r.start()
	r.yaml(ns, "chat", "engine: {annotations: {ome.io/deploymentMode: MultiNodeRayVLLM}}", nil)
	r.has("httproute chat.models.example.com/ -> chat-engine by public")
	assert.Equal(t, "8080", field(r.only(render.HTTPRoutes), "spec", "rules", 0, "backendRefs", 0, "port"))
	r.awaitCondition("chat", fmt.Sprintf(accepted, "chat.models.example.com"))

	t.Log("As Kubernetes reports it")
	r.apply(`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {name: chat-engine-x, namespace: models,
		labels: {kubernetes.io/service-name: chat-engine, ome.io/inferenceservice: chat, component: engine}}, endpoints: []}`)
	r.awaitCondition("chat", fmt.Sprintf(accepted, "chat.models.example.com")+
		"; NoPods: Service chat-engine selects no pods, so requests fail: no pod has the labels "+
		"app.kubernetes.io/created-by=kuberay-operator,app.kubernetes.io/name=kuberay,ome.io/inferenceservice=chat-engine,ray.io/"+
		"node-type=head")
	r.patch(endpointSlices, ns, "chat-engine-x", `{"endpoints":[{"addresses":["10.0.0.1"]}]}`)
	r.awaitCondition("chat", fmt.Sprintf(accepted, "chat.models.example.com"))
	r.settles()
}

// The ports of OME's runtimes: for gpt-oss the engine has one port, which speaks only gRPC.
func TestPortsOfRuntimes(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI)
		r.apply(gateway)
		r.start()
		r.yaml(ns, "chat", "engine: {}", map[string]any{ome.AnnotationRuntimePorts: "engine=grpc1:8080"})
		r.eventually(func() (string, bool) {
			got := r.condition(ns, "chat")
			return got, strings.HasPrefix(got,
				"False GRPCOnly: http://chat.models.example.com/; Gateway gateways/public: accepted; port grpc1 of Service chat-engine "+
					"speaks only gRPC")
		}, "the condition says so")
		r.patch(isvc.Resource, ns, "chat",
			`{"metadata":{"annotations":{"`+ome.AnnotationRuntimePorts+`":"engine=grpc1:8080,engine=http1:8081"}}}`)
		r.awaitCondition("chat", fmt.Sprintf(accepted, "chat.models.example.com"))
		r.eventually(func() (string, bool) {
			got := field(r.only(render.HTTPRoutes), "spec", "rules", 0, "backendRefs", 0, "port")
			return got, got == "8081"
		}, "the route uses the HTTP port")
		r.settles()
	})
}
