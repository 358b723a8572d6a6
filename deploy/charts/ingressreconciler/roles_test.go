package ingressreconciler_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
)

// groups are the kinds that the program can write, and their API groups.
var groups = map[string]string{
	"httproutes": "gateway.networking.k8s.io", "ingresses": "networking.k8s.io", "virtualservices": "networking.istio.io",
	"middlewares": "traefik.io", "inferencepools": "inference.networking.k8s.io", "services": "",
}

// others are what the program may write whatever its kinds are.
var others = []string{"patch ome.io/inferenceservices/status", "create /events", "patch /events"}

// TestRolesFollowKinds compares the permissions to write with the kinds, and the kinds with the flag of the program.
func TestRolesFollowKinds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		give  []string // nil: the default
		kinds []string
		istio bool // Istio Gateways are read
	}{
		{name: "default", kinds: []string{"httproutes", "ingresses", "virtualservices", "middlewares", "inferencepools"}, istio: true},
		{name: "one", give: []string{"httproutes"}, kinds: []string{"httproutes"}},
		{name: "ingresses with fallback Services", give: []string{"ingresses", "services"}, kinds: []string{"ingresses", "services"}},
		{name: "Istio", give: []string{"virtualservices"}, kinds: []string{"virtualservices"}, istio: true},
		{
			name: "all", give: []string{"services", "inferencepools", "middlewares", "virtualservices", "ingresses", "httproutes"},
			kinds: []string{"services", "inferencepools", "middlewares", "virtualservices", "ingresses", "httproutes"}, istio: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			values := helm.Values{}
			if tt.give != nil {
				values["kinds"] = tt.give
			}
			set := objects.Render(t, chart, values)
			granted := objects.Permissions(objects.The[rbacv1.ClusterRole](t, set).Rules)
			want := slices.Clone(others)
			for _, kind := range tt.kinds {
				for _, verb := range []string{"create", "patch", "delete"} {
					want = append(want, verb+" "+groups[kind]+"/"+kind)
				}
				for _, verb := range []string{"get", "list", "watch"} {
					assert.Contains(t, granted, verb+" "+groups[kind]+"/"+kind)
				}
			}
			assert.ElementsMatch(t, want, written(granted))
			for kind, group := range groups {
				if kind != "services" && !slices.Contains(tt.kinds, kind) {
					assert.NotContains(t, granted, "list "+group+"/"+kind, "the program does not watch other kinds")
				}
			}
			assert.Equal(t, tt.istio, slices.Contains(granted, "watch networking.istio.io/gateways"))
			container := objects.The[appsv1.Deployment](t, set).Spec.Template.Spec.Containers[0]
			assert.Contains(t, container.Args, "--kinds="+strings.Join(tt.kinds, ","))
		})
	}
}

// TestConfigMapsAreReadByName checks that the program may read its ConfigMaps, for the sub-commands too, and no others.
func TestConfigMapsAreReadByName(t *testing.T) {
	t.Parallel()
	set := objects.Render(t, chart, helm.Values{"configMap": helm.Values{"name": "routes", "namespace": "platform"}})
	var read []string
	collect := func(namespace string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			if slices.Contains(rule.Resources, "configmaps") {
				require.Len(t, rule.ResourceNames, 1)
				assert.ElementsMatch(t, []string{"list", "watch"}, rule.Verbs)
				read = append(read, namespace+"/"+rule.ResourceNames[0])
			}
		}
	}
	collect("*", objects.The[rbacv1.ClusterRole](t, set).Rules)
	for _, role := range objects.All[rbacv1.Role](t, set) {
		collect(role.Namespace, role.Rules)
	}
	assert.ElementsMatch(t, []string{"*/inferenceservice-config", "platform/routes"}, read)

	set = objects.Render(t, chart, helm.Values{"ome": helm.Values{"configMap": helm.Values{"name": ""}}})
	assert.NotContains(t, objects.Permissions(objects.The[rbacv1.ClusterRole](t, set).Rules), "list /configmaps")
}

// written returns the permissions that change objects.
func written(granted []string) []string {
	var found []string
	for _, p := range granted {
		if verb, _, _ := strings.Cut(p, " "); !slices.Contains([]string{"get", "list", "watch"}, verb) {
			found = append(found, p)
		}
	}
	return found
}
