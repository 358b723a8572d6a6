//go:build system

package cluster_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

func TestStart_ControlPlanesSideBySideKnowNothingOfEachOther(t *testing.T) {
	t.Parallel()
	a, b := cluster.Start(t, cluster.ControlPlaneOnly), cluster.Start(t, cluster.ControlPlaneOnly)
	assert.NotEqual(t, a.APIAddress, b.APIAddress)

	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	_, err := a.Clientset().CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), cm, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = b.Clientset().CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), "mine", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "got %v", err)
}

func TestStart_ControlPlane(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.ControlPlaneOnly)
	t.Run("has no nodes but takes pods", func(t *testing.T) { testControlPlaneTakesPods(t, c) })
	t.Run("Save keeps objects and logs but no secrets", func(t *testing.T) { testSave(t, c) })
	t.Run("restart", func(t *testing.T) { testRestart(t, c) })
	t.Run("pause", func(t *testing.T) { testPause(t, c) })
}

func testControlPlaneTakesPods(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	s, err := c.Status(t.Context())
	require.NoError(t, err)
	assert.True(t, s.Ready)
	assert.Empty(t, s.Nodes)
	assert.Len(t, s.Components, 2)

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	_, err = c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{})
	assert.NoError(t, err)
}

func TestLaunch_WrongFlagIsOneLineThatNamesTheComponentAndItsLog(t *testing.T) {
	t.Parallel()
	_, err := cluster.Launch(t.Context(), cluster.Params{Config: clusterapi.Config{Dir: t.TempDir(), ControlPlaneOnly: true,
		Args: map[string][]string{clusterapi.APIServer: {"--no-such-flag"}}}})
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "\n")
	assert.Contains(t, err.Error(), "kube-apiserver ended while it started")
	assert.Contains(t, err.Error(), "--no-such-flag")
	assert.Contains(t, err.Error(), "kube-apiserver.log")
}

func testSave(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"k": "verysecret"}}
	_, err := c.Clientset().CoreV1().Secrets(metav1.NamespaceDefault).Create(t.Context(), secret, metav1.CreateOptions{})
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "kept")
	require.NoError(t, c.Save(t.Context(), dir))
	assert.FileExists(t, filepath.Join(dir, "objects", "namespaces.json"))
	assert.FileExists(t, filepath.Join(dir, "log", "kube-apiserver.log"))
	assert.FileExists(t, filepath.Join(dir, "status.json"))
	assert.NoFileExists(t, filepath.Join(dir, "objects", "secrets.json"))
}

func testRestart(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	_, err := c.Clientset().CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), cm, metav1.CreateOptions{})
	require.NoError(t, err)

	require.NoError(t, c.Component(t.Context(), clusterapi.APIServer, clusterapi.ActionKill))
	require.NoError(t, c.Component(t.Context(), clusterapi.Etcd, clusterapi.ActionKill))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		_, err := c.Clientset().CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), "kept", metav1.GetOptions{})
		assert.NoError(collect, err)
	}, kubetest.Patience, 100*time.Millisecond)
	s, err := c.Status(t.Context())
	require.NoError(t, err)
	for _, p := range s.Components {
		assert.Equal(t, 1, p.Restarts, p.Name)
	}
}

func testPause(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	client := c.Clientset()
	require.NoError(t, c.Component(t.Context(), clusterapi.APIServer, clusterapi.ActionPause))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
	require.ErrorIs(t, err, context.DeadlineExceeded)

	require.NoError(t, c.Component(t.Context(), clusterapi.APIServer, clusterapi.ActionResume))
	_, err = client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceDefault, metav1.GetOptions{})
	assert.NoError(t, err)
}

func TestRestore_GoesBackToTheSnapshot(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.ControlPlaneOnly)
	configMaps := c.Clientset().CoreV1().ConfigMaps(metav1.NamespaceDefault)
	create := func(name string) {
		_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	file := filepath.Join(t.TempDir(), "snapshot.db")
	create("before")
	require.NoError(t, c.Snapshot(t.Context(), file))
	create("after")
	require.NoError(t, c.Restore(t.Context(), file))

	_, err := configMaps.Get(t.Context(), "before", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = configMaps.Get(t.Context(), "after", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "got %v", err)
}

func TestAudit_RecordsWhoDidWhat(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.ControlPlaneOnly, cluster.Audit)
	_, err := c.Kubectl(t.Context(), "create", "configmap", "seen")
	require.NoError(t, err)
	raw, err := os.ReadFile(clusterapi.AuditFile(c.Dir))
	require.NoError(t, err)
	found := false
	for line := range strings.Lines(string(raw)) {
		found = found || strings.Contains(line, `"verb":"create"`) && strings.Contains(line, `"name":"seen"`) && strings.Contains(line, `"username":"admin"`)
	}
	assert.True(t, found, "no audit entry for the ConfigMap")
}
