//go:build system

package flow

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.dev/services/nodepool-ingress/internal/config"
)

// proxy is between the program and the API server. It counts writes, and can cut the connection at one of them, as a crash does.
type proxy struct {
	kubeconfig string

	mu     sync.Mutex
	writes []string
	at     int  // the number of the write at which the program crashes; 0: never
	before bool // the write is lost; otherwise only its answer is
	dead   bool
	crash  chan struct{}
}

func (r *rig) proxy() *proxy {
	r.t.Helper()
	cfg := r.cluster.RESTConfig()
	target, err := url.Parse(cfg.Host)
	require.NoError(r.t, err)
	transport, err := rest.TransportFor(cfg)
	require.NoError(r.t, err)
	p := &proxy{crash: make(chan struct{})}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport, forward.FlushInterval = transport, -1
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		lost, dead := p.count(req)
		if dead {
			http.Error(w, "crashed", http.StatusServiceUnavailable)
			return
		}
		if lost {
			forward.ServeHTTP(httptest.NewRecorder(), req)
			http.Error(w, "crashed", http.StatusServiceUnavailable)
			return
		}
		forward.ServeHTTP(w, req)
	}))
	r.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	p.kubeconfig = write(r.t, server.URL)
	return p
}

// count counts a request. lost: execute it, and lose the answer. dead: do not execute it.
func (p *proxy) count(req *http.Request) (lost, dead bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if req.Method == http.MethodGet || p.dead {
		return false, p.dead
	}
	p.writes = append(p.writes, req.Method+" "+req.URL.Path)
	if len(p.writes) != p.at {
		return false, false
	}
	p.dead = true
	close(p.crash)
	return !p.before, p.before
}

func write(t testing.TB, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	cfg.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	cfg.CurrentContext = "c"
	text, err := clientcmd.Write(*cfg)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// through makes the program use the proxy.
func through(p *proxy) func(*config.Config) {
	return func(c *config.Config) { c.Kube.Kubeconfig = p.kubeconfig }
}

// since returns the writes after the first n.
func (p *proxy) since(n int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.writes[n:]...)
}
