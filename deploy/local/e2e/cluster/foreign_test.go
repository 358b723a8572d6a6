package cluster_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// The second cluster of the test is the first one, by its kubeconfig alone.
func TestForeignCluster(t *testing.T) { //nolint:paralleltest // of an environment variable
	c := cluster.Start(t)
	deploy(t, c, 1, workloadImage)
	t.Setenv(cluster.KubeconfigEnv, c.Kubeconfig)

	t.Run("use", func(t *testing.T) {
		f := cluster.Start(t, cluster.Nodes(1), func(cfg *clusterapi.Config) {
			cfg.Publish = []clusterapi.Publish{{Host: "127.0.0.1:0", Target: "other.things:http"}}
		})
		require.NoError(t, f.Apply(t.Context(), `{apiVersion: v1, kind: Namespace, metadata: {name: things}}`))
		require.NoError(t, f.Apply(t.Context(), `
apiVersion: v1
kind: Pod
metadata: {namespace: things, name: other, labels: {app: other}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: other, image: `+workloadImage+`, imagePullPolicy: IfNotPresent, ports: [{name: http, containerPort: 8000}]}]
---
apiVersion: v1
kind: Service
metadata: {namespace: things, name: other}
spec:
  selector: {app: other}
  ports: [{name: http, port: 80, targetPort: http}]
`))
		_, err := f.Kubectl(t.Context(), "wait", "--namespace=things", "--for=condition=Ready", "--timeout="+kubetest.Patience.String(), "pod/other")
		require.NoError(t, err)
		ip, err := f.Kubectl(t.Context(), "get", "--namespace=things", "pod/other", "--output=jsonpath={.status.podIP}")
		require.NoError(t, err)

		require.NoError(t, get(t.Context(), &http.Client{}, f.Published[0], "/health"))
		for _, host := range []string{"other.things:80", "web.default:80", net.JoinHostPort(ip, "8000")} {
			require.NoError(t, get(t.Context(), httpClient(f), host, "/health"), host)
		}
		unread, err := f.Dial(t.Context(), "web.default:80")
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, unread.Close()) })
		_, err = io.WriteString(unread, strings.Repeat("GET /metrics HTTP/1.1\r\nHost: web\r\n\r\n", 200)) // 11 MB of answers
		require.NoError(t, err)
		require.NoError(t, get(t.Context(), &http.Client{Timeout: kubetest.Patience}, f.Published[0], "/health"), "a connection that is not read holds up no other")

		_, err = f.Dial(t.Context(), "missing.things:80")
		require.ErrorContains(t, err, `services "missing" not found`)
	})
	t.Run("needs more", func(t *testing.T) {
		assert.True(t, skips(t, func(t *testing.T) { cluster.Start(t, cluster.Nodes(2)) }), "it has one node")
		assert.True(t, skips(t, func(t *testing.T) { cluster.Start(t, cluster.FastTimings) }))
		assert.True(t, skips(t, func(t *testing.T) { cluster.Start(t, cluster.UserspaceProxy) }))
		labeled := func(cfg *clusterapi.Config) { cfg.Nodes = []clusterapi.Node{{Zone: "a"}} }
		assert.True(t, skips(t, func(t *testing.T) { cluster.Start(t, labeled) }))
		assert.True(t, skips(t, func(t *testing.T) { cluster.Start(t).NeedsOwn(t, "kills a node") }))
	})

	require.NoError(t, get(t.Context(), httpClient(c), "web.default:80", "/health"), "what was there before the test stays")
	_, err := c.Kubectl(t.Context(), "get", "namespace", "things")
	require.ErrorContains(t, err, `namespaces "things" not found`)
}

// skips reports whether a test is skipped.
func skips(t *testing.T, test func(t *testing.T)) bool {
	t.Helper()
	skipped := false
	t.Run("skipped", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		test(t)
	})
	return skipped
}
