package ingress_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/local/e2e/stack"
)

// seldom are permissions that no test needs, and why they are granted.
var seldom = map[string]string{
	"patch events.k8s.io/events": "an Event that comes again within minutes is counted in the one that is there",
}

// assertLeastPrivilege compares what the chart grants with what has been asked for. Kinds that no other test has made are made
// here, and lose the label by which they are known to be ours: then they are in the way, and read by name.
func assertLeastPrivilege(t *testing.T, s *system) {
	s.namespace(t, "kinds")
	overrides := map[types.NamespacedName]fields{}
	for name, values := range map[string]fields{
		"httproute": envoyRoute.values, "ingress": traefikIngress.with(fields{"perISVCSubdomain": false}),
		"istio": {"strategy": "virtualservice", "ingressGateway": "istio/public"},
		"pool":  envoyRoute.with(fields{"inferencePool": fields{"endpointPickerRef": fields{"name": "picker"}}}),
	} {
		overrides[types.NamespacedName{Namespace: "kinds", Name: name}] = values
	}
	s.configure(t, usual(0), overrides)
	kinds := map[string]bool{}
	for name := range overrides {
		require.NoError(t, s.create(t.Context(), name, nil, fields{"engine": fields{}}))
		var found []made
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			var err error
			found, err = s.objects(t.Context(), name)
			require.NoError(collect, err)
			require.NotEmpty(collect, found, "%s", name)
		}, settle, tick)
		for i := range found {
			kinds[found[i].GetKind()] = true
			s.unlabel(t, &found[i])
		}
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			now, err := s.objects(t.Context(), name)
			require.NoError(collect, err)
			require.ElementsMatch(collect, uids(found), uids(now))
		}, settle, tick)
	}
	assert.Len(t, kinds, len(written), "%v", kinds)
	s.configure(t, fields{"enabled": false}, nil)
	for name := range overrides {
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			left, err := s.objects(t.Context(), name)
			require.NoError(collect, err)
			require.Empty(collect, left)
		}, settle, tick)
	}

	used := map[string]bool{}
	for _, c := range s.calls(t, time.Time{}) {
		permission := fmt.Sprintf("%s %s/%s", c.Verb, c.Object.APIGroup, c.resource())
		assert.NotEqual(t, 403, c.Response.Code, "%s %s/%s", permission, c.Object.Namespace, c.Object.Name)
		used[permission] = true
	}
	granted := s.granted(t)
	assert.Empty(t, missing(used, granted), "used, and not granted by the chart")
	assert.ElementsMatch(t, slices.Collect(maps.Keys(seldom)), missing(granted, used), "granted, and not used")
}

// missing returns what of one set is not in another, sorted.
func missing(from, in map[string]bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(from)), func(p string) bool { return in[p] })
}

// unlabel takes away the label by which an object is known to be ours.
func (s *system) unlabel(t *testing.T, o *made) {
	t.Helper()
	for _, kind := range written {
		if kind.Group == o.GroupVersionKind().Group {
			s.patch(t, kind, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()},
				fields{"metadata": fields{"labels": fields{"fairlead.dev/managed-by": nil}}})
		}
	}
}

// granted returns what the release's roles allow: verb group/resource.
func (s *system) granted(t *testing.T) map[string]bool {
	t.Helper()
	rbac, mine := s.Clientset().RbacV1(), metav1.ListOptions{LabelSelector: reconcilerPod}
	cluster, err := rbac.ClusterRoles().List(t.Context(), mine)
	require.NoError(t, err)
	roles, err := rbac.Roles(metav1.NamespaceAll).List(t.Context(), mine)
	require.NoError(t, err)
	var rules []rbacv1.PolicyRule
	for _, r := range cluster.Items {
		rules = append(rules, r.Rules...)
	}
	for _, r := range roles.Items {
		rules = append(rules, r.Rules...)
	}
	granted := map[string]bool{}
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					granted[fmt.Sprintf("%s %s/%s", verb, group, resource)] = true
				}
			}
		}
	}
	require.NotEmpty(t, granted, "roles of %s", stack.Reconciler)
	return granted
}
