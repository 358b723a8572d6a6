//go:build system

package hermetic

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// gatewayExamples is the folder of the example configurations of gateways.
const gatewayExamples = "../../../../deploy/examples/inference"

// findEnvoy returns the path of Envoy. It skips the test if Envoy is not there.
func findEnvoy(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob("../../../../bin/cache/envoy-*")
	require.NoError(t, err)
	if len(found) == 0 {
		t.Skip("no bin/cache/envoy-*: run make demo to download Envoy")
	}
	return found[len(found)-1]
}

// startEnvoy runs Envoy with the example configuration in front of the picker until the end of the test, and returns the address of its
// listener. The routes have a retry policy, such as that of the example; "" is none, as in the example without it.
func (r *rig) startEnvoy(program, retryPolicy string) string {
	r.t.Helper()
	folder := r.t.TempDir()
	admin := filepath.Join(folder, "admin")
	bootstrap := filepath.Join(folder, "envoy.yaml")
	require.NoError(r.t, os.WriteFile(bootstrap, []byte(r.bootstrap(retryPolicy)), 0o600))
	output := &strings.Builder{}
	process := exec.Command(program, "-c", bootstrap, "--admin-address-path", admin, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warn")
	process.Stdout, process.Stderr = output, output
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	require.NoError(r.t, process.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = process.Wait() // signaled
	}()
	r.t.Cleanup(func() {
		_ = process.Process.Signal(syscall.SIGTERM)
		<-ended
		if r.t.Failed() {
			r.t.Log(output)
		}
	})
	var address string
	r.await(func() bool {
		select {
		case <-ended:
			r.t.Fatalf("Envoy has ended")
		default:
		}
		at, err := os.ReadFile(admin)
		if err == nil && len(at) > 0 && r.get(string(at), "/ready") == "LIVE\n" {
			address = r.listenerOf(string(at))
		}
		return address != ""
	}, "Envoy is ready")
	return address
}

// listenerOf returns the address of Envoy's listener for requests, "" if there is none yet.
func (r *rig) listenerOf(admin string) string {
	r.t.Helper()
	var listeners struct {
		Statuses []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    uint16 `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	require.NoError(r.t, json.Unmarshal([]byte(r.get(admin, "/listeners?format=json")), &listeners))
	for _, l := range listeners.Statuses {
		if l.Name == "http" && l.Local.Socket.Port != 0 {
			return net.JoinHostPort(l.Local.Socket.Address, fmt.Sprint(l.Local.Socket.Port))
		}
	}
	return ""
}

// bootstrap returns the configuration in the example's ConfigMap, with the addresses of the rig.
func (r *rig) bootstrap(retryPolicy string) string {
	r.t.Helper()
	manifest, err := os.ReadFile(filepath.Join(gatewayExamples, "envoy.yaml"))
	require.NoError(r.t, err)
	_, text, _ := strings.Cut(string(manifest), "  envoy.yaml: |\n")
	text, _, _ = strings.Cut(text, "\n---\n")
	text = strings.ReplaceAll("\n"+text+"\n", "\n    ", "\n")
	_, picker, err := net.SplitHostPort(r.address("grpc-port"))
	require.NoError(r.t, err)
	const pod = "- endpoint: {address: {socket_address: {address: models, port_value: 8000}}}\n"
	var pods strings.Builder
	for _, s := range r.servers {
		address := fmt.Sprintf("address: %s, port_value: %d", s.address.Addr(), s.address.Port())
		pods.WriteString(strings.Replace(pod, "address: models, port_value: 8000", address, 1))
	}
	for _, change := range [][2]string{
		{"{address: 0.0.0.0, port_value: 8080}", "{address: 127.0.0.1, port_value: 0}"},
		{"{address: 0.0.0.0, port_value: 19001}", "{address: 127.0.0.1, port_value: 0}"},
		{"{address: 127.0.0.1, port_value: 19000}", "{address: 127.0.0.1, port_value: 0}"},
		{"{address: picker, port_value: 9002}", "{address: 127.0.0.1, port_value: " + picker + "}"},
		{pod, indented(pods.String(), 8)},
		{" timeout: 0s\n", indented(" timeout: 0s\n"+retryPolicy, 18)},
	} {
		require.Contains(r.t, text, change[0])
		text = strings.Replace(text, change[0], change[1], 1)
	}
	return text
}

// indented returns lines that go in the place of one that begins after so many spaces.
func indented(lines string, spaces int) string {
	lines = strings.ReplaceAll(lines, "\n", "\n"+strings.Repeat(" ", spaces))
	return strings.TrimRight(lines, " ")
}
