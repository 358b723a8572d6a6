package ingress_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
)

// address is one of those for documentation.
const address = "192.0.2.10"

// object is of a kind of the Gateway API, as far as it is looked at.
type object struct {
	Metadata struct{ Generation int64 }
	Status   struct {
		Addresses         []struct{ Value string }
		SupportedFeatures []struct{ Name string }
		Parents           []struct {
			ParentRef      struct{ Name, SectionName string }
			ControllerName string
			Conditions     []metav1.Condition
		}
	}
}

func (w *world) read(ctx context.Context, plural string, name types.NamespacedName) (object, error) {
	kind := schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: plural}
	got, err := dynamic.NewForConfigOrDie(w.cluster.RESTConfig()).Resource(kind).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return object{}, err
	}
	raw, err := got.MarshalJSON()
	if err != nil {
		return object{}, err
	}
	var o object
	return o, json.Unmarshal(raw, &o)
}

func (w *world) route(ctx context.Context, name string) (object, error) {
	return w.read(ctx, "httproutes", types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: name})
}

// parents are the conditions of an HTTPRoute's parents, in a line for each: name/section: type=status/reason@generation ...
func (o object) parents() []string {
	var out []string
	for _, p := range o.Status.Parents {
		line := strings.TrimSuffix(p.ParentRef.Name+"/"+p.ParentRef.SectionName, "/") + ":"
		for _, c := range p.Conditions {
			line += fmt.Sprintf(" %s=%s/%s@%d", c.Type, c.Status, c.Reason, c.ObservedGeneration)
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// assertAddresses shows that a controller that serves an object does not say so before its own Service has an address.
func assertAddresses(t *testing.T, w *world) {
	for _, name := range []string{"strip", "regex"} {
		got, err := w.loadBalancer(t.Context(), name)
		require.NoError(t, err)
		require.Empty(t, got, name)
	}
	require.NoError(t, stack.GiveAddress(t.Context(), w.cluster, types.NamespacedName{Namespace: stack.TraefikNamespace, Name: stack.Traefik}, address))
	for _, name := range []string{"strip", "regex"} {
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			got, err := w.loadBalancer(t.Context(), name)
			require.NoError(collect, err)
			require.Equal(collect, []string{address}, got, name)
		}, kubetest.Patience, tick)
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		gateway, err := w.read(t.Context(), "gateways", types.NamespacedName{Namespace: stack.TraefikNamespace, Name: stack.Traefik})
		require.NoError(collect, err)
		require.Equal(collect, []struct{ Value string }{{Value: address}}, gateway.Status.Addresses)
	}, kubetest.Patience, tick)
}

// assertFeatures is what Traefik says of itself. HTTPRouteRequestTimeout and HTTPRouteBackendTimeout are not among it.
func assertFeatures(t *testing.T, w *world) {
	class, err := w.read(t.Context(), "gatewayclasses", types.NamespacedName{Name: stack.Traefik})
	require.NoError(t, err)
	var got []string
	for _, f := range class.Status.SupportedFeatures {
		got = append(got, f.Name)
	}
	slices.Sort(got)
	assert.Equal(t, []string{
		"BackendTLSPolicy", "GRPCRoute", "GRPCRouteNamedRouteRule", "Gateway", "GatewayPort8080", "HTTPRoute", "HTTPRoute303RedirectStatusCode",
		"HTTPRoute307RedirectStatusCode", "HTTPRoute308RedirectStatusCode", "HTTPRouteBackendProtocolH2C", "HTTPRouteBackendProtocolWebSocket",
		"HTTPRouteBackendRequestHeaderModification", "HTTPRouteDestinationPortMatching", "HTTPRouteHostRewrite", "HTTPRouteMethodMatching",
		"HTTPRouteNamedRouteRule", "HTTPRouteParentRefPort", "HTTPRoutePathRedirect", "HTTPRoutePathRewrite", "HTTPRoutePortRedirect",
		"HTTPRouteQueryParamMatching", "HTTPRouteResponseHeaderModification", "HTTPRouteSchemeRedirect", "ReferenceGrant", "TLSRoute",
		"TLSRouteModeMixed", "TLSRouteModeTerminate",
	}, got)
}

// assertRoutes is what is said of HTTPRoutes, and what a request to them gets.
func assertRoutes(t *testing.T, w *world) {
	w.apply(t, "routes.yaml")
	const accepted = " Accepted=True/Accepted@1"
	tests := []struct {
		name        string
		wantParents []string
		want        int
	}{
		{name: "no-listener", wantParents: []string{"traefik/nobody: Accepted=False/NoMatchingParent@1 ResolvedRefs=True/ResolvedRefs@1"}, want: http.StatusNotFound},
		{name: "other-host", wantParents: []string{"one-host: Accepted=False/NoMatchingListenerHostname@1 ResolvedRefs=True/ResolvedRefs@1"}, want: http.StatusNotFound},
		{name: "not-allowed", wantParents: []string{"own-namespace: Accepted=False/NotAllowedByListeners@1 ResolvedRefs=True/ResolvedRefs@1"}, want: http.StatusNotFound},
		{name: "no-service", wantParents: []string{"traefik:" + accepted + " ResolvedRefs=False/BackendNotFound@1"}, want: http.StatusInternalServerError},
		{name: "no-pods", wantParents: []string{"traefik:" + accepted + " ResolvedRefs=True/ResolvedRefs@1"}, want: http.StatusServiceUnavailable},
		{name: "pool", wantParents: []string{"traefik:" + accepted + " ResolvedRefs=False/InvalidKind@1"}, want: http.StatusInternalServerError},
		{name: "timeout", wantParents: []string{"traefik:" + accepted + " ResolvedRefs=True/ResolvedRefs@1"}, want: http.StatusOK}, // it has no effect
		{name: "no-gateway", want: http.StatusNotFound}, // the first of the file: it was seen when the others were
	}
	for _, tt := range tests {
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			got, err := w.route(t.Context(), tt.name)
			require.NoError(collect, err)
			require.Equal(collect, tt.wantParents, got.parents(), tt.name)
			answer, err := w.try(t.Context(), question{host: tt.name + ".test", target: "/?delay=1500ms"})
			require.NoError(collect, err)
			require.Equal(collect, tt.want, answer.status, tt.name)
		}, kubetest.Patience, tick)
	}
}

// assertChangingRoute shows that conditions name the generation that they are about, and that what is said for a parent stays
// when the route does not name it any more.
func assertChangingRoute(t *testing.T, w *world) {
	const name = "moving"
	require.NoError(t, w.cluster.Apply(t.Context(), `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: moving}
spec:
  parentRefs: [{name: traefik, namespace: traefik}]
  hostnames: [moving.test]
  rules: [{backendRefs: [{name: a, port: 80}]}]`))
	w.await(t, "moving.test", "/", "/")
	patch := func(spec string) {
		t.Helper()
		_, err := w.cluster.Kubectl(t.Context(), "patch", "httproute", name, "--type=merge", "--patch", `{"spec":`+spec+`}`)
		require.NoError(t, err)
	}
	awaitParents := func(want string) {
		t.Helper()
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			got, err := w.route(t.Context(), name)
			require.NoError(collect, err)
			require.Equal(collect, []string{want}, got.parents())
		}, kubetest.Patience, tick)
	}
	awaitParents("traefik: Accepted=True/Accepted@1 ResolvedRefs=True/ResolvedRefs@1")
	patch(`{"hostnames":["moved.test"]}`)
	awaitParents("traefik: Accepted=True/Accepted@2 ResolvedRefs=True/ResolvedRefs@2")
	w.await(t, "moved.test", "/", "/")
	w.await(t, "moving.test", "/", "404")
	patch(`{"parentRefs":[{"name":"nobody"}]}`)
	w.await(t, "moved.test", "/", "404")
	got, err := w.route(t.Context(), name)
	require.NoError(t, err)
	assert.EqualValues(t, 3, got.Metadata.Generation)
	assert.Equal(t, []string{"traefik: Accepted=True/Accepted@2 ResolvedRefs=True/ResolvedRefs@2"}, got.parents(), "of a parent that it has no more")
}

// assertChangingClass shows that an Ingress keeps its address when its controller does not serve it any more.
func assertChangingClass(t *testing.T, w *world) {
	for _, class := range []string{traefikClass, nginxClass} {
		name := "leaving-" + class
		w.create(t, ingress{name: name, class: class})
		w.await(t, name+".test", "/", "/")
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			got, err := w.loadBalancer(t.Context(), name)
			require.NoError(collect, err)
			require.Equal(collect, []string{address}, got)
		}, kubetest.Patience, tick)
		_, err := w.cluster.Kubectl(t.Context(), "patch", "ingress", name, "--type=merge", "--patch", `{"spec":{"ingressClassName":"nobody"}}`)
		require.NoError(t, err)
		w.await(t, name+".test", "/", "404")
		got, err := w.loadBalancer(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, []string{address}, got)
	}
}
