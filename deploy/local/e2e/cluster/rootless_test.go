package cluster_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// nobody is the user of the cluster when the test runs as root.
const nobody = 65534

// startRootless starts a cluster as an unprivileged user. It skips the test where such a user cannot make user namespaces.
func startRootless(t *testing.T) *cluster.Cluster {
	t.Helper()
	p := cluster.Params{}
	if os.Getuid() == 0 {
		p = unprivileged(t)
	} else {
		p.Config.Dir = t.TempDir()
	}
	c, err := cluster.Launch(t.Context(), p)
	if err != nil && strings.Contains(err.Error(), "user namespaces") {
		t.Skipf("this kernel forbids user namespaces to unprivileged users: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			c.SaveArtifacts(t)
		}
		c.Stop()
	})
	return c
}

// unprivileged has what a cluster needs in a folder that everybody can read: the repository may be in the home of root.
func unprivileged(t *testing.T) cluster.Params {
	t.Helper()
	binary, err := cluster.FindBinary()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "rootless-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	for _, name := range []string{"localkube", "localkube-shim"} {
		linkOrCopy(t, filepath.Join(filepath.Dir(binary), name), filepath.Join(dir, name))
	}
	p := cluster.Params{Binary: filepath.Join(dir, "localkube"), Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	p.Config = clusterapi.Config{Dir: filepath.Join(dir, "state"), Images: filepath.Join(dir, "images")}
	addImage(t, p.Config.Images, probeImage, "probe")
	require.NoError(t, os.Mkdir(p.Config.Dir, 0o755))
	for _, top := range []string{p.Config.Dir, p.Config.Images} { // as if that user had made them
		require.NoError(t, filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, nobody, nobody))
		}))
	}
	return p
}

func linkOrCopy(t *testing.T, from, to string) {
	t.Helper()
	if os.Link(from, to) == nil {
		return // on one disk
	}
	in, err := os.Open(from)
	require.NoError(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	defer out.Close()
	_, err = io.Copy(out, in)
	require.NoError(t, err)
}

func TestRootless(t *testing.T) {
	t.Parallel()
	c := startRootless(t)
	t.Run("a pod with fsGroup runs and writes to its volume", func(t *testing.T) {
		runProbe(t, c, probeParams{name: "grouped", args: []string{"write", "/data/file:text", "cat", "/data/file", "fetch", "http://10.96.0.1:443/"},
			spec:      "securityContext: {fsGroup: 2000, runAsUser: 1000, runAsGroup: 3000}\n  restartPolicy: Never\n  volumes: [{name: data, emptyDir: {}}]",
			container: "volumeMounts: [{name: data, mountPath: /data}]"})
		assert.Equal(t, []string{"written", "text", "Client sent an HTTP request to an HTTPS server."}, logs(t, c, "grouped"))
	})
	t.Run("the policy takes users and groups out of pods and nothing else", func(t *testing.T) { checkPolicy(t, c) })
}

// checkPolicy compares pods with what the API server makes of them.
func checkPolicy(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	user := &corev1.SecurityContext{RunAsUser: ptr.To(int64(1)), RunAsGroup: ptr.To(int64(2)), ReadOnlyRootFilesystem: ptr.To(true)}
	left := &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
	tests := []struct {
		name       string
		give, want corev1.PodSpec
	}{
		{name: "nothing-to-do", give: corev1.PodSpec{Containers: containers("a", nil, nil)}, want: corev1.PodSpec{Containers: containers("a", nil, nil)}},
		{
			name: "of-the-pod",
			give: corev1.PodSpec{Containers: containers("a", nil), SecurityContext: &corev1.PodSecurityContext{RunAsUser: ptr.To(int64(1)), RunAsGroup: ptr.To(int64(2)),
				FSGroup: ptr.To(int64(3)), SupplementalGroups: []int64{4}, RunAsNonRoot: ptr.To(true)}},
			want: corev1.PodSpec{Containers: containers("a", nil), SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}},
		},
		{name: "of-some-containers", give: corev1.PodSpec{Containers: containers("a", nil, user, left, user)}, want: corev1.PodSpec{Containers: containers("a", nil, left, left, left)}},
		{
			name: "of-init-containers",
			give: corev1.PodSpec{InitContainers: containers("i", user, nil, user), Containers: containers("a", user)},
			want: corev1.PodSpec{InitContainers: containers("i", left, nil, left), Containers: containers("a", left)},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(),
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: tt.name}, Spec: tt.give}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			require.NoError(t, err)
			if tt.want.SecurityContext == nil {
				tt.want.SecurityContext = &corev1.PodSecurityContext{} // the API server's default
			}
			assert.Equal(t, tt.want.SecurityContext, got.Spec.SecurityContext)
			assert.Equal(t, securityContexts(tt.want.Containers), securityContexts(got.Spec.Containers))
			assert.Equal(t, securityContexts(tt.want.InitContainers), securityContexts(got.Spec.InitContainers))
		})
	}
}

// containers have one security context each.
func containers(prefix string, contexts ...*corev1.SecurityContext) []corev1.Container {
	var list []corev1.Container
	for i, sc := range contexts {
		list = append(list, corev1.Container{Name: prefix + string(rune('a'+i)), Image: probeImage, SecurityContext: sc})
	}
	return list
}

func securityContexts(list []corev1.Container) []*corev1.SecurityContext {
	var contexts []*corev1.SecurityContext
	for _, c := range list {
		contexts = append(contexts, c.SecurityContext)
	}
	return contexts
}
