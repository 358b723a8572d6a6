//go:build system

package cri

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSocket asks a runtime at a Unix socket.
func TestSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	c := New(socket)
	t.Cleanup(c.http.CloseIdleConnections)
	_, err := c.ListPods(t.Context())
	require.ErrorContains(t, err, socket)

	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	serve(t, listener, &runtime{answers: map[string]func([]byte) ([]byte, string){
		"ListPodSandbox":   func([]byte) ([]byte, string) { return item("s1", "uid-1", 0), "0" },
		"PodSandboxStatus": func([]byte) ([]byte, string) { return status(0, "10.0.0.1"), "0" },
	}})
	pods, err := c.ListPods(t.Context())
	require.NoError(t, err)
	assert.Equal(t, addresses("10.0.0.1"), pods["uid-1"].Addresses)
}
