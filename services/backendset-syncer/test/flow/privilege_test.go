//go:build system

package flow

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/audit"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/services/backendset-syncer/internal/config"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// seldom are permissions that the test may not use, and why the chart grants them.
var seldom = map[string]string{"patch /events": "an Event that repeats within minutes raises the count of the one that exists"}

// TestLeastPrivilege runs the program as the ServiceAccount of its chart, with everything that needs a permission. The audit log of the API
// server has no other requests than those that the roles permit, and the roles permit nothing else.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	g := newGatewayRig(t, cluster.Audit)
	g.installRoles()
	id := g.balancer("roles", "bound")
	g.configure(fmt.Sprintf("podRanges: [10.0.0.0/24]\nloadBalancers:\n- {id: %s, gateways: {namespaces: [infra]}}\n", id))
	kubeconfig := g.kubeconfigOf("backendset-syncer")
	stop := g.run(func(c *config.Config) {
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
	g.apply("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: gated, namespace: models, finalizers: " +
		"[oke-gateway-api.gemyago.github.io/http-route-programmed]}\n" +
		"spec: {parentRefs: [{name: web, namespace: infra}], rules: [{backendRefs: [{name: gated, port: 80}]}]}\n")
	g.containersReady(pod)
	g.gate("gated-61", "True InService")
	g.routeCondition("models", "gated", "fairlead.dev/BackendsSynced", "Synced")

	require.NoError(t, g.dynamic.Resource(informers.HTTPRoutes).Namespace("models").Delete(t.Context(), "gated", metav1.DeleteOptions{}))
	require.NoError(t, g.dynamic.Resource(informers.Gateways).Namespace("infra").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.NoError(t, g.rig.client.FairleadV1alpha1().BackendSetBindings("models").Delete(t.Context(), "bound", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, route := g.dynamic.Resource(informers.HTTPRoutes).Namespace("models").Get(t.Context(), "gated", metav1.GetOptions{})
		_, binding := g.rig.client.FairleadV1alpha1().BackendSetBindings("models").Get(t.Context(), "bound", metav1.GetOptions{})
		_, kept := g.kube.CoreV1().ConfigMaps("fairlead").Get(t.Context(), lbrecord.ConfigMapName(id), metav1.GetOptions{})
		return apierrors.IsNotFound(route) && apierrors.IsNotFound(binding) && apierrors.IsNotFound(kept)
	}, kubetest.Patience, tick, "%s", lazy(g.logs.String))
	stop() // with the last response, the audit log has all requests

	audit.AssertLeastPrivilege(t, g.cluster, audit.LeastPrivilege{
		Program: audit.Program{
			Account:  types.NamespacedName{Namespace: "fairlead", Name: "backendset-syncer"},
			Selector: "app.kubernetes.io/instance=backendset-syncer",
		},
		Seldom: seldom,
	})
}

// installRoles applies the ServiceAccount and the roles of the chart with everything that adds permissions of the program.
func (g *gatewayRig) installRoles() {
	g.t.Helper()
	out, err := g.cluster.Helm(g.t.Context(), "template", "backendset-syncer", "../../../../charts/backendset-syncer", "--namespace",
		"fairlead", "--show-only", "templates/rbac.yaml",
		"--show-only", "templates/serviceaccount.yaml", "--set", "gateways.enabled=true", "--set", "gateways.okeGatewayAPIAlias=true",
		"--set", "readinessGates.enabled=true",
		"--set", "rbac.aggregate=false", "--set", "configMap.name=syncer")
	require.NoError(g.t, err)
	g.apply(out)
}

// kubeconfigOf writes a kubeconfig with a token of a ServiceAccount of namespace fairlead.
func (g *gatewayRig) kubeconfigOf(account string) string {
	g.t.Helper()
	token, err := g.kube.CoreV1().ServiceAccounts("fairlead").CreateToken(g.t.Context(), account, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
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
