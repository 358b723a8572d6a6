package allowlist

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Resource{
		"v1/secrets":                secrets,
		"v1/pods@own":               {Version: "v1", Name: "pods", Own: true},
		"a.example/v1/foos":         {Group: "a.example", Version: "v1", Name: "foos", Custom: true},
		"a.example/v1/bars@cluster": {Group: "a.example", Version: "v1", Name: "bars", Custom: true, ClusterScoped: true},
		"gateway.networking.k8s.io/v1/gateways@own": {
			Group: "gateway.networking.k8s.io", Version: "v1", Name: "gateways", Custom: true, Own: true,
		},
	} {
		got, err := ParseResource(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got)
	}
	for _, text := range []string{
		"", "pods", "/pods", "v1/", "a/b/c/d", "v1/pods@", "v1/pods@other", "v1/pods@own@own", "v1/pods@cluster", "v1/nodes@own",
		"a.example/v1/bars@own@cluster", "v1/persistentvolumes", "apps/v1/deployments", "rbac.authorization.k8s.io/v1/clusterroles", "@own",
	} {
		_, err := ParseResource(text)
		require.Error(t, err, text)
	}
}

func TestProfilesAllowWhatTheyList(t *testing.T) {
	t.Parallel()
	for _, name := range ProfileNames() {
		list, err := ForProfile(name, []string{"v1/configmaps@own"})
		require.NoError(t, err)
		for _, verb := range []string{"create", "update", "patch", "delete", "get"} {
			assert.False(t, list.Writes.AllowsRequest("", "secrets", verb, OwnNamespace), "%s may %s Secrets", name, verb)
			assert.False(t, list.Writes.AllowsRequest("coordination.k8s.io", "leases", verb, OtherNamespace), "%s may %s Leases elsewhere", name, verb)
		}
		assert.Contains(t, list.Resources, nodes, name)
		assert.Contains(t, list.Resources, configMaps, name)
	}
	_, err := ForProfile("unknown", nil)
	require.ErrorContains(t, err, `"unknown" is not one of`)
	before := len(base)
	_, err = ForProfile("traefik", []string{"v1/pods"})
	require.NoError(t, err)
	assert.Len(t, base, before, "an addition changed the profile")
}

func TestWritable(t *testing.T) {
	t.Parallel()
	list, err := ForProfile("ingress-nginx", nil)
	require.NoError(t, err)
	assert.True(t, list.Writes.AllowsRequest("networking.k8s.io", "ingresses/status", "patch", OtherNamespace))
	assert.False(t, list.Writes.AllowsRequest("networking.k8s.io", "ingresses", "patch", OtherNamespace))
	assert.False(t, list.Writes.AllowsRequest("networking.k8s.io", "ingresses/status", "delete", OtherNamespace))
	assert.True(t, list.Writes.AllowsRequest("coordination.k8s.io", "leases", "update", OwnNamespace))
	assert.True(t, list.Reads.AllowsRequest("coordination.k8s.io", "leases", "get", OwnNamespace))
	assert.False(t, list.Reads.AllowsRequest("coordination.k8s.io", "leases", "get", OtherNamespace))
}
