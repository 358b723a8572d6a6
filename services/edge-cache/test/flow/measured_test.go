//go:build system || long

package flow

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"fairlead.dev/pkg/kubetest"
)

func buildCache(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "edge-cache")
	out, err := exec.Command("go", "build", "-o", binary, "../..").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// measured is a cache in a process of its own.
type measured struct {
	*edge

	binary string
	cmd    *exec.Cmd
}

func (e *edge) measured(binary string) *measured {
	p := &measured{edge: e, binary: binary}
	p.launch()
	e.t.Cleanup(p.kill)
	return p
}

func (p *measured) launch() {
	p.t.Helper()
	c := p.cfg
	p.cmd = exec.Command(p.binary, "--pool="+c.Pool.Name, "--kubeconfig="+c.Upstream.Kubeconfig, "--listen-address="+c.Client.Address,
		"--credentials-dir="+c.Client.CredentialsDir, "--namespace-file="+c.Client.NamespaceFile, "--data-dir="+c.Data.Dir,
		"--health-probe-bind-address="+c.HTTP.HealthAddress, "--metrics-bind-address="+c.HTTP.MetricsAddress,
		"--address-file="+c.AddressFile)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(p.t, p.cmd.Start())
}

func (p *measured) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.forget()
	}
}

// memory returns a line of /proc/<pid>/status in MB.
func (p *measured) memory(name string) float64 {
	p.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	for line := range strings.Lines(string(raw)) {
		if rest, found := strings.CutPrefix(line, name+":"); found {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(p.t, err)
			return float64(kb) / 1000
		}
	}
	return 0
}

// sum returns the sum of a metric, over the series whose labels contain a text.
func (p *measured) sum(name, labels string) float64 {
	p.t.Helper()
	response, err := http.Get("http://" + p.address("metrics") + "/metrics")
	require.NoError(p.t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	sum := 0.0
	for line := range strings.Lines(string(raw)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if found, rest, _ := strings.Cut(series, "{"); found == name && strings.Contains(rest, labels) {
			v, err := strconv.ParseFloat(value, 64)
			require.NoError(p.t, err)
			sum += v
		}
	}
	return sum
}

// listed waits until the cache answers a list.
func (p *measured) listed() {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		client, err := rest.HTTPClientFor(p.rest())
		if err != nil {
			return false
		}
		defer client.CloseIdleConnections()
		request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.rest().Host+slicesPath+"?resourceVersion=0", nil)
		require.NoError(p.t, err)
		request.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
		response, err := client.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return err == nil && response.StatusCode == http.StatusOK
	}, kubetest.Patience, tick)
}

// readSlowly opens a watch, and reads a byte per second.
func (e *edge) readSlowly(t *testing.T) (stop func()) {
	t.Helper()
	conn, err := e.dialFor(t.Context(), "tcp", "http/1.1") // the connection has one stream
	require.NoError(t, err)
	require.NoError(t, conn.(*tls.Conn).NetConn().(*net.TCPConn).SetReadBuffer(4096))
	_, err = fmt.Fprintf(conn, "GET %s?watch=true HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n", slicesPath,
		e.rest().BearerToken)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var reader sync.WaitGroup
	reader.Go(func() {
		one := bufio.NewReaderSize(conn, 16)
		for ctx.Err() == nil {
			if _, err := one.ReadByte(); err != nil {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	return func() { cancel(); conn.(*tls.Conn).NetConn().Close(); reader.Wait() }
}
