package cri

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/deploy/local/internal/imagestore"
)

func TestContainer_Argv(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                           string
		entrypoint, cmd, command, args []string
		want                           []string
		wantErr                        string
	}{
		{name: "the image's entrypoint with the pod's arguments", entrypoint: []string{"/app"}, args: []string{"-v"}, want: []string{"/app", "-v"}},
		{name: "the image's arguments if the pod has none", entrypoint: []string{"/app"}, cmd: []string{"-q"}, want: []string{"/app", "-q"}},
		{name: "the pod's arguments replace those of the image", entrypoint: []string{"/app"}, cmd: []string{"-q"}, args: []string{"-v"}, want: []string{"/app", "-v"}},
		{name: "the pod's command replaces both", entrypoint: []string{"/app"}, cmd: []string{"-q"}, command: []string{"/other"}, want: []string{"/other"}},
		{name: "an image with arguments only", cmd: []string{"/app", "x"}, want: []string{"/app", "x"}},
		{name: "the pod's command replaces the entrypoint", entrypoint: []string{"/app"}, command: []string{"/other", "x"}, want: []string{"/other", "x"}},
		{name: "neither", wantErr: "names a command"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &container{config: &runtimeapi.ContainerConfig{Command: tt.command, Args: tt.args},
				image: &imagestore.Image{Config: imagestore.Config{Entrypoint: tt.entrypoint, Cmd: tt.cmd}}}
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

func TestResolvConf(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "nameserver 10.96.0.10\nsearch default.svc.cluster.local svc.cluster.local\noptions ndots:5\n",
		resolvConf(&runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}, Searches: []string{"default.svc.cluster.local", "svc.cluster.local"}, Options: []string{"ndots:5"}}))
	assert.Empty(t, resolvConf(nil))
}

func TestEnvironment_ThePodsWins(t *testing.T) {
	t.Parallel()
	c := &container{image: &imagestore.Image{Config: imagestore.Config{Env: []string{"A=image", "B=image"}}},
		config: &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{Key: "A", Value: []byte("pod")}}}}
	s := &sandbox{config: &runtimeapi.PodSandboxConfig{Hostname: "web-0"}}
	assert.Equal(t, []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=web-0", "HOME=/home/app", "A=pod", "B=image"},
		environment(c, s, "/home/app"))
}

func TestStopSignal(t *testing.T) {
	t.Parallel()
	assert.Equal(t, syscall.SIGTERM, stopSignal(runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT))
	assert.Equal(t, syscall.SIGINT, stopSignal(runtimeapi.Signal_SIGNAL_SIGINT))
}
