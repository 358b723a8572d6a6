package picker_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

// waitingRequests are the requests of a model that wait in all pickers.
const waitingRequests = "fairlead_picker_waiting_requests"

// TestZero_RequestsWaitForTheFirstServer sends 200 requests to two pickers whose model servers are scaled to zero. One picker is replaced
// while they wait, and a server starts after 20 s. The server gets each request once, and answers it.
func TestZero_RequestsWaitForTheFirstServer(t *testing.T) {
	if testing.Short() {
		t.Skip("test/hermetic has this without a cluster")
	}
	t.Parallel()
	const requests = 200
	c := cluster.Start(t, cluster.Nodes(2))
	c.NeedsOwn(t, "connects to a port of a node")
	_, l, err := stack.InstallListener(t.Context(), c, stack.Options{Tag: tag, Servers: 1})
	require.NoError(t, err)
	scale := func(replicas string) {
		_, err := c.Kubectl(t.Context(), "scale", "deployment/"+stack.Pool, "--replicas="+replicas)
		require.NoError(t, err)
	}
	scale("0")
	await := func(metric string, want float64) {
		require.Eventually(t, func() bool {
			sum, err := stack.SumPickers(t.Context(), c, metric)
			require.NoError(t, err)
			return sum == want
		}, kubetest.Patience, tick, "%s is %v", metric, want)
	}
	await("fairlead_picker_endpoints_ready", 0)

	finish := startLoad(t, chatload.Options{
		BaseURL: l.BaseURL(), Dial: l.Dial, Model: stack.Model, Concurrency: requests, Requests: requests, MaxTokens: 4, IgnoreEOS: true, KeepAlive: true,
		RequirePicked: true, Timeout: kubetest.Patience, Prompts: chatload.Prompts{Groups: 8, SharedTokens: 64, Seed: 1},
	})
	await(waitingRequests, requests)
	began := time.Now()
	pods, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: stack.PickerPods})
	require.NoError(t, err)
	require.Len(t, pods.Items, 2)
	require.NoError(t, c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), pods.Items[0].Name, metav1.DeleteOptions{}))
	time.Sleep(time.Until(began.Add(20 * time.Second)))
	scale("1")

	report, results := finish()
	require.Len(t, results, requests)
	assert.Zero(t, report.Failed(), report.Failures)
	servers, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + stack.Pool})
	require.NoError(t, err)
	require.Len(t, servers.Items, 1)
	page, err := stack.Fetch(t.Context(), c, net.JoinHostPort(servers.Items[0].Status.PodIP, "8000"), "/metrics")
	require.NoError(t, err)
	assert.EqualValues(t, requests, stack.Sum(page, "vllm:request_success_total"), "the server answers each once")
}
