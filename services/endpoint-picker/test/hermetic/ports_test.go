//go:build system

package hermetic

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"fairlead.dev/pkg/kubetest"
)

// program is the picker as a process of its own, whose memory can be measured.
type program struct {
	t         *testing.T
	process   *os.Process
	addresses map[string]string
}

// startProgram builds and starts the picker with a number of endpoints that nobody serves.
func startProgram(t *testing.T, endpoints int) *program {
	t.Helper()
	dir := t.TempDir()
	file, addresses, path := filepath.Join(dir, "endpoints.yaml"), filepath.Join(dir, "addresses.json"), filepath.Join(dir, "endpoint-picker")
	text := &strings.Builder{}
	fmt.Fprintln(text, "endpoints:")
	for i := range endpoints {
		fmt.Fprintf(text, "- {name: model-server-%d, address: 127.0.%d.%d, port: 1}\n", i, 1+i>>8, i&255)
	}
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "fairlead.dev/services/endpoint-picker").CombinedOutput()
	require.NoError(t, err, string(out))
	command := exec.Command(path,
		"--endpoints-file="+file, "--address-file="+addresses, "--grpc-port=0", "--grpc-health-port=0", "--metrics-bind-address=127.0.0.1:0",
		"--health-probe-bind-address=127.0.0.1:0", "--replica-bind-address=127.0.0.1:0", "--replica-addresses=127.0.0.1:1", "--drain-delay=0s")
	command.Env = append(os.Environ(), "GOMEMLIMIT=900MiB") // as the chart's default
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // killed
	})
	p := &program{t: t, process: command.Process}
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(addresses)
		return err == nil && json.Unmarshal(text, &p.addresses) == nil
	}, kubetest.Patience, tick, "listening")
	return p
}

// memory returns the resident memory of the process now, in bytes, as it was at most with field VmHWM, and now with VmRSS.
func (p *program) memory(field string) int {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.process.Pid))
	require.NoError(p.t, err)
	_, rest, found := strings.Cut(string(text), field+":")
	require.True(p.t, found)
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(p.t, err)
	return n << 10
}

// dialFrom returns the dial function of a client with an address.
func dialFrom(address string) func(ctx context.Context, network, to string) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 0)), Timeout: kubetest.Patience}).DialContext
}

// attack opens connections of the hostile address, writes text to each, and reads nothing.
func (p *program) attack(listener, text string, connections int) {
	p.t.Helper()
	dial := dialFrom(hostile)
	for range connections {
		c, err := dial(p.t.Context(), "tcp", p.addresses[listener])
		require.NoError(p.t, err)
		require.NoError(p.t, c.(*net.TCPConn).SetReadBuffer(4<<10)) // so that a page does not fit
		p.t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, text) // the picker may have closed the connection
	}
}

// get returns the status and the size of an answer, for a client that is not hostile.
func (p *program) get(listener, path string) (code, size int) {
	p.t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: dialFrom("127.0.0.1"), DisableKeepAlives: true, DisableCompression: true}, Timeout: kubetest.Patience}
	response, err := client.Get("http://" + p.addresses[listener] + path)
	require.NoError(p.t, err)
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	require.NoError(p.t, err)
	return response.StatusCode, int(n)
}

// TestPortsUnderAttack attacks the ports without credentials, from one address. The memory of the picker stays small, and probes and
// scrapes of another address are answered.
func TestPortsUnderAttack(t *testing.T) {
	p := startProgram(t, 256)
	ready := func() bool {
		code, _ := p.get("health", "/readyz")
		return code == http.StatusOK
	}
	require.Eventually(t, ready, kubetest.Patience, tick)
	_, page := p.get("metrics", "/metrics")
	before := p.memory("VmRSS")

	half := "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 15<<10)
	for _, listener := range []string{"metrics", "health", "replica"} {
		p.attack(listener, half, 700) // 14,000 of them are as much with more descriptors than a test may have
		p.attack(listener, "", 700)
	}
	const unread = 1500
	p.attack("metrics", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", unread)
	assert.True(t, ready())
	code, _ := p.get("health", "/healthz")
	assert.Equal(t, http.StatusOK, code)
	code, size := p.get("metrics", "/metrics")
	assert.Equal(t, http.StatusOK, code)
	assert.InEpsilon(t, page, size, 0.1)
	code, _ = p.get("metrics", "/debug/pools")
	assert.Equal(t, http.StatusOK, code)
	most := p.memory("VmHWM")
	t.Logf("page: %d KiB; resident: %d MiB before, %d MiB at most", page>>10, before>>20, most>>20)
	// When the runtime collects garbage varies the peak by a half. All of the pages are four times the limit.
	assert.Less(t, most-before, unread*page/4)
}

// TestLongHealthRequest sends what no probe sends.
func TestLongHealthRequest(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}})
	client := healthv1.NewHealthClient(r.dial("grpc-health-port"))
	_, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: strings.Repeat("x", 8<<10)})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, err = client.Check(metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", 32<<10)), &healthv1.HealthCheckRequest{})
	require.Error(t, err)
	r.await(func() bool { return r.serving("") == healthv1.HealthCheckResponse_SERVING }, "serving")
}
