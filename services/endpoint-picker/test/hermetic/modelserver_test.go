//go:build system

package hermetic

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// modelServer is as much of a model server as the picker sees: its metrics page, and answers for the proxy listener.
type modelServer struct {
	address netip.AddrPort
	stop    func() // ends the server when its requests have ended

	mu    sync.Mutex
	page  string
	pages int           // that were asked for
	count int           // of tokens at /tokenize, whatever the text; 0 if it has no such path
	held  chan struct{} // each page waits to take something from it; nil if they do not

	server *httptest.Server
	answer http.HandlerFunc // to requests that are not for the page; nil if there are none
}

// pageOf is a page of vLLM.
func pageOf(waiting, running int, kvUsage float64, adapters string) string {
	page := fmt.Sprintf("vllm:num_requests_waiting{model_name=\"m\"} %d\nvllm:num_requests_running{model_name=\"m\"} %d\nvllm:kv_cache_usage_perc{model_name=\"m\"} %g\n",
		waiting, running, kvUsage)
	if adapters != "" {
		page += fmt.Sprintf("vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=%q,waiting_lora_adapters=\"\"} 1.7e9\n", adapters)
	}
	return page
}

func (m *modelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	page, count, held, answer := m.page, m.count, m.held, m.answer
	if r.URL.Path == "/tokenize" {
		m.mu.Unlock()
		tokenize(w, count)
		return
	}
	if r.URL.Path != "/metrics" && answer != nil {
		m.mu.Unlock()
		answer(w, r)
		return
	}
	m.pages++
	m.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	_, _ = w.Write([]byte(page))
}

// tokenize answers like vLLM, or like a server that does not count tokens.
func tokenize(w http.ResponseWriter, count int) {
	if count == 0 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = fmt.Fprintf(w, `{"count":%d,"max_model_len":40960,"tokens":[],"token_strs":null}`, count)
}

// tokens sets the tokens that the server counts in any text.
func (m *modelServer) tokens(count int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count = count
}

func (m *modelServer) show(page string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.page = page
}

// serve sets the answer to requests.
func (m *modelServer) serve(answer http.HandlerFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = answer
}

// hold keeps pages back, from the next one on, and returns how many were asked for before. next lets one of them go, and waits for it;
// release lets all go.
func (m *modelServer) hold() (before int, next, release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := make(chan struct{})
	m.held = held
	return m.pages, func() { held <- struct{}{} }, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.held = nil
		close(held)
	}
}

// asked returns how many pages were asked for.
func (m *modelServer) asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pages
}

// hosts numbers the addresses of this process, so that two servers of one port never meet.
var hosts atomic.Uint32

func newHost() netip.Addr {
	n := hosts.Add(1)
	return netip.AddrFrom4([4]byte{127, byte(1 + os.Getpid()%250), byte(n / 250), byte(1 + n%250)})
}

// newModelServers starts servers that share one port, as the pods of a pool do, each with a page.
func newModelServers(t testing.TB, pages ...string) []*modelServer {
	t.Helper()
	for {
		if servers, ok := listenAlike(t, pages); ok {
			return servers
		}
	}
}

// listenAlike reports false if the port that the first server was given is not free at another address.
func listenAlike(t testing.TB, pages []string) ([]*modelServer, bool) {
	t.Helper()
	var listeners []net.Listener
	var port uint16
	for range pages {
		l, err := net.Listen("tcp", netip.AddrPortFrom(newHost(), port).String())
		if err != nil {
			for _, open := range listeners {
				require.NoError(t, open.Close())
			}
			return nil, false
		}
		listeners = append(listeners, l)
		port = addressOf(l).Port()
	}
	var servers []*modelServer
	for i, l := range listeners {
		servers = append(servers, serveModel(t, l, pages[i]))
	}
	return servers, true
}

func addressOf(l net.Listener) netip.AddrPort { return l.Addr().(*net.TCPAddr).AddrPort() }

func serveModel(t testing.TB, l net.Listener, page string) *modelServer {
	m := &modelServer{address: addressOf(l), page: page}
	server := httptest.NewUnstartedServer(m)
	require.NoError(t, server.Listener.Close())
	server.Listener = l
	server.Start()
	m.server = server
	m.stop = server.Close
	t.Cleanup(server.Close)
	return m
}

// listen6 listens at IPv6's own address.
func listen6(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "[::1]:0")
	require.NoError(t, err)
	return l
}
