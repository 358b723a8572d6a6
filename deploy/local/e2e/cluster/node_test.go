package cluster_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

func not(name string) func(string) bool { return func(node string) bool { return node != name } }

func TestNode_KilledOnesPodsAreReplacedElsewhere(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Nodes(2), cluster.FastTimings)
	deploy(t, c, 2, workloadImage)
	require.NoError(t, c.Node(t.Context(), "node-1", clusterapi.ActionKill))
	waitReady(t, c, 2, not("node-1"))

	s, err := c.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, clusterapi.StateStopped, s.Nodes[0].State)
	require.NoError(t, c.Node(t.Context(), "node-1", clusterapi.ActionRestart))
	waitNode(t, c, "node-1", corev1.ConditionTrue)
	waitGone(t, c)
}

// waitGone waits until no pod of the workload is terminating any more.
func waitGone(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	client := c.Clientset()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		list, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		require.NoError(collect, err)
		for _, p := range list.Items {
			require.Nil(collect, p.DeletionTimestamp, p.Name)
		}
	}, kubetest.Patience, tick)
}

func TestNode_CutOffOnesPodsAreReplacedAndEndWhenItIsBack(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Nodes(2), cluster.FastTimings)
	deploy(t, c, 2, workloadImage)
	before, err := pods(t.Context(), c.Clientset())
	require.NoError(t, err)
	require.NoError(t, c.Cut(t.Context(), "node-1", clusterapi.CutBoth))
	for _, p := range before {
		if p.Spec.NodeName == "node-1" {
			_, err := dialPod(t, c, &p, silence)
			require.Error(t, err, "a pod of a node that is cut off answered")
		} else {
			_, err := dialPod(t, c, &p, kubetest.Patience)
			require.NoError(t, err)
		}
	}
	waitReady(t, c, 2, not("node-1"))

	require.NoError(t, c.Node(t.Context(), "node-1", clusterapi.ActionHeal))
	waitNode(t, c, "node-1", corev1.ConditionTrue)
	waitGone(t, c)
}

// silence is the time after which a request that must not be answered gives up.
const silence = 2 * time.Second

// dialPod connects to a pod's server and sends a request.
func dialPod(t *testing.T, c *cluster.Cluster, p *corev1.Pod, timeout time.Duration) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	addr := net.JoinHostPort(p.Status.PodIP, "8000")
	return addr, get(ctx, httpClient(c), addr, "/ping")
}

func TestNode_OneWayCuts(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Nodes(1), cluster.FastTimings)
	tests := []struct {
		name string
		give clusterapi.Direction
	}{
		{name: "what it sends is lost", give: clusterapi.CutOutbound},
		{name: "what it should receive is lost", give: clusterapi.CutInbound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.NoError(t, c.Cut(t.Context(), "node-1", tt.give))
			waitNode(t, c, "node-1", corev1.ConditionUnknown)
			require.NoError(t, c.Node(t.Context(), "node-1", clusterapi.ActionHeal))
			waitNode(t, c, "node-1", corev1.ConditionTrue)
		})
	}
}

func TestNode_RebootLeavesNoOrphansAndGivesNoAddressTwice(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Nodes(2), cluster.FastTimings)
	deploy(t, c, 6, workloadImage)
	before, err := pods(t.Context(), c.Clientset())
	require.NoError(t, err)
	seen := map[string]string{}
	for _, p := range before {
		seen[p.Status.PodIP] = p.Name
	}
	require.NoError(t, c.Node(t.Context(), "node-1", clusterapi.ActionRestart))
	waitNode(t, c, "node-1", corev1.ConditionTrue)

	var after []corev1.Pod
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		after = waitReadyNow(collect, t, c, 6)
		for _, p := range after {
			if p.Spec.NodeName == "node-1" {
				require.NotContains(collect, seen, p.Status.PodIP, "%s has an address of before the reboot", p.Name)
			}
		}
	}, kubetest.Patience, tick)
	for _, p := range after {
		_, err := dialPod(t, c, &p, kubetest.Patience)
		require.NoError(t, err, p.Name)
	}
	for ip, name := range seen { // whoever has an address of before is the one who had it
		for _, p := range after {
			if p.Status.PodIP == ip {
				assert.Equal(t, name, p.Name)
			}
		}
	}
	s, err := c.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, s.Nodes[0].Boots)
	assert.Equal(t, 1, s.Nodes[1].Boots)
}

func waitReadyNow(collect *assert.CollectT, t *testing.T, c *cluster.Cluster, want int) []corev1.Pod {
	list, err := pods(t.Context(), c.Clientset())
	require.NoError(collect, err)
	require.Len(collect, list, want)
	for _, p := range list {
		require.True(collect, isReady(&p), p.Name)
	}
	return list
}

func TestNode_PausedOneStandsStillAndGoesOn(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Nodes(1))
	deploy(t, c, 1, workloadImage)
	list, err := pods(t.Context(), c.Clientset())
	require.NoError(t, err)
	require.NoError(t, c.Node(t.Context(), "node-1", clusterapi.ActionPause))
	_, err = dialPod(t, c, &list[0], silence)
	require.Error(t, err, "a pod of a paused node answered")
	require.True(t, isTimeout(err), "got %v", err)

	require.NoError(t, c.Node(t.Context(), "node-1", clusterapi.ActionResume))
	require.Eventually(t, func() bool { // its readiness probe may have failed meanwhile
		return get(t.Context(), httpClient(c), "web.default:80", "/ping") == nil
	}, kubetest.Patience, tick, "the Service answers")
	again, err := pods(t.Context(), c.Clientset())
	require.NoError(t, err)
	assert.Equal(t, list[0].Status.PodIP, again[0].Status.PodIP)
	assert.Zero(t, again[0].Status.ContainerStatuses[0].RestartCount)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

func TestNode_LabelsZonesAndPretendedGPUs(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, func(cfg *clusterapi.Config) {
		cfg.Nodes = []clusterapi.Node{
			{Zone: "eu-1", Labels: map[string]string{"gpu": "h100"}, Extended: map[string]string{"nvidia.com/gpu": "8"}},
			{Zone: "eu-2", Name: "cpu-only"},
		}
	})
	nodes, err := c.Clientset().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, nodes.Items, 2)
	for _, n := range nodes.Items {
		gpus := n.Status.Allocatable["nvidia.com/gpu"]
		if n.Name == "cpu-only" {
			assert.Equal(t, "eu-2", n.Labels[corev1.LabelTopologyZone])
			assert.Zero(t, gpus.Value())
			continue
		}
		assert.Equal(t, "eu-1", n.Labels[corev1.LabelTopologyZone])
		assert.Equal(t, "h100", n.Labels["gpu"])
		assert.EqualValues(t, 8, gpus.Value())
	}
	_, err = c.Kubectl(t.Context(), "run", "wants-gpu", "--image="+workloadImage, "--restart=Never",
		`--overrides={"spec":{"containers":[{"name":"wants-gpu","image":"`+workloadImage+`","resources":{"limits":{"nvidia.com/gpu":"4"}}}]}}`)
	require.NoError(t, err)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		p, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "wants-gpu", metav1.GetOptions{})
		require.NoError(collect, err)
		require.Equal(collect, corev1.PodRunning, p.Status.Phase)
		require.Equal(collect, "node-1", p.Spec.NodeName)
	}, kubetest.Patience, tick)
}
