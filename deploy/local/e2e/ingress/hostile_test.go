package ingress_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
)

// metricsPort is that of the pods of the ingress-reconciler.
const metricsPort = "9090"

// attack is a service of a hostile tenant. It is older than the services that it attacks.
type attack struct {
	name        string
	annotations fields // without the prefix of OME
	wantReasons []string
}

// attacks are for the hosts chat.victim.example.test, and llm.example.test with the path /victim/shared/.
var attacks = []attack{
	{
		name: "nested-path", annotations: fields{"domain": "chat.victim." + domain, "path-template": "/v1"},
		wantReasons: []string{"HostConflict", "PathNotAllowed"},
	},
	{
		name: "nested-own-path", annotations: fields{"domain": "chat.victim." + domain, "path-template": "/evil/v1"},
		wantReasons: []string{"HostConflict"},
	},
	{
		name: "shared-host", annotations: fields{"domain": "llm." + domain, "path-template": "/victim/shared/v1"},
		wantReasons: []string{"HostConflict", "PathNotAllowed"},
	},
	{name: "same-host", annotations: fields{"domain-template": "chat.victim." + domain}, wantReasons: []string{"HostConflict"}},
	{
		name: "additional", annotations: fields{"additional-domains": "chat.victim." + domain, "domain-template": "{{ .IngressDomain }}"},
		wantReasons: []string{"HostConflict"},
	},
	{name: "foreign-domain", annotations: fields{"domain": "victim.example.org"}, wantReasons: []string{"HostNotAllowed"}},
}

// assertHostileTenant has older services of a hostile tenant ask for hosts and paths of live services, in a cluster where all
// namespaces may have hosts below one domain. No request reaches the hostile tenant, also not when another replica begins to lead.
func assertHostileTenant(t *testing.T, s *system) {
	s.namespace(t, "victim")
	s.namespace(t, "evil")
	shared := types.NamespacedName{Namespace: "victim", Name: "shared"}
	overrides := map[types.NamespacedName]fields{
		shared: envoyRoute.with(fields{"perISVCSubdomain": false}), {Namespace: "victim", Name: "chat"}: envoyRoute.values,
	}
	for _, a := range attacks {
		overrides[types.NamespacedName{Namespace: "evil", Name: a.name}] = envoyRoute.values
	}
	s.overrideAll(t, overrides)
	for _, a := range attacks {
		require.NoError(t, s.create(t.Context(), types.NamespacedName{Namespace: "evil", Name: a.name}, nil, fields{"engine": component()}))
	}
	for _, a := range attacks {
		s.awaitExposed(t, types.NamespacedName{Namespace: "evil", Name: a.name}, envoyRoute.at)
	}
	victims := []exposure{
		{name: types.NamespacedName{Namespace: "victim", Name: "chat"}, roles: []string{"engine"}, entrance: envoyRoute},
		{name: shared, roles: []string{"engine"}, entrance: envoyRoute, shared: true},
	}
	var loads []*load
	for _, v := range victims {
		require.NoError(t, s.create(t.Context(), v.name, nil, fields{"engine": component()}))
		s.awaitExposed(t, v.name, envoyRoute.at)
		v.await(t, s, "")
		loads = append(loads, startUpgradeLoad(t, s, &v))
	}

	for _, a := range attacks {
		annotations := fields{}
		for key, value := range a.annotations {
			annotations["ome.io/ingress-"+key] = value
		}
		s.patch(t, inferenceServices, types.NamespacedName{Namespace: "evil", Name: a.name}, fields{"metadata": fields{"annotations": annotations}})
	}
	s.awaitRefused(t)
	s.deleteLeader(t)
	s.awaitReconciled(t)
	s.awaitRefused(t)
	for _, l := range loads {
		l.finish(t)
	}
	for _, v := range victims {
		s.awaitExposed(t, v.name, envoyRoute.at)
	}
}

// awaitRefused waits until every attack is refused, and checks the hosts and paths that the hostile services have.
func (s *system) awaitRefused(t *testing.T) {
	t.Helper()
	for _, a := range attacks {
		name := types.NamespacedName{Namespace: "evil", Name: a.name}
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			c, err := s.exposed(t.Context(), name)
			require.NoError(collect, err)
			require.Equal(collect, metav1.ConditionFalse, c.Status, "%s: %s", a.name, c.Message)
			require.Contains(collect, a.wantReasons, c.Reason, "%s: %s", a.name, c.Message)
		}, kubetest.Patience, tick)
		objects, err := s.objects(t.Context(), name)
		require.NoError(t, err)
		for i := range objects {
			claim := objects[i].GetAnnotations()["fairlead.dev/claim"]
			assert.False(t, strings.Contains(claim, "chat.victim."+domain+"/") && !strings.Contains(claim, ".evil.") ||
				strings.Contains(claim, "/victim/"), "%s: %s %s serves %s", a.name, objects[i].GetKind(), objects[i].GetName(), claim)
		}
	}
}

// awaitReconciled waits until the leader has reconciled as often as there are services: it begins with all of them.
func (s *system) awaitReconciled(t *testing.T) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		_, name, err := s.leader(t.Context())
		require.NoError(collect, err)
		pod, err := s.Clientset().CoreV1().Pods(stack.ReconcilerNamespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(collect, err)
		services, err := s.client.Resource(inferenceServices).List(t.Context(), metav1.ListOptions{})
		require.NoError(collect, err)
		ctx, cancel := context.WithTimeout(t.Context(), attempt)
		defer cancel()
		page, err := stack.Fetch(ctx, s.Cluster, net.JoinHostPort(pod.Status.PodIP, metricsPort), "/metrics")
		require.NoError(collect, err)
		require.GreaterOrEqual(collect, stack.Sum(page, "fairlead_controller_reconcile_duration_seconds_count"), float64(len(services.Items)))
	}, kubetest.Patience, tick)
}

// deleteLeader deletes the pod that leads, and waits until another one leads.
func (s *system) deleteLeader(t *testing.T) {
	t.Helper()
	s.term.Lock()
	defer s.term.Unlock()
	_, old, err := s.leader(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Clientset().CoreV1().Pods(stack.ReconcilerNamespace).Delete(t.Context(), old, metav1.DeleteOptions{}))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		_, now, err := s.leader(t.Context())
		require.NoError(collect, err)
		require.NotContains(collect, []string{"", old}, now)
	}, kubetest.Patience, tick)
}
