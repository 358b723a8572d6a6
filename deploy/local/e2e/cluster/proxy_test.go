package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// withEachProxy runs a test once for each implementation of Services.
func withEachProxy(t *testing.T, test func(t *testing.T, proxy string)) {
	t.Helper()
	for _, proxy := range []string{clusterapi.ProxyKube, clusterapi.ProxyUserspace} {
		t.Run(proxy, func(t *testing.T) {
			t.Parallel()
			test(t, proxy)
		})
	}
}

// startWithProxy starts a cluster whose nodes serve Services by proxy. Where kube-proxy cannot work, it skips the test.
func startWithProxy(t *testing.T, proxy string, configure ...func(*clusterapi.Config)) *cluster.Cluster {
	t.Helper()
	if proxy == clusterapi.ProxyUserspace {
		return cluster.Start(t, append(configure, cluster.UserspaceProxy)...)
	}
	c := cluster.Start(t, configure...)
	s, err := c.Status(t.Context())
	require.NoError(t, err)
	if s.Nodes[0].ServiceProxy != proxy {
		t.Skip("kube-proxy cannot work here: nft is missing (package nftables), or the kernel refuses its rules")
	}
	return c
}

// proxied are a Service of two endpoints, one of each node, one of a single endpoint, one of nobody and one of which every second
// endpoint refuses connections. %s are the addresses of the dead endpoint and of the live one.
const proxied = `
apiVersion: v1
kind: Service
metadata: {name: both}
spec:
  type: NodePort
  selector: {server: "yes"}
  ports: [{name: http, port: 80, targetPort: 8000, nodePort: 30080}]
---
apiVersion: v1
kind: Service
metadata: {name: single}
spec:
  selector: {app: server-1}
  ports: [{name: http, port: 80, targetPort: 8000}]
---
apiVersion: v1
kind: Service
metadata: {name: nobody}
spec:
  selector: {app: nobody}
  ports: [{port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: half}
spec:
  ports: [{name: http, port: 80, targetPort: 8000}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: half-1, labels: {kubernetes.io/service-name: half}}
addressType: IPv4
ports: [{name: http, port: 8000}]
endpoints: [{addresses: [%s]}, {addresses: [%s]}]
`

func TestServices_FromPodsAndNodes(t *testing.T) {
	t.Parallel()
	withEachProxy(t, func(t *testing.T, proxy string) {
		c := startWithProxy(t, proxy, cluster.Nodes(2))
		for i := 1; i <= 2; i++ {
			name := fmt.Sprintf("server-%d", i)
			runProbe(t, c, probeParams{name: name, args: []string{"serve", "8000"}, spec: fmt.Sprintf("nodeName: node-%d", i)})
			_, err := c.Kubectl(t.Context(), "label", "pod", name, "server=yes")
			require.NoError(t, err)
		}
		client := runProbe(t, c, probeParams{name: "client", args: []string{"stay"}, spec: "nodeName: node-1"})
		host := runProbe(t, c, probeParams{name: "host", args: []string{"stay"}, spec: "nodeName: node-2\n  hostNetwork: true"})
		server, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "server-2", metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(proxied, host.Status.HostIP, server.Status.PodIP)))
		checkServices(t, c, serviceWorld{proxy: proxy, client: client, host: host})
	})
}

// serviceWorld is what the checks of TestServices_FromPodsAndNodes look at.
type serviceWorld struct {
	proxy        string
	client, host *corev1.Pod
}

func checkServices(t *testing.T, c *cluster.Cluster, w serviceWorld) {
	t.Helper()
	from := map[string]string{clusterapi.ProxyKube: w.client.Status.PodIP, clusterapi.ProxyUserspace: w.client.Status.HostIP}[w.proxy]
	t.Run("a pod reaches endpoints of its node and of others", func(t *testing.T) {
		require.EventuallyWithT(t, func(collect *assert.CollectT) { // the proxy takes a moment to see the Service
			require.Equal(collect, "hello "+from, inPod(t, c, "client", "fetch", "http://both/"))
		}, kubetest.Patience, tick)
		for range 10 {
			assert.Equal(t, "hello "+from, inPod(t, c, "client", "fetch", "http://both/"))
		}
	})
	t.Run("a pod reaches itself", func(t *testing.T) {
		assert.Contains(t, inPod(t, c, "server-1", "fetch", "http://single/"), "hello ")
	})
	t.Run("a process of a node reaches endpoints", func(t *testing.T) {
		assert.Contains(t, inPod(t, c, "host", "fetch", "http://"+clusterIP(t, c, "both")+"/"), "hello ")
	})
	t.Run("a pod reaches the API server", func(t *testing.T) {
		assert.Contains(t, inPod(t, c, "client", "fetch", "http://10.96.0.1:443/"), "Client sent an HTTP request to an HTTPS server")
	})
	t.Run("node ports answer on every node", func(t *testing.T) {
		for _, node := range []string{"node-1", "node-2"} {
			require.NoError(t, get(t.Context(), httpClient(c), node+":30080", "/"))
		}
		assert.Contains(t, inPod(t, c, "client", "fetch", "http://10.200.0.12:30080/"), "hello ")
	})
	t.Run("a connection meets one endpoint and no other", func(t *testing.T) {
		failed := 0
		for _, answer := range fetches(t, c, 30, "http://half/") {
			if !strings.HasPrefix(answer, "hello ") {
				failed++
			}
		}
		assert.InDelta(t, 15, failed, 13, "one of two endpoints is dead")
	})
	t.Run("a Service of nobody refuses", func(t *testing.T) {
		assert.Regexp(t, "connection (refused|reset by peer)|broken pipe", inPod(t, c, "client", "fetch", "http://nobody/"))
	})
	t.Run("an address without a Service does not answer", func(t *testing.T) {
		assert.NotContains(t, inPod(t, c, "client", "fetch", "http://10.96.200.200/"), "hello ")
	})
}

// fetches asks n times and returns the answers.
func fetches(t *testing.T, c *cluster.Cluster, n int, url string) []string {
	t.Helper()
	var args []string
	for range n {
		args = append(args, "fetch", url)
	}
	return strings.Split(inPod(t, c, "client", args...), "\n")
}

func clusterIP(t *testing.T, c *cluster.Cluster, service string) string {
	t.Helper()
	svc, err := c.Clientset().CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), service, metav1.GetOptions{})
	require.NoError(t, err)
	return svc.Spec.ClusterIP
}
