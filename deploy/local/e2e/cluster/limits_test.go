package cluster_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

func TestLimits_MemoryIsEnforcedAndNothingIsLeft(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.FastTimings)
	stack.NeedLimits(t, c)
	limit := "resources: {limits: {memory: 64Mi}}"
	runProbe(t, c, probeParams{name: "small", args: []string{"allocate", "16", "stay"}, container: limit})
	require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(probePod, "large", "large", "", `[allocate, "128", stay]`, limit)))

	var large *corev1.Pod
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		var err error
		large, err = c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "large", metav1.GetOptions{})
		require.NoError(collect, err)
		require.Len(collect, large.Status.ContainerStatuses, 1)
		require.Greater(collect, large.Status.ContainerStatuses[0].RestartCount, int32(1), "it is started again")
	}, kubetest.Patience, tick)
	ended := large.Status.ContainerStatuses[0].LastTerminationState.Terminated
	require.NotNil(t, ended)
	assert.Equal(t, "OOMKilled", ended.Reason)
	assert.Equal(t, int32(137), ended.ExitCode)
	small, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "small", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Zero(t, small.Status.ContainerStatuses[0].RestartCount)

	name := fmt.Sprintf("localkube-%d-", c.LauncherPID())
	require.NotEmpty(t, cgroups(t, name))
	require.NoError(t, syscall.Kill(c.LauncherPID(), syscall.SIGKILL))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.Empty(collect, cgroups(t, name), "the launcher was killed, and its cgroups stay")
	}, kubetest.Patience, tick)
}

// cgroups lists the machine's cgroups whose names begin with a prefix.
func cgroups(t *testing.T, prefix string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), prefix) {
			found = append(found, path)
		}
		return nil // a cgroup may just have gone
	})
	require.NoError(t, err)
	return found
}
