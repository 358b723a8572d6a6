package cri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/deploy/local/internal/nstest"
	"fairlead.dev/pkg/kubetest"
)

// What a container's program finds.

func TestContainer_EnvironmentIsTheImagesUnderThePods(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		cfg := containerConfig("app", "cat", "/proc/self/environ")
		cfg.Envs = []*runtimeapi.KeyValue{{Key: "FROM", Value: []byte("pod")}, {Key: "HOME", Value: []byte("/data")}, {Key: "A", Value: []byte("b")}}
		got := n.finish(t, n.runPod(t, "web"), cfg)
		require.Len(t, got, 1)
		assert.Equal(t, []string{"PATH=" + defaultPath, "HOSTNAME=web", "HOME=/data", "FROM=pod", "IMAGE=yes", "A=b", ""},
			strings.Split(strings.TrimPrefix(got[0], "stdout F "), "\x00"))
	})
}

func TestContainer_FilesAndVolumes(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, 0o777)) // the container's user is not ours
		cfg := containerConfig("app", "cat", "/etc/resolv.conf", "cat", "/etc/hostname", "write", "/rw/new:x", "write", "/ro/new:x",
			"cwd", "", "write", "/etc/passwd:x", "write", "/tmp/new:x")
		cfg.WorkingDir = "/srv"
		cfg.Mounts = []*runtimeapi.Mount{{HostPath: dir, ContainerPath: "/rw"}, {HostPath: dir, ContainerPath: "/ro", Readonly: true}}
		assert.Equal(t, []string{"stdout F nameserver 10.96.0.10", "stdout F search svc.cluster.local", "stdout F web", "stdout F written",
			"stdout F open /ro/new: read-only file system", "stdout F /srv", "stdout F open /etc/passwd: permission denied",
			"stdout F written"}, n.finish(t, n.runPod(t, "web"), cfg))
		assert.FileExists(t, filepath.Join(dir, "new"))
	})
}

func TestContainer_ReadOnlyRoot(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		cfg := containerConfig("app", "write", "/tmp/new:x")
		cfg.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{ReadonlyRootfs: true}}
		assert.Equal(t, []string{"stdout F open /tmp/new: read-only file system"}, n.finish(t, n.runPod(t, "web"), cfg))
	})
}

// runsAs are users of containers and what the program says that it is; groups come behind.
var runsAs = []struct {
	name string
	give *runtimeapi.LinuxContainerSecurityContext
	want string
	caps bool // root's
}{
	{name: "the-images", want: "65532 65532"},
	{name: "the-images-as-the-kubelet-has-it", give: &runtimeapi.LinuxContainerSecurityContext{RunAsUser: &runtimeapi.Int64Value{Value: 65532}}, want: "65532 65532"},
	{name: "root", give: &runtimeapi.LinuxContainerSecurityContext{RunAsUser: &runtimeapi.Int64Value{}}, want: "0 0", caps: true},
	{name: "the-pods", give: &runtimeapi.LinuxContainerSecurityContext{RunAsUser: &runtimeapi.Int64Value{Value: 1234},
		RunAsGroup: &runtimeapi.Int64Value{Value: 5678}}, want: "1234 5678"},
}

func checkUsers(t *testing.T, n *node) {
	t.Helper()
	p := n.runPod(t, "web")
	for _, tt := range runsAs {
		cfg := containerConfig(tt.name, "user", "", "status", "CapEff", "status", "CapBnd", "write", "/dev/stdout:reopened\n")
		cfg.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: tt.give}
		got := n.finish(t, p, cfg)
		require.Len(t, got, 5, "%s: %s", tt.name, got)
		assert.True(t, strings.HasPrefix(got[0], "stdout F "+tt.want+" ["), "%s: %s", tt.name, got[0])
		const none, fourteen = "0000000000000000", "00000000a80425fb"
		effective, bounding := none, none
		if tt.caps {
			effective = fourteen
		}
		if tt.caps || n.UserRange {
			bounding = fourteen
		}
		assert.Equal(t, []string{"stdout F CapEff " + effective, "stdout F CapBnd " + bounding, "stdout F reopened", "stdout F written"}, got[1:], tt.name)
	}
}

func TestContainer_PrivilegesAreThePods(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		root := &runtimeapi.Int64Value{}
		tests := []struct {
			name string
			give *runtimeapi.LinuxContainerSecurityContext
			want []string
		}{
			{name: "default", give: &runtimeapi.LinuxContainerSecurityContext{RunAsUser: root}, want: []string{"CapEff 00000000a80425fb", "NoNewPrivs 0"}},
			{name: "one-only", give: &runtimeapi.LinuxContainerSecurityContext{RunAsUser: root, NoNewPrivs: true,
				Capabilities: &runtimeapi.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_ADMIN"}}}, want: []string{"CapEff 0000000000001000", "NoNewPrivs 1"}},
		}
		p := n.runPod(t, "web")
		for _, tt := range tests {
			cfg := containerConfig(tt.name, "status", "CapEff", "status", "NoNewPrivs")
			cfg.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: tt.give}
			assert.Equal(t, []string{"stdout F " + tt.want[0], "stdout F " + tt.want[1]}, n.finish(t, p, cfg), tt.name)
		}
	})
}

func TestContainer_HiddenPaths(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		cfg := containerConfig("app", "cat", "/proc/version", "list", "/proc/sys/kernel", "write", "/proc/sys/net/ipv4/ip_forward:1", "list", "/nowhere")
		cfg.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			RunAsUser: &runtimeapi.Int64Value{}, MaskedPaths: []string{"/proc/version", "/proc/sys/kernel", "/nowhere"}, ReadonlyPaths: []string{"/proc/sys"}}}
		assert.Equal(t, []string{"stdout F open /proc/sys/net/ipv4/ip_forward: read-only file system", "stdout F open /nowhere: no such file or directory"},
			n.finish(t, n.runPod(t, "web"), cfg), "the first two are empty")
	})
}

func TestContainer_UserOutOfARange(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		if !nstest.UserRange(t) {
			t.Skip("only one user id is mapped")
		}
		checkUsers(t, n)
		cfg := containerConfig("groups", "user")
		cfg.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{SupplementalGroups: []int64{7, 8}}}
		assert.Equal(t, []string{"stdout F 65532 65532 [7 8 50]"}, n.finish(t, n.runPod(t, "groups"), cfg))
	})
}

func TestContainer_UserWhereOneIDIsMapped(t *testing.T) {
	t.Parallel()
	onNodeWithOneID(t, func(t *testing.T, n *node) {
		checkUsers(t, n)
		id := n.startWaiting(t, n.runPod(t, "exec"), "app")
		out, complaints, err := n.ExecSync(t.Context(), id, []string{"/probe", "hostname", "", "status", "CapEff"}, kubetest.Patience)
		require.NoError(t, err, "%s", complaints)
		assert.Equal(t, "exec\nCapEff 0000000000000000\n", string(out))
	})
}

func TestContainerStats_AreThoseOfRunningContainers(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p := n.runPod(t, "web")
		id, other := n.startWaiting(t, p, "app"), n.startWaiting(t, p, "other")
		s, err := n.ContainerStats(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, id, s.Attributes.Id)
		assert.Equal(t, "app", s.Attributes.Metadata.Name)
		assert.Positive(t, s.Memory.WorkingSetBytes.Value)

		require.NoError(t, n.StopContainer(t.Context(), id, 0))
		s, err = n.ContainerStats(t.Context(), id)
		require.NoError(t, err)
		assert.Zero(t, s.Memory.WorkingSetBytes.Value)

		list, err := n.ListContainerStats(t.Context(), &runtimeapi.ContainerStatsFilter{PodSandboxId: p.id, LabelSelector: map[string]string{"container": "other"}})
		require.NoError(t, err)
		require.Len(t, list, 1)
		assert.Equal(t, other, list[0].Attributes.Id)
		list, err = n.ListContainerStats(t.Context(), nil)
		require.NoError(t, err)
		assert.Len(t, list, 2)
	})
}
