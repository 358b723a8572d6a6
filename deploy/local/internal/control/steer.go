package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"fairlead.dev/deploy/local/internal/components"
	"fairlead.dev/deploy/local/internal/supervise"
	"fairlead.dev/deploy/local/internal/svcproxy"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// serveSteering opens the control socket; see clusterapi.Client for its requests.
func (c *cluster) serveSteering(ctx context.Context) error {
	ln, err := clusterapi.Listen(c.Config.Dir)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", c.getStatus)
	mux.HandleFunc("POST /v1/components/{name}/{action}", answer(c.postComponent))
	mux.HandleFunc("POST /v1/nodes/{name}/{action}", answer(c.postNode))
	mux.HandleFunc("POST /v1/etcd/snapshot", answer(c.postSnapshot))
	mux.HandleFunc("POST /v1/etcd/restore", answer(c.postRestore))
	mux.HandleFunc("GET /v1/dial", c.dial)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() { _ = server.Serve(ln) }() // ends with the process
	return nil
}

// answer converts an error to a response with the message as its body.
func answer(f func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := f(r); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func (c *cluster) getStatus(w http.ResponseWriter, _ *http.Request) {
	s := clusterapi.Status{NoLimits: c.NoLimits}
	select {
	case <-c.ready:
		s.Ready = true
	default:
	}
	for _, p := range c.processes {
		s.Components = append(s.Components, p.Status())
	}
	for _, n := range c.nodes {
		s.Nodes = append(s.Nodes, n.status())
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s) // an error means that the caller has disconnected
}

// steady refuses outages while the cluster starts, because they would end it.
func (c *cluster) steady() error {
	select {
	case <-c.ready:
		return nil
	default:
		return fmt.Errorf("the cluster is still starting")
	}
}

func (c *cluster) postComponent(r *http.Request) error {
	name, action := r.PathValue("name"), r.PathValue("action")
	p := c.process(name)
	if p == nil {
		return fmt.Errorf("unknown component %q", name)
	}
	if err := c.steady(); err != nil {
		return err
	}
	switch action {
	case clusterapi.ActionKill:
		return p.Kill()
	case clusterapi.ActionPause:
		return p.Pause()
	case clusterapi.ActionResume:
		return p.Resume()
	case clusterapi.ActionStop:
		return p.Stop(r.Context())
	case clusterapi.ActionStart:
		return p.Start()
	case clusterapi.ActionRestart:
		return restart(r.Context(), p)
	}
	return fmt.Errorf("unknown action %q of a component: give kill, stop, start, restart, pause or resume", action)
}

func restart(ctx context.Context, p *supervise.Process) error {
	if err := p.Stop(ctx); err != nil {
		return err
	}
	return p.Start()
}

func (c *cluster) postNode(r *http.Request) error {
	n := c.node(r.PathValue("name"))
	if n == nil {
		return fmt.Errorf("unknown node %q", r.PathValue("name"))
	}
	if err := c.steady(); err != nil {
		return err
	}
	switch action := r.PathValue("action"); action {
	case clusterapi.ActionKill:
		n.kill()
		return nil
	case clusterapi.ActionRestart:
		return n.restart()
	case clusterapi.ActionPause:
		return n.pause()
	case clusterapi.ActionResume:
		return n.resume()
	case clusterapi.ActionCut:
		return n.setCut(clusterapi.Direction(r.URL.Query().Get("direction")))
	case clusterapi.ActionHeal:
		return n.setCut(clusterapi.CutNone)
	default:
		return fmt.Errorf("unknown action %q of a node: give kill, restart, pause, resume, cut or heal", action)
	}
}

func (c *cluster) node(name string) *node {
	for _, n := range c.nodes {
		if n.spec.Name == name {
			return n
		}
	}
	return nil
}

type etcdRequest struct {
	File string `json:"file"`
}

func (c *cluster) postSnapshot(r *http.Request) error {
	var q etcdRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	return c.localkube(r.Context(), components.Snapshot(q.File))
}

// postRestore replaces etcd's data while nothing runs that caches it, except for nodes.
func (c *cluster) postRestore(r *http.Request) error {
	var q etcdRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	if err := c.steady(); err != nil {
		return err
	}
	fresh := components.EtcdDir(c.Config.Dir) + ".restored"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := c.localkube(r.Context(), components.Restore(q.File, fresh)); err != nil {
		return err
	}
	for i := len(c.processes) - 1; i >= 0; i-- {
		if err := c.processes[i].Stop(r.Context()); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(components.EtcdDir(c.Config.Dir)); err != nil {
		return err
	}
	if err := os.Rename(fresh, components.EtcdDir(c.Config.Dir)); err != nil {
		return err
	}
	for _, p := range c.processes {
		if err := p.Start(); err != nil {
			return err
		}
	}
	return c.waitAPI(r.Context())
}

// localkube runs one of our own sub-commands and waits for its end.
func (c *cluster) localkube(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, c.exe, args...)
	cmd.Env = childEnv()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// dial connects the caller to an address inside the cluster.
func (c *cluster) dial(w http.ResponseWriter, r *http.Request) {
	addrs, err := c.addresses(r.URL.Query().Get("target"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	backend, err := svcproxy.DialOne(r.Context(), addrs)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		backend.Close()
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"); err != nil {
		conn.Close()
		backend.Close()
		return
	}
	svcproxy.Splice(&buffered{Conn: conn, r: buf.Reader}, backend)
}

// buffered first reads the data that followed the request.
type buffered struct {
	net.Conn
	r io.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// CloseWrite forwards a half-close.
func (b *buffered) CloseWrite() error { return b.Conn.(*net.UnixConn).CloseWrite() }
