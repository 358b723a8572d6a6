//go:build system

package cri

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/edge-cache/internal/liveaddress"
)

// TestSocket asks a runtime at a Unix socket.
func TestSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	c, err := New(socket)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	_, err = c.ListPods(t.Context())
	require.ErrorContains(t, err, socket)

	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	serve(t, listener, &runtime{answers: map[string]func([]byte) ([]byte, string){
		"ListPodSandbox":   func([]byte) ([]byte, string) { return list(t, sandbox("s1", "uid-1", ready)), "0" },
		"PodSandboxStatus": func([]byte) ([]byte, string) { return status(t, ready, "10.0.0.1"), "0" },
	}})
	var pods map[string]liveaddress.Pod
	require.Eventually(t, func() bool {
		pods, err = c.ListPods(t.Context())
		return err == nil
	}, kubetest.Patience, 50*time.Millisecond)
	assert.Equal(t, addresses("10.0.0.1"), pods["uid-1"].Addresses)
}
