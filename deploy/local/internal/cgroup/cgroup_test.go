package cgroup

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
)

// newTree makes cgroups of the machine, and removes them with the test.
func newTree(t *testing.T) *Tree {
	t.Helper()
	tree, err := New(fmt.Sprintf("localkube-test-%d-%x", os.Getpid(), time.Now().UnixNano()))
	if err != nil {
		t.Skipf("no cgroups can be made here: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, tree.Remove(kubetest.Patience)) })
	return tree
}

// in starts a program in cgroups.
func in(t *testing.T, tree *Tree, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	for _, dir := range tree.Folders() {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0))
	}
	return cmd
}

func TestTree_OfTheMachine(t *testing.T) {
	t.Parallel()
	cluster := newTree(t)
	node, err := cluster.Node("node-1", kubetest.Patience)
	require.NoError(t, err)
	c, err := node.Container("one", Limits{MemoryBytes: 32 << 20, CPUQuota: 50_000, CPUPeriod: 100_000})
	require.NoError(t, err)
	assert.False(t, c.OOMKilled())

	cmd := in(t, c, "sleep", "60")
	require.ErrorContains(t, c.Remove(0), "device or resource busy")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	require.NoError(t, c.Remove(kubetest.Patience))
	for _, dir := range c.Roots() {
		assert.NoDirExists(t, dir)
	}

	_, err = node.Container("left", Limits{})
	require.NoError(t, err)
	again, err := cluster.Node("node-1", kubetest.Patience)
	require.NoError(t, err)
	assert.Equal(t, node, again)
	for _, dir := range again.Roots() {
		assert.Empty(t, children(dir), "a boot starts with nothing")
	}
}

// fake is a tree in a folder, in which kernel files are as given.
func fake(t *testing.T, files ...string) string {
	t.Helper()
	contents := map[string]string{}
	for _, f := range files {
		contents[f] = ""
	}
	return machine(t, contents)
}

func read(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(raw)
}

func TestLimit_Files(t *testing.T) {
	t.Parallel()
	limits := Limits{MemoryBytes: 64 << 20, CPUQuota: 50_000, CPUPeriod: 100_000}
	t.Run("v1", func(t *testing.T) {
		t.Parallel()
		root := fake(t, "memory/memory.limit_in_bytes", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us", "pids/pids.max")
		tree := &Tree{Dirs: map[string]string{memory: root + "/memory", cpu: root + "/cpu", pids: root + "/pids"}}
		require.NoError(t, tree.Limit(limits))
		assert.Equal(t, "67108864", read(t, root+"/memory/memory.limit_in_bytes"))
		assert.Equal(t, "50000", read(t, root+"/cpu/cpu.cfs_quota_us"))
		assert.Equal(t, "100000", read(t, root+"/cpu/cpu.cfs_period_us"))
		assert.Equal(t, "4096", read(t, root+"/pids/pids.max"))
	})
	t.Run("v2", func(t *testing.T) {
		t.Parallel()
		root := fake(t, "memory.max", "memory.oom.group", "cpu.max", "pids.max")
		require.NoError(t, (&Tree{Unified: root}).Limit(limits))
		assert.Equal(t, "67108864", read(t, root+"/memory.max"))
		assert.Equal(t, "1", read(t, root+"/memory.oom.group"))
		assert.Equal(t, "50000 100000", read(t, root+"/cpu.max"))
		assert.Equal(t, "4096", read(t, root+"/pids.max"))
	})
	t.Run("v2 without some controllers", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, (&Tree{Unified: fake(t, "memory.max")}).Limit(limits))
	})
	t.Run("no limits", func(t *testing.T) {
		t.Parallel()
		root := fake(t, "memory.max")
		require.NoError(t, (&Tree{Unified: root}).Limit(Limits{}))
		assert.Empty(t, read(t, root+"/memory.max"))
	})
	t.Run("an error names the file", func(t *testing.T) {
		t.Parallel()
		err := (&Tree{Dirs: map[string]string{pids: t.TempDir()}}).Limit(limits)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorContains(t, err, "pids.max")
	})
}

func TestUnified_GivesItsControllersToChildren(t *testing.T) {
	t.Parallel()
	root := machine(t, map[string]string{"cgroup.controllers": "cpuset memory pids", "cgroup.subtree_control": ""})
	c, err := (&Tree{Unified: root}).Container("one", Limits{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"/sys/fs/cgroup": root + "/one"}, c.Folders())
	assert.Contains(t, read(t, root+"/cgroup.subtree_control"), "+pids")
	assert.NotContains(t, read(t, root+"/cgroup.subtree_control"), "cpuset")
}

func TestOOMKilled_IsTheKernelsCount(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, file, content string
		want                bool
	}{
		{name: "v1", file: "memory.oom_control", content: "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", want: true},
		{name: "v1 not", file: "memory.oom_control", content: "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"},
		{name: "v2", file: "memory.events", content: "low 0\nhigh 3\nmax 9\noom 1\noom_kill 1\noom_group_kill 1\n", want: true},
		{name: "v2 not", file: "memory.events", content: "low 0\nmax 9\noom_kill 0\n"},
		{name: "gone", file: "other"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := machine(t, map[string]string{tt.file: tt.content})
			tree := &Tree{Dirs: map[string]string{memory: root}}
			if tt.file == "memory.events" {
				tree = &Tree{Unified: root}
			}
			assert.Equal(t, tt.want, tree.OOMKilled())
		})
	}
}
