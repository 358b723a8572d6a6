package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"

	"fairlead.dev/deploy/local/internal/cgroup"
	"fairlead.dev/pkg/kubetest"
)

// onLimitingNode runs f on a node that has a cgroup. It skips where none can be made.
func onLimitingNode(t *testing.T, f func(t *testing.T, n *node)) {
	t.Helper()
	onNode(t, func(t *testing.T, n *node) {
		cluster, err := cgroup.New(fmt.Sprintf("localkube-test-%d-%x", os.Getpid(), time.Now().UnixNano()))
		if err != nil {
			t.Skipf("no cgroups can be made here: %v", err)
		}
		t.Cleanup(func() {
			shutDown(t, n.Runtime)
			require.NoError(t, cluster.Remove(kubetest.Patience))
		})
		n.Cgroups, err = cluster.Node("node-1", kubetest.Patience)
		require.NoError(t, err)
		f(t, n)
	})
}

func limited(megabytes int64, args ...string) *runtimeapi.ContainerConfig {
	cfg := containerConfig("app", args...)
	cfg.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: megabytes << 20, CpuQuota: 50_000, CpuPeriod: 100_000}}
	return cfg
}

func TestLimit_ContainerAboveItsMemoryIsOOMKilled(t *testing.T) {
	t.Parallel()
	onLimitingNode(t, func(t *testing.T, n *node) {
		p := n.runPod(t, "web")
		tests := []struct {
			name       string
			give       *runtimeapi.ContainerConfig
			wantCode   int32
			wantReason string
		}{
			{name: "above", give: limited(32, "allocate", "64"), wantCode: 137, wantReason: "OOMKilled"},
			{name: "below", give: limited(128, "allocate", "64"), wantReason: "Completed"},
			{name: "another error", give: limited(32, "exit", "3"), wantCode: 3, wantReason: "Error"},
			{name: "no limit", give: containerConfig("app", "allocate", "64"), wantReason: "Completed"},
		}
		for _, tt := range tests {
			id := n.start(t, p, tt.give)
			n.awaitEnd(t, id)
			s := n.status(t, id)
			assert.Equal(t, tt.wantReason, s.Reason, tt.name)
			assert.Equal(t, tt.wantCode, s.ExitCode, tt.name)
		}
		assert.Empty(t, leftIn(t, n.Cgroups), "cgroups of containers that have ended")
	})
}

// leftIn lists the cgroups below a node's.
func leftIn(t *testing.T, tree *cgroup.Tree) []string {
	t.Helper()
	var left []string
	for _, root := range tree.Roots() {
		entries, err := os.ReadDir(root)
		require.NoError(t, err)
		for _, e := range entries {
			if e.IsDir() {
				left = append(left, filepath.Join(root, e.Name()))
			}
		}
	}
	return left
}

func TestLimit_ProgramSeesItsLimitAndCannotChangeIt(t *testing.T) {
	t.Parallel()
	onLimitingNode(t, func(t *testing.T, n *node) {
		file := "/sys/fs/cgroup/memory/memory.limit_in_bytes"
		if n.Cgroups.Unified != "" {
			file = "/sys/fs/cgroup/memory.max"
		}
		got := n.finish(t, n.runPod(t, "web"), limited(32, "cat", file, "write", file+":1", "write", "/sys/new:1"))
		assert.Equal(t, []string{"stdout F 33554432", "stdout F open " + file + ": read-only file system", "stdout F open /sys/new: read-only file system"}, got)
	})
}

func TestLimit_HoldsForProgramsThatJoin(t *testing.T) {
	t.Parallel()
	onLimitingNode(t, func(t *testing.T, n *node) {
		id := n.start(t, n.runPod(t, "web"), limited(32, "wait"))
		n.awaitLog(t, id, "stdout F waiting")
		out, _, err := n.ExecSync(t.Context(), id, []string{"/probe", "print", "joined", "allocate", "64"}, kubetest.Patience)
		var exit utilexec.CodeExitError
		require.ErrorAs(t, err, &exit)
		assert.Equal(t, 137, exit.Code)
		assert.Equal(t, "joined", strings.TrimSpace(string(out)))
	})
}

func TestLimit_CPUQuotaIsKept(t *testing.T) {
	t.Parallel()
	onLimitingNode(t, func(t *testing.T, n *node) {
		cfg := limited(64, "burn", "1s")
		cfg.Linux.Resources.CpuQuota = 20_000
		got := n.finish(t, n.runPod(t, "web"), cfg)
		require.Len(t, got, 1)
		first, second, _ := strings.Cut(strings.TrimPrefix(got[0], "stdout F "), " of ")
		used, err := time.ParseDuration(first)
		require.NoError(t, err)
		passed, err := time.ParseDuration(second)
		require.NoError(t, err)
		assert.Less(t, used, passed/2, "a fifth of a processor")
	})
}
