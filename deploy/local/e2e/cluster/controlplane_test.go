package cluster_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// probe asks the workload's Service again and again until it is stopped, and returns how often and what failed.
func probe(t *testing.T, c *cluster.Cluster) (stop func() (int, []error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	client := httpClient(c)
	var wg sync.WaitGroup
	var asked int
	var failed []error
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := get(ctx, client, "web.default:80", "/ping"); err != nil && ctx.Err() == nil {
				failed = append(failed, err)
			}
			asked++
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	return func() (int, []error) {
		cancel()
		wg.Wait()
		return asked, failed
	}
}

func TestControlPlane_PodsServeWhileTheAPIServerIsPausedAndKilled(t *testing.T) {
	t.Parallel()
	pause := 20 * time.Second
	if testing.Short() {
		pause = 8 * time.Second
	}
	c := cluster.Start(t, cluster.Nodes(2))
	deploy(t, c, 2, workloadImage)
	stop := probe(t, c)

	require.NoError(t, c.Component(t.Context(), clusterapi.APIServer, clusterapi.ActionPause))
	select {
	case <-time.After(pause): // of load, in which no request may fail
	case <-c.Ended():
		require.Fail(t, "the cluster ended")
	}
	require.NoError(t, c.Component(t.Context(), clusterapi.APIServer, clusterapi.ActionResume))
	_, err := c.Kubectl(t.Context(), "scale", "deployment/web", "--replicas=3")
	require.NoError(t, err)
	waitReady(t, c, 3, anyNode)

	require.NoError(t, c.Component(t.Context(), clusterapi.APIServer, clusterapi.ActionKill))
	require.NoError(t, c.Component(t.Context(), clusterapi.ControllerManager, clusterapi.ActionKill))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		_, err := c.Kubectl(t.Context(), "scale", "deployment/web", "--replicas=2")
		require.NoError(collect, err)
	}, kubetest.Patience, tick)
	waitReady(t, c, 2, anyNode)

	asked, failed := stop()
	assert.Empty(t, failed)
	assert.Greater(t, asked, 100)
	s, err := c.Status(t.Context())
	require.NoError(t, err)
	for _, p := range s.Components {
		switch p.Name {
		case clusterapi.APIServer:
			assert.Equal(t, 1, p.Restarts)
		case clusterapi.ControllerManager: // it waits 10 s for the API server, and ends
			assert.GreaterOrEqual(t, p.Restarts, 1)
		default:
			assert.Zero(t, p.Restarts, p.Name)
		}
	}
}

func TestControlPlane_RestoreBringsBackWhatWasThere(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Nodes(1))
	deploy(t, c, 1, workloadImage)
	file := t.TempDir() + "/snapshot.db"
	require.NoError(t, c.Snapshot(t.Context(), file))
	require.NoError(t, c.Clientset().AppsV1().Deployments(metav1.NamespaceDefault).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.EventuallyWithT(t, func(collect *assert.CollectT) { // also of those that end: the kubelet would report that to the restored pod
		list, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		require.NoError(collect, err)
		require.Empty(collect, list.Items)
	}, kubetest.Patience, tick)
	require.NoError(t, c.Restore(t.Context(), file))
	waitReady(t, c, 1, anyNode)
}
