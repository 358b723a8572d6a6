package picker_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/audit"
	"fairlead.dev/pkg/kubetest/cluster"
)

// plugins is a ConfigMap with the configuration of the picker. %s is the type of its plugin.
const plugins = `
apiVersion: v1
kind: ConfigMap
metadata: {name: plugins}
data:
  config.yaml: |
    apiVersion: llm-d.ai/v1alpha1
    kind: EndpointPickerConfig
    plugins: [{type: %s}]
`

// TestLeastPrivilege compares the permissions that the chart grants with the requests in the audit log, with every feature that needs
// one: a pool, rules for requests, a configuration in a ConfigMap, and metrics for clients with a token.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Audit)
	for folder, file := range map[string]string{"bin/crds": "inferencepools.yaml", "deploy/local/e2e/picker/testdata": "kinds.yaml"} {
		require.NoError(t, stack.ApplyExample(t.Context(), c, folder, file))
	}
	_, err := c.Kubectl(t.Context(), "wait", "--for=condition=Established", stack.WaitTimeout, "--all", "customresourcedefinitions")
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(plugins, "consistent-hash-scorer")))
	name := types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: stack.Picker}
	require.NoError(t, stack.InstallPoolPicker(t.Context(), c, tag, name, "--set", "fullnameOverride="+stack.Picker,
		"--set", "pool.name="+stack.Pool, "--set", "inferencePool.create=true", "--set", "inferencePool.selector.app="+stack.Pool,
		"--set", "configMap.name=plugins", "--set", "metrics.auth=true"))
	_, err = c.Kubectl(t.Context(), "rollout", "status", "deployment/"+stack.Picker, stack.WaitTimeout)
	require.NoError(t, err)

	assertMetricsNeedPermission(t, c)
	require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(plugins, "predicted-wait-scorer")))
	awaitEvent(t, c, "ConfigurationReloaded")
	require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(plugins, "unknown-scorer")))
	awaitEvent(t, c, "InvalidConfiguration")

	audit.AssertLeastPrivilege(t, c, audit.LeastPrivilege{
		Program: audit.Program{Account: name, Selector: "app.kubernetes.io/instance=" + stack.Picker},
		Seldom:  map[string]string{"patch /events": "an Event that repeats within minutes raises the count of the one that exists"},
	})
}

// source is a source of endpoints whose permissions the chart derives from the values.
type source struct {
	name   string
	values []string
	pools  []string // InferencePools that refer to the picker, each by its own port
	events bool     // a change of the configuration causes Events
}

// sources are those besides the single pool of TestLeastPrivilege.
var sources = []source{
	{name: "names", values: []string{"pool.names={one,two}", "service.poolPorts={9010}"}, pools: []string{"one", "two"}, events: true},
	{name: "all", values: []string{"pool.all=true", "service.poolPorts={9010}"}, pools: []string{"one", "two"}, events: true},
	{name: "selector", values: []string{"endpoints.selector=app=model", "endpoints.targetPorts={8000}"}},
}

// TestLeastPrivilegeOfSources is the same for several pools by name, for all pools of a namespace, and for pods without a pool, each in
// a namespace of its own, without metrics for clients with a token.
func TestLeastPrivilegeOfSources(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: TestLeastPrivilege has the source of the examples")
	}
	t.Parallel()
	c := cluster.Start(t, cluster.Audit)
	for folder, file := range map[string]string{"bin/crds": "inferencepools.yaml", "deploy/local/e2e/picker/testdata": "kinds.yaml"} {
		require.NoError(t, stack.ApplyExample(t.Context(), c, folder, file))
	}
	_, err := c.Kubectl(t.Context(), "wait", "--for=condition=Established", stack.WaitTimeout, "--all", "customresourcedefinitions")
	require.NoError(t, err)
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.assertLeastPrivilege(t, c)
		})
	}
}

func (s *source) assertLeastPrivilege(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	release := "from-" + s.name
	name := types.NamespacedName{Namespace: release, Name: release}
	_, err := c.Kubectl(t.Context(), "create", "namespace", release)
	require.NoError(t, err)
	apply := func(text string) {
		require.NoError(t, c.Apply(t.Context(), strings.ReplaceAll(text, "metadata: {", "metadata: {namespace: "+release+", ")))
	}
	for i, pool := range s.pools {
		apply(fmt.Sprintf(sourcePool, pool, release, 9002+8*i))
	}
	apply(fmt.Sprintf(plugins, "consistent-hash-scorer"))
	args := []string{"--set", "fullnameOverride=" + release, "--set", "configMap.name=plugins"}
	for _, value := range s.values {
		args = append(args, "--set", value)
	}
	require.NoError(t, stack.InstallPoolPicker(t.Context(), c, tag, name, args...))
	_, err = c.Kubectl(t.Context(), "--namespace", release, "rollout", "status", "deployment/"+release, stack.WaitTimeout)
	require.NoError(t, err)
	of := audit.Program{Account: name, Selector: "app.kubernetes.io/instance=" + release}
	seldom := map[string]string{}
	if s.events {
		apply(fmt.Sprintf(plugins, "predicted-wait-scorer"))
		awaitEvents(t, c, release, "ConfigurationReloaded", s.pools)
		seldom["patch /events"] = "an Event that repeats within minutes raises the count of the one that exists"
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		calls := map[string]bool{}
		for _, call := range audit.Calls(t, c, of, time.Time{}) {
			calls[call.Permission()] = true
		}
		require.True(collect, calls["watch /pods"], "the first watch begins after the first list")
	}, kubetest.Patience, tick)
	audit.AssertLeastPrivilege(t, c, audit.LeastPrivilege{Program: of, Seldom: seldom})
	for _, call := range audit.Calls(t, c, of, time.Time{}) {
		assert.Equal(t, release, call.Object.Namespace, "%s outside of the namespace of the pool", call.Permission())
	}
}

// sourcePool is an InferencePool: its name, the Service of the picker, and its port there.
const sourcePool = `
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: %s}
spec:
  selector: {matchLabels: {app: model}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: %s, port: {number: %d}}
`

// awaitEvents waits for an Event of each pool of a namespace.
func awaitEvents(t *testing.T, c *cluster.Cluster, namespace, reason string, pools []string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		events, err := c.Clientset().CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		require.NoError(collect, err)
		about := map[string]bool{}
		for i := range events.Items {
			about[events.Items[i].InvolvedObject.Name] = true
		}
		for _, pool := range pools {
			require.True(collect, about[pool], pool)
		}
	}, kubetest.Patience, tick)
}

// assertMetricsNeedPermission fetches the metrics without a token, with the token of a user who may not see them, and with the role
// that the chart makes for Prometheus.
func assertMetricsNeedPermission(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	_, err := c.Kubectl(t.Context(), "create", "serviceaccount", "allowed")
	require.NoError(t, err)
	_, err = c.Kubectl(t.Context(), "create", "clusterrolebinding", "metrics-reader", "--serviceaccount=default:allowed",
		"--clusterrole=default:"+stack.Picker+":metrics-reader")
	require.NoError(t, err)
	assert.Equal(t, http.StatusUnauthorized, metricsStatus(t, c, ""))
	assert.Equal(t, http.StatusForbidden, metricsStatus(t, c, token(t, c, "default")))
	allowed := token(t, c, "allowed")
	require.Eventually(t, func() bool { return metricsStatus(t, c, allowed) == http.StatusOK }, kubetest.Patience, tick) // it learns of roles later
}

// token returns a token of a ServiceAccount.
func token(t *testing.T, c *cluster.Cluster, account string) string {
	t.Helper()
	made, err := c.Clientset().CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return made.Status.Token
}

// metricsStatus returns the status of a request for the picker's metrics, with a token if it is not empty.
func metricsStatus(t *testing.T, c *cluster.Cluster, token string) int {
	t.Helper()
	client := &http.Client{Timeout: kubetest.Patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Dial(ctx, stack.PickerMetrics) }}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cluster/metrics", nil)
	require.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

// awaitEvent waits for an Event of the pool.
func awaitEvent(t *testing.T, c *cluster.Cluster, reason string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		events, err := c.Clientset().CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		require.NoError(collect, err)
		require.NotEmpty(collect, events.Items)
		require.Equal(collect, stack.Pool, events.Items[0].InvolvedObject.Name)
	}, kubetest.Patience, tick)
}
