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

// concurrency is how many requests shortStreams has under way.
const concurrency = 16

// shortStreams are the options of a load that leaves no moment without a request.
func shortStreams(gateway string) chatload.Options {
	return chatload.Options{
		BaseURL: gateway, Model: stack.Model, Concurrency: concurrency, MaxTokens: 16, IgnoreEOS: true, KeepAlive: true,
		RequirePicked: true, Timeout: kubetest.Patience, Prompts: chatload.Prompts{Groups: 8, SharedTokens: 64, Seed: 4},
	}
}

// victim is a model server that can be killed.
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
	servers := victimsOf(t, c)
	resume = func() {
		for _, s := range servers {
			_ = syscall.Kill(s.pid, syscall.SIGCONT)
		}
	}
	t.Cleanup(resume)
	for _, s := range servers {
		s.signal(t, syscall.SIGSTOP)
	}
	return resume
}

// killServer kills a model server's process under the load of shortStreams, as a crash does. The pod stays. All servers are
// suspended first, so that every request of the load is at one of them, and the one with the most dies.
func killServer(t *testing.T, c *cluster.Cluster) victim {
	t.Helper()
	victims := victimsOf(t, c)
	resume := suspend(t, c)
	var busiest victim
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		total, most := 0.0, 0.0
		for _, v := range victims {
			n := ofEndpoint(t.Context(), collect, c, inFlight, v.address)
			total += n
			if n > most {
				busiest, most = v, n
			}
		}
		require.InDelta(collect, concurrency, total, 0, "requests at the suspended servers")
	}, kubetest.Patience, tick)
	busiest.kill(t)
	resume()
	return busiest
}

// victimOf returns the model server that was killed least, as the kubelet lets others wait before it starts them again.
func victimOf(t *testing.T, c *cluster.Cluster) victim {
	t.Helper()
	return slices.MinFunc(victimsOf(t, c), func(a, b victim) int { return cmp.Compare(a.restarts, b.restarts) })
}

// victimsOf returns all model servers.
func victimsOf(t *testing.T, c *cluster.Cluster) []victim {
	t.Helper()
	c.NeedsOwn(t, "kills a process")
	pods, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + stack.Pool})
	require.NoError(t, err)
	require.NotEmpty(t, pods.Items)
	victims := make([]victim, len(pods.Items))
	for i, p := range pods.Items {
		pid, err := stack.ProcessOf(p.Name)
		require.NoError(t, err)
		victims[i] = victim{pod: p.Name, address: p.Status.PodIP + ":8000", restarts: restarts(t, &p), pid: pid}
	}
	return victims
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
