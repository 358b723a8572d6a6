package picker_test

import (
	"cmp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

// startLoad sends completions until the returned function is called, which waits for those under way and returns what
// became of all of them.
func startLoad(t *testing.T, o chatload.Options) func() (*chatload.Report, []chatload.Result) {
	t.Helper()
	load := stack.StartLoad(t.Context(), o)
	return func() (*chatload.Report, []chatload.Result) {
		t.Helper()
		report, results, err := load.Finish()
		require.NoError(t, err)
		return report, results
	}
}

// shortStreams are the options of a load that leaves no moment without a request.
func shortStreams(gateway string) chatload.Options {
	return chatload.Options{
		BaseURL: gateway, Model: stack.Model, Concurrency: 16, MaxTokens: 16, IgnoreEOS: true, KeepAlive: true,
		RequirePicked: true, Timeout: kubetest.Patience, Prompts: chatload.Prompts{Groups: 8, SharedTokens: 64, Seed: 4},
	}
}

// victim is a model server that was killed.
type victim struct {
	pod, address string
	killed       time.Time
	restarts     int32 // of its container before
	pid          int
}

func (v *victim) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(v.pid, s))
}

// kill ends the server as a crash does, also one that is suspended.
func (v *victim) kill(t *testing.T) {
	t.Helper()
	v.killed = time.Now()
	v.signal(t, syscall.SIGKILL)
}

// suspend stops all model servers, which keep what is sent to them. resume lets those go on that live.
func suspend(t *testing.T, c *cluster.Cluster) (resume func()) {
	t.Helper()
	c.NeedsOwn(t, "suspends processes")
	var pids []int
	resume = func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	t.Cleanup(resume)
	pods, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + stack.Pool})
	require.NoError(t, err)
	for _, p := range pods.Items {
		pid, err := stack.ProcessOf(p.Name)
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		pids = append(pids, pid)
	}
	return resume
}

// killServer kills a model server's process under load, as a crash does. The pod stays. The server is suspended first, so that it still
// has a request when it dies.
func killServer(t *testing.T, c *cluster.Cluster) victim {
	t.Helper()
	v := victimOf(t, c)
	v.signal(t, syscall.SIGSTOP)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.Positive(collect, ofEndpoint(t.Context(), collect, c, inFlight, v.address))
	}, kubetest.Patience, tick, "the suspended server has a request")
	v.kill(t)
	return v
}

// victimOf returns the model server that was killed least, as the kubelet lets others wait before it starts them again.
func victimOf(t *testing.T, c *cluster.Cluster) victim {
	t.Helper()
	c.NeedsOwn(t, "kills a process")
	pods, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + stack.Pool})
	require.NoError(t, err)
	require.NotEmpty(t, pods.Items)
	p := slices.MinFunc(pods.Items, func(a, b corev1.Pod) int { return cmp.Compare(restarts(t, &a), restarts(t, &b)) })
	pid, err := stack.ProcessOf(p.Name)
	require.NoError(t, err)
	return victim{pod: p.Name, address: p.Status.PodIP + ":8000", restarts: restarts(t, &p), pid: pid}
}

func restarts(t *testing.T, p *corev1.Pod) int32 {
	t.Helper()
	require.Len(t, p.Status.ContainerStatuses, 1)
	return p.Status.ContainerStatuses[0].RestartCount
}

// waitRestarted waits until a victim has been started again and is ready, and returns when it knew that.
func waitRestarted(t *testing.T, c *cluster.Cluster, v victim) (ready time.Time) {
	t.Helper()
	client := c.Clientset()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		p, err := client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), v.pod, metav1.GetOptions{})
		require.NoError(collect, err)
		require.Equal(collect, corev1.PodRunning, p.Status.Phase)
		require.Len(collect, p.Status.ContainerStatuses, 1)
		require.Greater(collect, p.Status.ContainerStatuses[0].RestartCount, v.restarts)
		require.True(collect, p.Status.ContainerStatuses[0].Ready)
	}, kubetest.Patience, tick)
	return time.Now()
}
