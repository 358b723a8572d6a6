package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestLocalBootstrap tests that the bootstrap has no names and addresses of a Kubernetes cluster.
func TestLocalBootstrap(t *testing.T) {
	t.Parallel()
	manifest, err := os.ReadFile("../../examples/inference/envoy.yaml")
	require.NoError(t, err)
	bootstrap, err := localBootstrap(manifest, 8080, ports{picker: 9002, admin: 19000, ready: 19001, servers: []int{8001, 8002}})
	require.NoError(t, err)
	text, err := yaml.Marshal(bootstrap)
	require.NoError(t, err)
	for _, gone := range []string{"0.0.0.0", "dns", "STRICT_DNS", "address: picker", "address: models"} {
		assert.NotContains(t, string(text), gone)
	}
	for _, port := range []string{"8080", "9002", "19000", "19001", "8001", "8002"} {
		assert.Equal(t, 1, strings.Count(string(text), "port_value: "+port+"\n"), port)
	}
	assert.Equal(t, 6, strings.Count(string(text), "address: 127.0.0.1\n"))
	assert.Equal(t, 2, strings.Count(string(text), "type: STATIC\n"))
}

func TestLocalBootstrapFails(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{":                         "decode: ",
		"{data: {envoy.yaml: '['}}": "decode envoy.yaml: ",
		"{data: {other: x}}":        "bootstrap must have the listeners http and ready, and the clusters picker and pool",
		"{data: {envoy.yaml: '{static_resources: {listeners: [{name: http}, {name: ready}], clusters: [{name: picker}, {name: other}]}}'}}": "unknown cluster other",
		"{data: {envoy.yaml: '{static_resources: {listeners: [{name: http}, {name: other}], clusters: [{}, {}]}}'}}":                        "unknown listener other",
	} {
		_, err := localBootstrap([]byte(text), 1, ports{})
		assert.ErrorContains(t, err, want, text)
	}
}

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
	p, err := startProcess(t.TempDir(), "server", make(chan *process, 1), "/bin/sleep", "60")
	require.NoError(t, err)
	require.NoError(t, p.awaitReady(t.Context(), server.URL))
	assert.Equal(t, 3, asked)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.awaitReady(canceled, server.URL), context.Canceled)
	p.stop()
	assert.Equal(t, "signal: terminated", p.cmd.ProcessState.String())
}
