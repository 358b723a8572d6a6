//go:build system

package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/addressfile"
)

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	require.ErrorContains(t, portFree(l.Addr().(*net.TCPAddr).Port), "cannot be used, choose another with --port or make demo PORT=")
	require.NoError(t, portFree(0), "the system chooses a port that nothing uses")
}

func TestProcessThatEnds(t *testing.T) {
	t.Parallel()
	ended := make(chan *process, 1)
	p, err := startProcess(t.TempDir(), "server", ended, "/bin/sh", "-c", "echo bad flag; exit 3")
	require.NoError(t, err)
	require.EqualError(t, p.awaitReady(t.Context(), "http://127.0.0.1:1/"), "server ended: exit status 3\nbad flag")
	assert.Same(t, p, <-ended)
	p.stop()
	_, err = startProcess(t.TempDir(), "server", ended, "/does/not/exist")
	require.ErrorContains(t, err, "start server: ")
}

func TestProcessThatGetsReady(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	p, err := startProcess(t.TempDir(), "server", make(chan *process, 1), "/bin/sleep", "600")
	require.NoError(t, err)
	require.NoError(t, p.awaitReady(t.Context(), server.URL))
	assert.Equal(t, 3, asked)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.awaitReady(canceled, server.URL), context.Canceled)
	p.stop()
	assert.Equal(t, "signal: terminated", p.cmd.ProcessState.String())
}

func TestProcessThatSaysWhereItListens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, err := startProcess(dir, "server", make(chan *process, 1), "/bin/sleep", "600")
	require.NoError(t, err)
	t.Cleanup(p.stop)
	file := filepath.Join(dir, "addresses.json")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.awaitPorts(canceled, file)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, os.ErrNotExist, "the reason")

	require.NoError(t, addressfile.Write(file, map[string]string{"http": "127.0.0.1:40000", "health": "[::]:40001"}))
	found, err := p.awaitPorts(t.Context(), file)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"http": 40000, "health": 40001}, found)

	require.NoError(t, addressfile.Write(file, map[string]string{"http": "nowhere"}))
	_, err = p.awaitPorts(t.Context(), file)
	require.ErrorContains(t, err, "address http of server: ")
}

// Envoy creates the file with the address of its admin server before it has the address.
func TestEnvoyThatSaysWhereItListens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, asked := filepath.Join(dir, "admin"), 0
	answers := []string{`{}`, `{"listener_statuses": [{"name": "http", "local_address": {"socket_address": {"port_value": 40000}}},
		{"name": "ready", "local_address": {"socket_address": {"port_value": 40001}}}]}`}
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/listeners?format=json", r.URL.String())
		_, _ = w.Write([]byte(answers[asked]))
		asked++
	}))
	t.Cleanup(admin.Close)
	p, err := startProcess(dir, "envoy", make(chan *process, 1), "/bin/sh", "-c", `: >"$0"; sleep 0.1; printf %s "$1" >"$0"; exec sleep 600`, file, admin.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(p.stop)
	found, err := p.awaitListeners(t.Context(), file)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"http": 40000, "ready": 40001}, found)
	assert.Equal(t, 2, asked)
}
