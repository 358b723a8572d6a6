//go:build system

package hermetic

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// service is a load balancer that knows which pickers are ready, as kube-proxy does: it decides for each new connection.
type service struct {
	mu    sync.Mutex
	ready []string // addresses of proxy listeners
	next  int
}

func (s *service) set(ready ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = slices.Clone(ready)
}

func (s *service) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.mu.Lock()
	s.next++
	address := s.ready[s.next%len(s.ready)]
	s.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// streamTokens answers with a stream of 20 events, of 5 ms each.
func streamTokens(w http.ResponseWriter, q *http.Request) {
	_, _ = io.Copy(io.Discard, q.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range 20 {
		_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(5 * time.Millisecond):
		case <-q.Context().Done():
			return
		}
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// TestProxy_RollsWithoutFailures replaces all model servers and all pickers, one after the other, while clients send requests
// without a pause and without retries. Servers and pickers end as Kubernetes ends them: unready first, then with the time to finish.
func TestProxy_RollsWithoutFailures(t *testing.T) {
	t.Parallel()
	one := startProxy(t, world{mode: byFile, pages: []string{pageOf(0, 0, 0, ""), pageOf(0, 0, 0, "")}, flags: []string{"--drain-delay=3s"}}, streamTokens)
	two := one.replica()
	two.await(func() bool { return two.get(two.health(), "/readyz") == "ok\n" }, "ready")
	listener := func(r *rig) string { return r.address("proxy-bind-address") }
	balancer := &service{}
	balancer.set(listener(one), listener(two))

	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var served atomic.Int64
	for range 8 {
		transport := &http.Transport{DialContext: balancer.dial}
		clients.Go(func() {
			defer transport.CloseIdleConnections()
			for ctx.Err() == nil {
				text, err := complete(&http.Client{Transport: transport})
				if err != nil || !strings.HasSuffix(text, "[DONE]\n\n") {
					t.Errorf("a request failed: %v %q", err, text)
				}
				served.Add(1)
			}
		})
	}
	pickers := []*rig{one, two}
	for range 2 { // the model servers
		rollServer(t, pickers)
	}
	for i, old := range pickers { // the pickers
		pickers[i] = one.replica()
		pickers[i].servers = one.servers
		pickers[i].await(func() bool { return pickers[i].get(pickers[i].health(), "/readyz") == "ok\n" }, "ready")
		pickers[i].scraped()
		balancer.set(listener(pickers[0]), listener(pickers[1]))
		old.stop()
		<-old.stopped
	}
	stop()
	clients.Wait()
	assert.Greater(t, served.Load(), int64(50))
	for _, r := range pickers {
		assert.Positive(t, r.metrics().sum("fairlead_picker_proxy_attempts_total", "result", "answered"))
		r.settle()
	}
}

// rollServer replaces the oldest model server.
func rollServer(t *testing.T, pickers []*rig) {
	t.Helper()
	r := pickers[0]
	know := func(n int) {
		for _, p := range pickers {
			p.await(func() bool { return p.metrics().sum("llm_d_epp_ready_endpoints") == float64(n) }, "%d servers", n)
		}
	}
	l, err := net.Listen("tcp", net.JoinHostPort(newHost().String(), "0"))
	require.NoError(t, err)
	fresh := serveModel(t, l, pageOf(0, 0, 0, ""))
	fresh.serve(streamTokens)
	old := r.servers[0]
	r.servers = append(r.servers, fresh)
	r.writeFile(nil)
	know(len(r.servers))
	r.servers = r.servers[1:]
	r.writeFile(nil)
	know(len(r.servers))
	old.stop() // it waits for its requests
	pickers[1].servers = r.servers
}

// complete sends one request, and returns its response.
func complete(c *http.Client) (string, error) {
	response, err := c.Post("http://models/v1/completions", "application/json", strings.NewReader(ofModel))
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return string(text), fmt.Errorf("status %d", response.StatusCode)
	}
	return string(text), err
}
