package main

import (
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
	bootstrap, err := localBootstrap(manifest, ports{gateway: 8080, picker: 9002, servers: []int{8001, 8002}})
	require.NoError(t, err)
	text, err := yaml.Marshal(bootstrap)
	require.NoError(t, err)
	for _, gone := range []string{"0.0.0.0", "dns", "STRICT_DNS", "address: picker", "address: models"} {
		assert.NotContains(t, string(text), gone)
	}
	for port, want := range map[string]int{"8080": 1, "9002": 1, "8001": 1, "8002": 1, "0": 2} { // any port for admin and ready
		assert.Equal(t, want, strings.Count(string(text), "port_value: "+port+"\n"), port)
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
		_, err := localBootstrap([]byte(text), ports{})
		assert.ErrorContains(t, err, want, text)
	}
}

func TestListenerPorts(t *testing.T) {
	t.Parallel()
	const ready = `{"name": "ready", "local_address": {"socket_address": {"address": "127.0.0.1", "port_value": 40001}}}`
	found, err := listenerPorts([]byte(`{"listener_statuses": [{"name": "http", "local_address": {"socket_address": {"address": "127.0.0.1", "port_value": 40000}}}, ` + ready + `]}`))
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"http": 40000, "ready": 40001}, found)
	for text, want := range map[string]string{
		"no JSON":                                "decode listeners: ",
		"{}":                                     "listener http has no port yet",
		`{"listener_statuses": [` + ready + `]}`: "listener http has no port yet",
		`{"listener_statuses": [{"name": "http"}, ` + ready + `]}`: "listener http has no port yet",
	} {
		_, err := listenerPorts([]byte(text))
		assert.ErrorContains(t, err, want, text)
	}
}
