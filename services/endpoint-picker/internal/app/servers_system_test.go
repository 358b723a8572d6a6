//go:build system

package app

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/pkg/addressfile"
	"fairlead.dev/pkg/kubetest"
)

// secureModel is a model server with a certificate for localhost.
type secureModel struct {
	url      string // by the name
	file     string // of the authority
	requests atomic.Int64
}

func newSecureModel(t *testing.T) *secureModel {
	t.Helper()
	m := &secureModel{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/completions" {
			m.requests.Add(1)
		}
		_, _ = io.WriteString(w, "vllm:num_requests_running 1\n")
	}))
	certificate, file := selfSigned(t, "localhost")
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.Config.ErrorLog = zap.NewStdLog(zap.NewNop()) // handshakes that clients end
	server.StartTLS()
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	m.url, m.file = "https://localhost:"+u.Port(), file
	return m
}

// logText is what a program has logged.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns the text until now.
func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// commandLine is a command line that runs.
type commandLine struct {
	addresses map[string]string // of its listeners
	written   logText
	stop      context.CancelFunc
	ended     chan struct{} // closed at the end
}

// startServers runs the command line until the test ends.
func startServers(t *testing.T, args ...string) *commandLine {
	t.Helper()
	file := filepath.Join(t.TempDir(), "addresses.json")
	ctx, cancel := context.WithCancel(context.Background())
	c := &commandLine{stop: cancel, ended: make(chan struct{})}
	args = append([]string{"--proxy-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0",
		"--drain-delay=0s", "--drain-timeout=1s", "--address-file=" + file}, args...)
	go func() {
		defer close(c.ended)
		assert.NoError(t, NewCommand(args, io.Discard, &c.written).ExecuteContext(ctx))
	}()
	t.Cleanup(func() {
		cancel()
		<-c.ended
	})
	require.Eventually(t, func() bool {
		var err error
		c.addresses, err = addressfile.Read(file)
		return err == nil
	}, kubetest.Patience, tick)
	return c
}

// complete sends a request to the proxy listener.
func complete(t *testing.T, proxy string) (status int) {
	t.Helper()
	status, err := send(proxy, "p")
	require.NoError(t, err)
	return status
}

// send sends a request with a prompt.
func send(proxy, prompt string) (status int, err error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Post("http://"+proxy+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"`+prompt+`"}`))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// TestRestartOnOnePort starts the next process while an answer of the first one is open. No request is refused, the next process reads what
// the first one knew, and the answer completes.
func TestRestartOnOnePort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 400)
	began, release := make(chan struct{}), make(chan struct{})
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "vllm:num_requests_running 1\n")
			return
		}
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), long) {
			close(began)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, `{"model":"m","choices":[{"text":"word"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`)
	}))
	t.Cleanup(model.Close)
	state := filepath.Join(t.TempDir(), "state")
	args := []string{"--servers=" + model.URL, "--state-file=" + state, "--drain-timeout=" + kubetest.Patience.String()}
	first := startServers(t, args...)
	proxy := first.addresses["proxy"]
	answered := make(chan int, 1)
	go func() {
		status, err := send(proxy, long)
		assert.NoError(t, err)
		answered <- status
	}()
	<-began
	first.stop()
	require.Eventually(t, func() bool {
		_, err := os.Stat(state)
		return err == nil
	}, kubetest.Patience, tick, "written before the end")
	next := startServers(t, append(args, "--proxy-bind-address="+proxy)...)
	require.Eventually(t, func() bool {
		return strings.Contains(next.written.String(), "Read contents of caches from the state file")
	}, kubetest.Patience, tick)
	require.Eventually(t, func() bool {
		status, err := send(proxy, "p")
		if !assert.NoError(t, err) || !assert.Equal(t, http.StatusOK, status) {
			return true
		}
		return !strings.Contains(page(t, "http://"+next.addresses["metrics"]+"/metrics"), `fairlead_picker_proxy_attempts_total{result="answered"} 0`)
	}, kubetest.Patience, tick)
	select {
	case <-first.ended:
		t.Error("the answer is open")
	default:
	}
	close(release)
	assert.Equal(t, http.StatusOK, <-answered)
	<-first.ended
}

// TestConnectionsWaitForNames connects to a process while it resolves the name of a server. The connection waits, and another server answers.
func TestConnectionsWaitForNames(t *testing.T) { // not parallel: it replaces the resolver of the process
	resolver := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = resolver })
	asked, release := make(chan struct{}, 1), make(chan struct{})
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-release
		return nil, io.ErrUnexpectedEOF
	}}
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"model":"m","choices":[{"text":"word"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`)
	}))
	t.Cleanup(model.Close)
	c := startServers(t, "--servers="+model.URL+",http://model.invalid:8000")
	<-asked
	conn, err := net.Dial("tcp", c.addresses["proxy"])
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /v1/models HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	close(release)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, http.StatusOK, response.StatusCode)
}

// TestServersOverTLS asks servers with TLS for their metrics and for answers.
func TestServersOverTLS(t *testing.T) {
	t.Parallel()
	m := newSecureModel(t)
	byAddress := strings.Replace(m.url, "localhost", "127.0.0.1", 1)
	tests := []struct {
		name string
		args []string
		want int
		log  string // of a page that cannot be read
	}{
		{name: "its authority", args: []string{"--servers=" + m.url, "--servers-ca-file=" + m.file}, want: http.StatusOK},
		{name: "unverified", args: []string{"--servers=" + byAddress, "--servers-insecure-skip-verify"}, want: http.StatusOK},
		{name: "unknown authority", args: []string{"--servers=" + m.url}, want: http.StatusServiceUnavailable, log: "certificate signed by unknown authority"},
		{name: "another name", args: []string{"--servers=" + byAddress, "--servers-ca-file=" + m.file}, want: http.StatusServiceUnavailable, log: "cannot validate certificate for 127.0.0.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := startServers(t, append(tt.args, "--metrics-staleness-threshold=200ms")...)
			assert.NotContains(t, c.addresses, "grpc")
			assert.NotContains(t, c.addresses, "grpc-health")
			require.Eventually(t, func() bool {
				return strings.Contains(page(t, "http://"+c.addresses["metrics"]+"/metrics"), `fairlead_picker_endpoints_ready{pool="servers"} 1`)
			}, kubetest.Patience, tick)
			assert.Equal(t, tt.want, complete(t, c.addresses["proxy"]))
			assert.Contains(t, c.written.String(), `"debugPage":"http://`+c.addresses["metrics"]+`/debug/pools.html"`)
			if tt.log != "" {
				require.Eventually(t, func() bool { return strings.Contains(c.written.String(), tt.log) }, kubetest.Patience, tick, "of its page")
				return
			}
			require.Eventually(t, func() bool {
				return !strings.Contains(page(t, "http://"+c.addresses["metrics"]+"/metrics"), `fairlead_picker_scrapes_total{pool="servers",result="ok"} 0`)
			}, kubetest.Patience, tick)
		})
	}
}

// TestServersWithAndWithoutTLS has one of each.
func TestServersWithAndWithoutTLS(t *testing.T) {
	t.Parallel()
	m := newSecureModel(t)
	c := startServers(t, "--servers=http://"+newModel(t)+","+m.url, "--servers-ca-file="+m.file)
	require.Eventually(t, func() bool {
		return complete(t, c.addresses["proxy"]) == http.StatusOK && m.requests.Load() > 0
	}, kubetest.Patience, tick)
	assert.NotContains(t, c.written.String(), "Ejected")
}

// page returns a page.
func page(t *testing.T, address string) string {
	t.Helper()
	response, err := http.Get(address)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(text)
}

func TestAuthorityThatCannotBeRead(t *testing.T) {
	t.Parallel()
	_, _, err := runCommand(t.Context(), "--servers=https://localhost:1", "--servers-ca-file="+filepath.Join(t.TempDir(), "absent"))
	require.ErrorContains(t, err, "--servers-ca-file: ")
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY"}), 0o600))
	_, _, err = runCommand(t.Context(), "--servers=https://localhost:1", "--servers-ca-file="+file)
	require.ErrorContains(t, err, "has no certificate")
}
