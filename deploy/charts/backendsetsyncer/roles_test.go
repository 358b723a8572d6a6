package backendsetsyncer_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
)

// own is the name of the ClusterRole of the program.
const own = "system:release-backendset-syncer"

// role returns a ClusterRole.
func role(t *testing.T, set objects.Set, name string) *rbacv1.ClusterRole {
	t.Helper()
	all := objects.All[rbacv1.ClusterRole](t, set)
	i := slices.IndexFunc(all, func(r *rbacv1.ClusterRole) bool { return r.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return all[i]
}

// TestRoles checks that the program may do what it does, and nothing else.
func TestRoles(t *testing.T) {
	t.Parallel()
	always := []string{
		"list fairlead.dev/backendsetbindings", "watch fairlead.dev/backendsetbindings", "update fairlead.dev/backendsetbindings",
		"update fairlead.dev/backendsetbindings/status", "list /services", "watch /services",
		"list discovery.k8s.io/endpointslices", "watch discovery.k8s.io/endpointslices", "create /events", "patch /events",
	}
	assert.ElementsMatch(t, always, objects.Permissions(role(t, objects.Render(t, chart, nil), own).Rules))
	gates := objects.Render(t, chart, helm.Values{"readinessGates": helm.Values{"enabled": true}})
	assert.ElementsMatch(t, append(always, "list /pods", "watch /pods", "patch /pods/status"), objects.Permissions(role(t, gates, own).Rules))

	const gateway = "gateway.networking.k8s.io/"
	routed := slices.Concat(always, listWatch(
		gateway+"gatewayclasses", gateway+"gateways", gateway+"httproutes", gateway+"referencegrants", "inference.networking.k8s.io/inferencepools",
		"/configmaps", "/namespaces", "/secrets", "/pods", "oke-gateway-api.gemyago.github.io/gateway-configs",
	), []string{"patch " + gateway + "gatewayclasses/status", "patch " + gateway + "gateways/status", "patch " + gateway + "httproutes/status"})
	gateways := objects.Render(t, chart, helm.Values{"gateways": helm.Values{"enabled": true}})
	assert.ElementsMatch(t, routed, objects.Permissions(role(t, gateways, own).Rules))
	alias := objects.Render(t, chart, helm.Values{"gateways": helm.Values{"enabled": true, "okeGatewayAPIAlias": true}})
	assert.ElementsMatch(t, append(routed, "patch "+gateway+"httproutes"), objects.Permissions(role(t, alias, own).Rules))
}

// listWatch returns the permissions to list and to watch resources.
func listWatch(resources ...string) []string {
	var all []string
	for _, r := range resources {
		all = append(all, "list "+r, "watch "+r)
	}
	return all
}

// TestRecordsAreInTheNamespaceOfTheRelease checks that the program writes ConfigMaps only there, and only if it serves Gateways.
func TestRecordsAreInTheNamespaceOfTheRelease(t *testing.T) {
	t.Parallel()
	records := func(values helm.Values) []*rbacv1.Role {
		return slices.DeleteFunc(objects.All[rbacv1.Role](t, objects.Render(t, chart, values)), func(r *rbacv1.Role) bool { return !strings.HasSuffix(r.Name, "-records") })
	}
	assert.Empty(t, records(nil))
	own := records(helm.Values{"gateways": helm.Values{"enabled": true}})
	require.Len(t, own, 1)
	assert.Equal(t, "system", own[0].Namespace)
	assert.Equal(t, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "update", "delete"}}}, own[0].Rules)
}

// TestRolesCoverInformers compares the kinds in the source of the program with those that it may list and watch.
func TestRolesCoverInformers(t *testing.T) {
	t.Parallel()
	var read []string
	for _, file := range []string{"informers.go", "gateway.go"} {
		code, err := os.ReadFile(filepath.Join(repository, "services", program, "internal", "informers", file))
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`Resource(?:\(|: )"([\w-]+)"`).FindAllStringSubmatch(string(code), -1) {
			read = append(read, match[1])
		}
	}
	require.Contains(t, read, "backendsetbindings")
	require.Contains(t, read, "httproutes")
	set := objects.Render(t, chart, helm.Values{"readinessGates": helm.Values{"enabled": true}, "gateways": helm.Values{"enabled": true}})
	for _, verb := range []string{"list", "watch"} {
		var granted []string
		for _, p := range objects.Permissions(role(t, set, own).Rules) {
			if resource, is := strings.CutPrefix(p, verb+" "); is {
				granted = append(granted, resource[strings.Index(resource, "/")+1:])
			}
		}
		assert.ElementsMatch(t, read, granted, verb)
	}
}

// TestConfigMapIsReadByName checks that the program may read its ConfigMap and no others, and that one Lease is its own.
func TestConfigMapIsReadByName(t *testing.T) {
	t.Parallel()
	set := objects.Render(t, chart, helm.Values{"configMap": helm.Values{"name": "lbs", "namespace": "platform"}})
	roles := map[string][]rbacv1.PolicyRule{}
	for _, r := range objects.All[rbacv1.Role](t, set) {
		roles[r.Namespace+"/"+r.Name] = r.Rules
	}
	assert.Equal(t, map[string][]rbacv1.PolicyRule{
		"platform/release-backendset-syncer-config": {
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"lbs"}, Verbs: []string{"list", "watch"}},
		},
		"system/release-backendset-syncer-leader": {
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"fairlead-backendset-syncer"}, Verbs: []string{"get", "update"}},
		},
	}, roles)
}

// TestRolesOfUsers checks which permissions users with the built-in roles get: never those to write the status, which decides who owns a
// backend set.
func TestRolesOfUsers(t *testing.T) {
	t.Parallel()
	const aggregate = "rbac.authorization.k8s.io/aggregate-to-"
	tests := []struct {
		name, role string
		want       []string
		to         []string
	}{
		{name: "readers", role: own + ":view", want: []string{"get", "list", "watch"}, to: []string{"view", "edit", "admin"}},
		{name: "writers", role: own + ":edit", want: []string{"create", "update", "patch", "delete"}, to: []string{"edit", "admin"}},
	}
	set := objects.Render(t, chart, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := role(t, set, tt.role)
			assert.Equal(t, []rbacv1.PolicyRule{{APIGroups: []string{"fairlead.dev"}, Resources: []string{"backendsetbindings"}, Verbs: tt.want}}, r.Rules)
			var to []string
			for label, value := range r.Labels {
				if name, is := strings.CutPrefix(label, aggregate); is && value == "true" {
					to = append(to, name)
				}
			}
			assert.ElementsMatch(t, tt.to, to)
		})
	}
	assert.Len(t, objects.All[rbacv1.ClusterRole](t, objects.Render(t, chart, helm.Values{"rbac": helm.Values{"aggregate": false}})), 1)
	assert.Empty(t, objects.Rules(t, objects.Render(t, chart, helm.Values{"rbac": helm.Values{"create": false}})))
}
