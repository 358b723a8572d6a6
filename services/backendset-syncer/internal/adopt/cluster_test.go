package adopt

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"
)

// kinds are the lists of the kinds that stand in the way.
var kinds = map[schema.GroupVersionResource]string{
	{Group: "apps", Version: "v1", Resource: "deployments"}:                                   "DeploymentList",
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "grpcroutes"}:               "GRPCRouteList",
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "tlsroutes"}:                "TLSRouteList",
	{Group: "gateway.networking.k8s.io", Version: "v1alpha3", Resource: "tlsroutes"}:          "TLSRouteList",
	{Group: "gateway.networking.k8s.io", Version: "v1alpha2", Resource: "tlsroutes"}:          "TLSRouteList",
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "backendtlspolicies"}:       "BackendTLSPolicyList",
	{Group: "gateway.networking.k8s.io", Version: "v1alpha3", Resource: "backendtlspolicies"}: "BackendTLSPolicyList",
}

func client(t *testing.T, manifests ...string) *fake.FakeDynamicClient {
	t.Helper()
	var objects []runtime.Object
	for _, m := range manifests {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(m), &u.Object))
		objects = append(objects, u)
	}
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {namespace: oke, name: controller%s}\nspec: {replicas: %d, " +
		"template: {spec: {containers: [{name: a, image: %s}]}}}\nstatus: {replicas: %d}"
	const attached = "apiVersion: gateway.networking.k8s.io/%s\nkind: %s\nmetadata: {namespace: %s, name: a}\nspec: {parentRefs: [{name: " +
		"other}, {name: inference%s}]}"
	const policy = "apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {namespace: %s, name: a}\nspec: " +
		"{targetRefs: [{group: \"\", kind: Service, name: chat}]}"
	image := "ghcr.io/gemyago/oke-gateway-api:v0.8.0"
	tests := []struct {
		name, give string
		want       string // empty: nothing is refused
	}{
		{
			name: "oke-gateway-api runs", give: fmt.Sprintf(deployment, "", 1, image, 1),
			want: "deployment oke/controller: oke-gateway-api runs",
		},
		{
			name: "under another image",
			give: fmt.Sprintf(deployment, ", labels: {app.kubernetes.io/name: oke-gateway-api-controller}", 1, "mirror/a", 1),
			want: "oke-gateway-api runs",
		},
		{name: "it has pods that end", give: fmt.Sprintf(deployment, "", 0, image, 1), want: "wait until its pods have ended"},
		{name: "it is scaled down", give: fmt.Sprintf(deployment, "", 0, image, 0)},
		{name: "another program", give: fmt.Sprintf(deployment, "", 1, "registry/app", 1)},
		{
			name: "a GRPCRoute", give: fmt.Sprintf(attached, "v1", "GRPCRoute", "models", ""),
			want: "grpcroute models/a: it is attached to Gateway models/inference",
		},
		{
			name: "a GRPCRoute of another namespace", give: fmt.Sprintf(attached, "v1", "GRPCRoute", "other", ", namespace: models"),
			want: "grpcroute other/a",
		},
		{name: "a GRPCRoute of another Gateway", give: fmt.Sprintf(attached, "v1", "GRPCRoute", "other", "")},
		{
			name: "a TLSRoute", give: fmt.Sprintf(attached, "v1", "TLSRoute", "models", ""),
			want: "tlsroute models/a: it is attached to Gateway models/inference",
		},
		{
			name: "a TLSRoute of an older version", give: fmt.Sprintf(attached, "v1alpha2", "TLSRoute", "models", ""),
			want: "tlsroute models/a",
		},
		{
			name: "a BackendTLSPolicy", give: fmt.Sprintf(policy, "models"),
			want: "backendtlspolicy models/a: it applies to Service models/chat",
		},
		{name: "a BackendTLSPolicy of another Service", give: fmt.Sprintf(policy, "other")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := ReadCluster(t.Context(), client(t, tt.give))
			require.NoError(t, err)
			in := upstreamShaped()
			found := c.FindRefusals(in.Gateways, in.Routes)
			if tt.want == "" {
				assert.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			assert.True(t, found[0].Refused)
			assert.Contains(t, found[0].String(), tt.want)
		})
	}
}

// TestAKindThatCannotBeListed is an error: an adoption must not overlook a route.
func TestAKindThatCannotBeListed(t *testing.T) {
	t.Parallel()
	c := client(t)
	c.PrependReactor("list", "grpcroutes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "grpcroutes"}, "", errors.New("no"))
	})
	_, err := ReadCluster(t.Context(), c)
	require.ErrorContains(t, err, "list grpcroutes.gateway.networking.k8s.io")
}

func TestKindsThatTheClusterDoesNotHave(t *testing.T) {
	t.Parallel()
	c := client(t)
	c.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
	})
	got, err := ReadCluster(t.Context(), c)
	require.NoError(t, err)
	assert.Empty(t, got.FindRefusals(nil, nil))
}

func TestRoutesOf(t *testing.T) {
	t.Parallel()
	in := upstreamShaped()
	other := in.Routes[0].DeepCopy()
	other.Name, other.Namespace = "elsewhere", "other"
	got := RoutesOf(in.Gateways, append(in.Routes, other))
	require.Len(t, got, 2)
	assert.Equal(t, "canary", got[0].Name)
	assert.Equal(t, "chat", got[1].Name)
}
