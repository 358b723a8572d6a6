package flow

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/kubetest/clusterapi"
	"fairlead.dev/services/backendset-syncer/internal/config"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/record"
)

// seldom are permissions that the test may not use, and why the chart grants them.
var seldom = []string{
	"patch /events", // an Event that repeats within minutes raises the count of the one that exists
}

// TestLeastPrivilege runs the program as the ServiceAccount of its chart, with everything that needs a permission. The audit log of the API
// server has no other requests than those that the roles permit, and the roles permit nothing else.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	g := newGatewayRig(t, func(c *clusterapi.Config) { c.Audit = true })
	g.installRoles()
	id := g.balancer("roles", "bound")
	g.configure(fmt.Sprintf("podRanges: [10.0.0.0/24]\nloadBalancers:\n- {id: %s, gateways: {namespaces: [infra]}}\n", id))
	kubeconfig := g.kubeconfigOf("backendset-syncer")
	g.run(func(c *config.Config) {
		c.Kube.Kubeconfig, c.Gateways.OKE, c.Gates.Enabled = kubeconfig, true, true
		c.Leader.Elect, c.Leader.Namespace = true, "fairlead"
	})

	g.service("models", "bound", "1")
	g.bind("models", "bound", id, "bound", func(b *v1alpha1.BackendSetBinding) { b.Spec.DeletionPolicy = v1alpha1.EmptyBackends })
	g.reason("models", "bound", "Synced")
	g.gateway("infra", "web", id, `drainMaximumSeconds: "1"`, fmt.Sprintf("{name: http, port: 80, protocol: HTTP, %s}", all))
	pod := g.gatedPod("gated-61")
	g.serve("10.0.0.61:8000", "gated")
	g.service("models", "gated", "")
	g.apply(sliceOf(pod, "gated", "61:notready"))
	g.apply("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: gated, namespace: models, finalizers: [oke-gateway-api.gemyago.github.io/http-route-programmed]}\n" +
		"spec: {parentRefs: [{name: web, namespace: infra}], rules: [{backendRefs: [{name: gated, port: 80}]}]}\n")
	g.gate("gated-61", "True InService")
	g.routeCondition("models", "gated", "fairlead.dev/BackendsSynced", "Synced")

	require.NoError(t, g.dynamic.Resource(informers.HTTPRoutes).Namespace("models").Delete(t.Context(), "gated", metav1.DeleteOptions{}))
	require.NoError(t, g.dynamic.Resource(informers.Gateways).Namespace("infra").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.NoError(t, g.rig.client.FairleadV1alpha1().BackendSetBindings("models").Delete(t.Context(), "bound", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, route := g.dynamic.Resource(informers.HTTPRoutes).Namespace("models").Get(t.Context(), "gated", metav1.GetOptions{})
		_, binding := g.rig.client.FairleadV1alpha1().BackendSetBindings("models").Get(t.Context(), "bound", metav1.GetOptions{})
		_, kept := g.kube.CoreV1().ConfigMaps("fairlead").Get(t.Context(), record.ConfigMapName(id), metav1.GetOptions{})
		return apierrors.IsNotFound(route) && apierrors.IsNotFound(binding) && apierrors.IsNotFound(kept)
	}, patience, tick, "%s", lazy(g.logs.String))

	used, granted := g.requests("system:serviceaccount:fairlead:backendset-syncer"), g.granted()
	for permission := range granted { // a watch begins with a list unless the API server streams it
		if of, is := strings.CutPrefix(permission, "list "); is && used["watch "+of] {
			used[permission] = true
		}
	}
	without := func(from, in map[string]bool) []string {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(from)), func(p string) bool { return in[p] })
	}
	assert.Empty(t, without(used, granted), "used, but not granted by the chart")
	assert.Subset(t, seldom, without(granted, used), "granted, but not used")
}

// installRoles applies the ServiceAccount and the roles of the chart with everything that adds permissions of the program.
func (g *gatewayRig) installRoles() {
	g.t.Helper()
	out, err := g.cluster.Helm(g.t.Context(), "template", "backendset-syncer", "../../../../charts/backendset-syncer", "--namespace", "fairlead", "--show-only", "templates/rbac.yaml",
		"--show-only", "templates/serviceaccount.yaml", "--set", "gateways.enabled=true", "--set", "gateways.okeGatewayAPIAlias=true", "--set", "readinessGates.enabled=true",
		"--set", "rbac.aggregate=false", "--set", "configMap.name=syncer")
	require.NoError(g.t, err)
	g.apply(out)
}

// kubeconfigOf writes a kubeconfig with a token of a ServiceAccount of namespace fairlead.
func (g *gatewayRig) kubeconfigOf(account string) string {
	g.t.Helper()
	token, err := g.kube.CoreV1().ServiceAccounts("fairlead").CreateToken(g.t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(g.t, err)
	c, err := clientcmd.LoadFromFile(g.cluster.Kubeconfig)
	require.NoError(g.t, err)
	for name := range c.AuthInfos {
		c.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	file := filepath.Join(g.t.TempDir(), "kubeconfig")
	require.NoError(g.t, clientcmd.WriteToFile(*c, file))
	return file
}

// requests returns the permissions that the requests of a user in the audit log need. None of them was refused.
func (g *gatewayRig) requests(user string) map[string]bool {
	g.t.Helper()
	f, err := os.Open(clusterapi.AuditFile(g.cluster.Dir))
	require.NoError(g.t, err)
	defer f.Close()
	used := map[string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var call struct {
			Verb     string
			User     struct{ Username string }
			Object   struct{ APIGroup, Resource, Subresource, Namespace, Name string } `json:"objectRef"`
			Response struct{ Code int }                                                `json:"responseStatus"`
		}
		if json.Unmarshal(lines.Bytes(), &call) != nil || call.User.Username != user || call.Object.Resource == "" {
			continue // the last line may be incomplete
		}
		assert.NotEqual(g.t, 403, call.Response.Code, "%s %+v", call.Verb, call.Object)
		used[permission(call.Verb, call.Object.APIGroup, strings.TrimSuffix(call.Object.Resource+"/"+call.Object.Subresource, "/"))] = true
	}
	require.NoError(g.t, lines.Err())
	require.NotEmpty(g.t, used)
	return used
}

// granted returns the permissions of the roles of the chart.
func (g *gatewayRig) granted() map[string]bool {
	g.t.Helper()
	mine := metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=backendset-syncer"}
	var rules []rbacv1.PolicyRule
	clusterRoles, err := g.kube.RbacV1().ClusterRoles().List(g.t.Context(), mine)
	require.NoError(g.t, err)
	for _, r := range clusterRoles.Items {
		rules = append(rules, r.Rules...)
	}
	roles, err := g.kube.RbacV1().Roles(metav1.NamespaceAll).List(g.t.Context(), mine)
	require.NoError(g.t, err)
	for _, r := range roles.Items {
		rules = append(rules, r.Rules...)
	}
	granted := map[string]bool{}
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					granted[permission(verb, group, resource)] = true
				}
			}
		}
	}
	return granted
}

func permission(verb, group, resource string) string {
	return fmt.Sprintf("%s %s/%s", verb, group, resource)
}
