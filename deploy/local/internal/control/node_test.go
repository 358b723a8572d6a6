package control

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/deploy/local/internal/nstest"
	"fairlead.dev/deploy/local/internal/proc"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// one is the nodes of most tests.
func one() []clusterapi.Node { return []clusterapi.Node{{Name: "node-1"}} }

// newNodes are those of a cluster whose network stands; call it in namespaces.
func newNodes(t *testing.T, nodes []clusterapi.Node) (*cluster, *story) {
	t.Helper()
	require.NoError(t, network.SetupControl())
	return newCluster(t, nodes)
}

// bootNode is a node that is up and past its start.
func bootNode(t *testing.T) (*node, *story) {
	t.Helper()
	c, s := newNodes(t, one())
	n := c.nodes[0]
	require.NoError(t, n.boot())
	n.settle()
	awaitLog(t, n.logFile(), "up\n", 1)
	return n, s
}

func awaitState(t *testing.T, n *node, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return n.status().State == want }, kubetest.Patience, tick, want)
}

func (n *node) pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cmd.Process.Pid
}

// kernelStates are the letters that /proc has for a process and all below it.
func kernelStates(t *testing.T, root int) []string {
	t.Helper()
	tree, err := proc.Tree(root)
	require.NoError(t, err)
	var states []string
	for _, pid := range tree {
		stat := read("/proc/" + strconv.Itoa(pid) + "/stat")
		states = append(states, strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])[0])
	}
	return states
}

func TestNode_BootsAgainWhenItDiesByItself(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		n, told := bootNode(t)
		assert.Equal(t, clusterapi.NodeStatus{Name: "node-1", Address: "10.200.0.11", PodCIDR: "10.244.1.0/24", State: clusterapi.StateRunning,
			Cut: clusterapi.CutNone, Boots: 1}, n.status())
		require.NoError(t, n.setCut(clusterapi.CutInbound))
		assert.Equal(t, clusterapi.CutInbound, n.status().Cut)

		require.NoError(t, syscall.Kill(n.pid(), syscall.SIGKILL))
		awaitState(t, n, clusterapi.StateStarting)
		require.ErrorIs(t, n.pause(), errDead)
		require.ErrorIs(t, n.setCut(clusterapi.CutBoth), errDead)
		awaitLog(t, n.logFile(), "up\n", 2)
		assert.Equal(t, clusterapi.NodeStatus{Name: "node-1", Address: "10.200.0.11", PodCIDR: "10.244.1.0/24", State: clusterapi.StateRunning,
			Cut: clusterapi.CutInbound, Boots: 2}, n.status())
		assert.Contains(t, told.text(), "node-1 ended unexpectedly and boots again: signal: killed")
		assert.Empty(t, n.failed)
	})
}

func TestNode_TriesOnWhenItDoesNotBootAgain(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		n, told := bootNode(t)
		logs := clusterapi.LogDir(n.cluster.Config.Dir)
		require.NoError(t, os.Rename(logs, logs+".away"))
		require.NoError(t, syscall.Kill(n.pid(), syscall.SIGKILL))
		require.Eventually(t, func() bool { return strings.Contains(told.text(), "node-1 does not boot: open log of node-1: ") }, kubetest.Patience, tick)
		require.NoError(t, os.Rename(logs+".away", logs))
		awaitLog(t, n.logFile(), "up\n", 2)
		assert.Equal(t, clusterapi.StateRunning, n.status().State)
	})
}

func TestNode_StaysDeadUntilItIsRestarted(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		n, told := bootNode(t)
		require.NoError(t, n.setCut(clusterapi.CutBoth))
		n.kill()
		n.kill()
		assert.Equal(t, clusterapi.StateStopped, n.status().State)
		require.ErrorIs(t, n.pause(), errDead)
		require.ErrorIs(t, n.resume(), errDead)
		require.ErrorIs(t, n.setCut(clusterapi.CutNone), errDead)
		n.again(n.cmd) // as after the delay of one that died by itself just before
		assert.Equal(t, clusterapi.StateStopped, n.status().State)
		assert.Equal(t, 1, n.status().Boots)

		require.NoError(t, n.restart())
		awaitLog(t, n.logFile(), "up\n", 2)
		require.NoError(t, n.restart(), "of a running one")
		awaitLog(t, n.logFile(), "up\n", 3)
		s := n.status()
		assert.Equal(t, clusterapi.StateRunning, s.State)
		assert.Equal(t, clusterapi.CutBoth, s.Cut, "only heal ends a cut")
		require.NoError(t, n.setCut(clusterapi.CutNone))
		assert.Equal(t, 3, s.Boots)
		assert.Empty(t, told.text(), "all of it was meant")
	})
}

func TestNode_IsPausedWithAllItsProcesses(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		n, _ := bootNode(t)
		require.Eventually(t, func() bool { return len(kernelStates(t, n.pid())) == 2 }, kubetest.Patience, tick, "the agent and its child")
		require.NoError(t, n.pause())
		assert.Equal(t, clusterapi.StatePaused, n.status().State)
		require.Eventually(t, func() bool { return strings.Join(kernelStates(t, n.pid()), "") == "TT" }, kubetest.Patience, tick)
		require.NoError(t, n.resume())
		assert.Equal(t, clusterapi.StateRunning, n.status().State)
		require.Eventually(t, func() bool { return !strings.Contains(strings.Join(kernelStates(t, n.pid()), ""), "T") }, kubetest.Patience, tick)

		require.NoError(t, n.pause())
		require.NoError(t, n.restart())
		assert.Equal(t, clusterapi.StateRunning, n.status().State)
	})
}

func TestNode_ReportsADeathAtItsStartAndIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		c, _ := newNodes(t, []clusterapi.Node{{Name: "gpu", Zone: "fails"}})
		n := c.nodes[0]
		require.NoError(t, n.boot())
		require.EqualError(t, <-n.failed, "gpu ended while it started: exit status 3: panic: no disk (all of it in "+n.logFile()+")")
		assert.Equal(t, clusterapi.StateStopped, n.status().State)
	})
}

func TestNode_EndsWhenItCannotBeConnected(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		c, _ := newCluster(t, []clusterapi.Node{{Name: "node-1"}, {Name: "node-2"}})
		require.NoError(t, network.SetupControl())
		c.nodes[1].index = 1 // two cables for one socket
		require.NoError(t, c.nodes[0].boot())
		require.ErrorContains(t, c.nodes[1].boot(), "connect node-2: ")
		require.ErrorContains(t, <-c.nodes[1].failed, "node-2 ended while it started: exit status 4: error: no network link")
	})
}

func TestNode_DoesNotBootWithoutALog(t *testing.T) {
	t.Parallel()
	c, _ := newCluster(t, one())
	require.NoError(t, os.Remove(clusterapi.LogDir(c.Config.Dir)))
	require.ErrorContains(t, c.nodes[0].boot(), "open log of node-1: ")
	assert.Equal(t, clusterapi.StateStopped, c.nodes[0].status().State)
	assert.Zero(t, c.nodes[0].status().Boots)
}
