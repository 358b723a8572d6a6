package cri

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/deploy/local/internal/imagestore"
)

func securityContext(sc *runtimeapi.LinuxContainerSecurityContext) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: sc}}
}

func TestContainer_User(t *testing.T) {
	t.Parallel()
	zero := 0
	tests := []struct {
		name   string
		config *runtimeapi.ContainerConfig
		image  imagestore.Config
		want   user
	}{
		{name: "an image that names none", config: &runtimeapi.ContainerConfig{}, want: user{uid: 65532, gid: 65532}},
		{name: "the image's", config: &runtimeapi.ContainerConfig{}, image: imagestore.Config{User: &zero}, want: user{}},
		{name: "the pod's wins, in group 0", config: securityContext(&runtimeapi.LinuxContainerSecurityContext{
			RunAsUser: &runtimeapi.Int64Value{Value: 1234}}), want: user{uid: 1234}},
		{name: "with groups", config: securityContext(&runtimeapi.LinuxContainerSecurityContext{RunAsUser: &runtimeapi.Int64Value{Value: 1},
			RunAsGroup: &runtimeapi.Int64Value{Value: 2}, SupplementalGroups: []int64{3, 4}}), want: user{uid: 1, gid: 2, groups: []int{3, 4}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &container{config: tt.config, image: &imagestore.Image{Config: tt.image}}
			assert.Equal(t, tt.want, c.user())
		})
	}
}

func TestContainer_Argv(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                      string
		entrypoint, command, args []string
		want                      []string
		wantErr                   string
	}{
		{name: "the image's entrypoint with the pod's arguments", entrypoint: []string{"/app"}, args: []string{"-v"}, want: []string{"/app", "-v"}},
		{name: "the pod's command replaces the entrypoint", entrypoint: []string{"/app"}, command: []string{"/other", "x"}, want: []string{"/other", "x"}},
		{name: "neither", wantErr: "names a command"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &container{config: &runtimeapi.ContainerConfig{Command: tt.command, Args: tt.args},
				image: &imagestore.Image{Config: imagestore.Config{Entrypoint: tt.entrypoint}}}
			got, err := c.argv()
			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestBaseFiles(t *testing.T) {
	t.Parallel()
	files := baseFiles(user{uid: 1234}, &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"},
		Searches: []string{"default.svc.cluster.local", "svc.cluster.local"}, Options: []string{"ndots:5"}})
	assert.Equal(t, "nameserver 10.96.0.10\nsearch default.svc.cluster.local svc.cluster.local\noptions ndots:5\n", files["etc/resolv.conf"])
	assert.Contains(t, files["etc/passwd"], "root:x:0:0:")
	assert.Contains(t, files["etc/passwd"], "nonroot:x:65532:65532:")
	assert.Contains(t, files["etc/passwd"], "user:x:1234:1234:")
	assert.Contains(t, files["etc/group"], "user:x:1234:")
	assert.NotContains(t, baseFiles(user{}, nil)["etc/passwd"], "user:x")
	assert.Empty(t, baseFiles(user{}, nil)["etc/resolv.conf"])
}

func TestEnvironment_ThePodsWins(t *testing.T) {
	t.Parallel()
	c := &container{image: &imagestore.Image{Config: imagestore.Config{Env: []string{"A=image", "B=image"}}},
		config: &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{Key: "A", Value: []byte("pod")}}}}
	s := &sandbox{config: &runtimeapi.PodSandboxConfig{Hostname: "web-0"}}
	assert.Equal(t, []string{"PATH=/usr/local/bin:/usr/bin:/bin:/", "HOSTNAME=web-0", "HOME=/tmp", "A=pod", "B=image"}, environment(c, s))
}

func TestStopSignal(t *testing.T) {
	t.Parallel()
	assert.Equal(t, syscall.SIGTERM, stopSignal(runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT))
	assert.Equal(t, syscall.SIGINT, stopSignal(runtimeapi.Signal_SIGNAL_SIGINT))
}
