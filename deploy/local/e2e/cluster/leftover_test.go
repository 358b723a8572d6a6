package cluster_test

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

// parents maps each process of the machine to its parent.
func parents(tb testing.TB) map[int]int {
	tb.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(tb, err)
	found := map[int]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has just ended
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		ppid, err := strconv.Atoi(fields[1])
		require.NoError(tb, err)
		found[pid] = ppid
	}
	return found
}

// below lists the processes that descend from root.
func below(all map[int]int, root int) []int {
	var list []int
	for pid := range all {
		for p := pid; p > 1; p = all[p] {
			if all[p] == root {
				list = append(list, pid)
				break
			}
		}
	}
	return list
}

func TestLeftovers_NoneAfterTheLauncherIsKilled(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Nodes(2))
	deploy(t, c, 2, workloadImage)
	family := below(parents(t), c.LauncherPID())
	require.Greater(t, len(family), 8, "control, four programs, two nodes, two pods")

	require.NoError(t, syscall.Kill(c.LauncherPID(), syscall.SIGKILL))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		now := parents(t)
		for _, pid := range family {
			require.NotContains(collect, now, pid)
		}
	}, kubetest.Patience, tick)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	assert.NotContains(t, string(mounts), c.Dir)
	require.NoError(t, os.RemoveAll(c.Dir))
}

func TestLeftovers_NoneAfterStop(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Nodes(1))
	deploy(t, c, 1, workloadImage)
	family := below(parents(t), c.LauncherPID())
	c.Stop()
	now := parents(t)
	for _, pid := range family {
		assert.NotContains(t, now, pid)
	}
}

func TestClusters_SideBySide(t *testing.T) {
	t.Parallel()
	var clusters []*cluster.Cluster
	for range 2 {
		clusters = append(clusters, cluster.Start(t))
	}
	for _, c := range clusters {
		deploy(t, c, 1, workloadImage)
	}
	clusters[0].Stop()
	require.NoError(t, get(t.Context(), httpClient(clusters[1]), "web.default:80", "/ping"))
}
