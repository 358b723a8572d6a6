package nodepoolingress_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
)

// own is the name of the ClusterRole of the program, and the prefix of those of ingress controllers.
const own = "system:release-nodepool-ingress"

// traefikKinds are the resources that Traefik lists with its provider for custom resources.
var traefikKinds = []string{
	"ingressroutes", "ingressroutetcps", "ingressrouteudps", "middlewares", "middlewaretcps", "serverstransports", "serverstransporttcps", "tlsoptions", "tlsstores",
	"traefikservices",
}

// role returns a ClusterRole.
func role(t *testing.T, set objects.Set, name string) *rbacv1.ClusterRole {
	t.Helper()
	all := objects.All[rbacv1.ClusterRole](t, set)
	i := slices.IndexFunc(all, func(r *rbacv1.ClusterRole) bool { return r.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return all[i]
}

// verbs returns permissions for each of some verbs.
func verbs(resource string, all ...string) []string {
	var granted []string
	for _, verb := range all {
		granted = append(granted, verb+" "+resource)
	}
	return granted
}

// TestRoles checks that the program may do what it does, and nothing else. It writes namespaced objects in its own namespace alone, and
// neither reads Secrets nor makes roles.
func TestRoles(t *testing.T) {
	t.Parallel()
	written := []string{"get", "list", "watch", "create", "patch", "delete"}
	set := objects.Render(t, chart, nil)
	assert.ElementsMatch(t, slices.Concat(
		verbs("apps.openyurt.io/yurtingresses", "list", "watch", "patch"), verbs("apps.openyurt.io/yurtingresses/status", "update"),
		verbs("apps.openyurt.io/nodepools", "list", "watch"), verbs("/nodes", "list", "watch"),
		verbs("networking.k8s.io/ingressclasses", written...), verbs("rbac.authorization.k8s.io/clusterrolebindings", written...),
		verbs("rbac.authorization.k8s.io/clusterroles", "bind"), verbs("/events", "create", "patch"),
		verbs("apiextensions.k8s.io/customresourcedefinitions", "list", "watch"),
	), objects.Permissions(role(t, set, own).Rules))
	var local []string
	for _, r := range objects.All[rbacv1.Role](t, set) {
		assert.Equal(t, "system", r.Namespace)
		if r.Name == "release-nodepool-ingress" {
			local = objects.Permissions(r.Rules)
		}
	}
	var want []string
	for _, resource := range []string{"/serviceaccounts", "/configmaps", "/services", "apps/deployments", "policy/poddisruptionbudgets", "rbac.authorization.k8s.io/rolebindings"} {
		want = append(want, verbs(resource, written...)...)
	}
	assert.ElementsMatch(t, want, local)
}

// TestBind checks that the program may bind the roles of ingress controllers by their names, those that the chart creates and those that the
// administrator lists, and no others.
func TestBind(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		profiles helm.Values
		want     []string
	}{
		{name: "default", profiles: helm.Values{}, want: []string{own + ":cache", own + ":traefik"}},
		{
			name: "custom roles", profiles: helm.Values{"enabled": []string{"custom", "nginx-f5"}, "default": "custom", "customClusterRoles": []string{"caddy"}},
			want: []string{own + ":cache", own + ":nginx-f5", own + ":nginx-f5-local", "caddy"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := objects.Render(t, chart, helm.Values{"profiles": tt.profiles})
			var bindable []string
			for _, rule := range role(t, set, own).Rules {
				if slices.Contains(rule.Verbs, "bind") {
					assert.Equal(t, []string{"bind"}, rule.Verbs)
					bindable = append(bindable, rule.ResourceNames...)
				}
			}
			assert.Equal(t, tt.want, bindable)
			for _, name := range bindable {
				if strings.HasPrefix(name, own) {
					role(t, set, name)
				}
			}
		})
	}
}

// TestRolesOfControllers checks that no ingress controller may write more than the status of Ingresses, Events, and what is in its namespace.
func TestRolesOfControllers(t *testing.T) {
	t.Parallel()
	all := []string{"traefik", "haproxytech", "haproxy-ingress", "nginx-f5", "ingress-nginx"}
	set := objects.Render(t, chart, helm.Values{"profiles": helm.Values{"enabled": all}})
	writes := []string{"update networking.k8s.io/ingresses/status", "patch networking.k8s.io/ingresses/status", "create /events", "patch /events"}
	for _, name := range append(all, "cache") {
		for _, p := range objects.Permissions(role(t, set, own+":"+name).Rules) {
			verb, _, _ := strings.Cut(p, " ")
			if !slices.Contains([]string{"get", "list", "watch"}, verb) {
				assert.Contains(t, writes, p, name)
			}
		}
	}
	want := slices.Concat(
		verbs("/services", "list", "watch"), verbs("/secrets", "get", "list", "watch"), verbs("/configmaps", "get", "list", "watch"), verbs("/nodes", "list", "watch"),
		verbs("discovery.k8s.io/endpointslices", "list", "watch"), verbs("networking.k8s.io/ingresses", "list", "watch"),
		verbs("networking.k8s.io/ingressclasses", "list", "watch"), verbs("networking.k8s.io/ingresses/status", "update"),
	)
	for _, kind := range traefikKinds {
		want = append(want, verbs("traefik.io/"+kind, "list", "watch")...)
	}
	assert.ElementsMatch(t, want, objects.Permissions(role(t, set, own+":traefik").Rules))
	var definitions []string
	for _, kind := range traefikKinds {
		definitions = append(definitions, kind+".traefik.io")
	}
	rules := role(t, set, own).Rules
	i := slices.IndexFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, "apiextensions.k8s.io") })
	assert.ElementsMatch(t, definitions, rules[i].ResourceNames)
}

// TestAnnotationPolicy checks that the policy for annotations comes with the profiles of HAProxy's controllers, and that it refuses the Secrets of haproxytech
// with that profile alone. A test of the program lets an API server evaluate it.
func TestAnnotationPolicy(t *testing.T) {
	t.Parallel()
	for profile, want := range map[string]int{"traefik": 0, "nginx-f5": 0, "haproxytech": 3, "haproxy-ingress": 2} {
		set := objects.Render(t, chart, helm.Values{"profiles": helm.Values{"enabled": []string{profile}, "default": profile}})
		validations := 0
		for _, o := range set {
			if o.GetKind() == "ValidatingAdmissionPolicy" && strings.HasSuffix(o.GetName(), "-annotations") {
				all, _, err := unstructured.NestedSlice(o.Object, "spec", "validations")
				require.NoError(t, err)
				validations += len(all)
			}
		}
		assert.Equal(t, want, validations, profile)
	}
}

// TestLeases checks that the policy for Leases comes with the profiles whose roles write Leases. A test of the program lets an API server evaluate it.
func TestLeases(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{"traefik", "haproxytech", "haproxy-ingress", "nginx-f5", "ingress-nginx"} {
		set := objects.Render(t, chart, helm.Values{"profiles": helm.Values{"enabled": []string{profile}, "default": profile}})
		var writes bool
		for _, r := range objects.All[rbacv1.ClusterRole](t, set) {
			writes = writes || slices.Contains(objects.Permissions(r.Rules), "create coordination.k8s.io/leases")
		}
		policies := slices.DeleteFunc(slices.Clone(set), func(o *unstructured.Unstructured) bool {
			return !strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") || !strings.HasSuffix(o.GetName(), "-leases")
		})
		if !writes {
			assert.Empty(t, policies, profile)
			continue
		}
		require.Len(t, policies, 2, profile)
		text, err := policies[0].MarshalJSON()
		require.NoError(t, err)
		assert.Contains(t, string(text), `{"kubernetes.io/metadata.name":"system"}`)
		assert.Contains(t, string(text), "system:serviceaccount:system:release-nodepool-ingress", "the program has a Lease with another name")
	}
	set := objects.Render(t, chart, helm.Values{"profiles": helm.Values{"enabled": []string{"custom"}, "default": "custom"}})
	assert.True(t, slices.ContainsFunc(set, func(o *unstructured.Unstructured) bool { return o.GetKind() == "ValidatingAdmissionPolicy" }), "a custom role may write Leases")
}

// TestRolesOfUsers checks which permissions users with the built-in roles get: never those to write the status, nor to bind roles.
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
			assert.Equal(t, []rbacv1.PolicyRule{{APIGroups: []string{"apps.openyurt.io"}, Resources: []string{"yurtingresses"}, Verbs: tt.want}}, r.Rules)
			var to []string
			for label, value := range r.Labels {
				if name, is := strings.CutPrefix(label, aggregate); is && value == "true" {
					to = append(to, name)
				}
			}
			assert.ElementsMatch(t, tt.to, to)
		})
	}
	assert.Len(t, objects.All[rbacv1.ClusterRole](t, objects.Render(t, chart, helm.Values{"rbac": helm.Values{"aggregate": false}})), 3)
	assert.Empty(t, objects.Rules(t, objects.Render(t, chart, helm.Values{"rbac": helm.Values{"create": false}})))
}
