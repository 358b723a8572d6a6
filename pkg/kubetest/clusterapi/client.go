package clusterapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// socketName is the steering socket's name in the cluster's folder.
const socketName = "localkube.sock"

// States of components and nodes.
const (
	StateRunning  = "running"
	StatePaused   = "paused"
	StateStopped  = "stopped"
	StateStarting = "starting"
)

// Actions on components and nodes.
const (
	// ActionKill ends it at once. A component comes back on its data by itself, a node stays dead until it is restarted.
	ActionKill = "kill"
	// ActionStop ends a component with SIGTERM; it stays down until it is started.
	ActionStop = "stop"
	// ActionStart starts a stopped component.
	ActionStart = "start"
	// ActionRestart stops and starts a component; for a node it is a reboot: whatever ran on it is gone.
	ActionRestart = "restart"
	// ActionPause stops all its processes without ending them.
	ActionPause = "pause"
	// ActionResume lets paused ones go on.
	ActionResume = "resume"
	// ActionCut loses every packet between a node, its pods included, and the rest. It takes a Direction.
	ActionCut = "cut"
	// ActionHeal ends a cut.
	ActionHeal = "heal"
)

// Direction says which packets a cut loses.
type Direction string

// Directions of a cut, seen from the node.
const (
	CutBoth     Direction = "both"
	CutInbound  Direction = "inbound"
	CutOutbound Direction = "outbound"
	CutNone     Direction = "none"
)

// Status is the state of a running cluster.
type Status struct {
	Ready      bool              `json:"ready"`
	Components []ComponentStatus `json:"components"`
	Nodes      []NodeStatus      `json:"nodes,omitempty"`
}

// ComponentStatus is the state of one control-plane process.
type ComponentStatus struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Restarts int    `json:"restarts"`
}

// NodeStatus is the state of one machine.
type NodeStatus struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`
	PodCIDR string    `json:"podCIDR"`
	State   string    `json:"state"`
	Cut     Direction `json:"cut"`
	Boots   int       `json:"boots"`
}

// Client steers one running cluster.
type Client struct {
	dir  string
	http *http.Client
}

// NewClient returns a client for the cluster whose state is in dir.
func NewClient(dir string) *Client {
	c := &Client{dir: dir}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connect(ctx) },
		DisableKeepAlives: true,
	}}
	return c
}

// Listen opens the steering socket of the cluster in dir.
func Listen(dir string) (net.Listener, error) {
	_ = os.Remove(filepath.Join(dir, socketName))
	var l net.Listener
	err := withShortPath(dir, func(path string) (err error) {
		l, err = net.Listen("unix", path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open steering socket: %w", err)
	}
	// The listener would remove the short path on Close; the folder's owner removes the socket.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l, nil
}

// withShortPath calls f with a name of dir's socket that fits a socket address (108 bytes) however deep dir is.
func withShortPath(dir string, f func(path string) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketName))
}

func (c *Client) connect(ctx context.Context) (net.Conn, error) {
	var conn net.Conn
	err := withShortPath(c.dir, func(path string) (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("no cluster answers in %s: %w", c.dir, errors.Unwrap(err))
	}
	return conn, nil
}

// Status asks how the cluster is.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	var s Status
	if err := c.call(ctx, http.MethodGet, "/v1/status", nil, &s); err != nil {
		return nil, fmt.Errorf("ask status: %w", err)
	}
	return &s, nil
}

// Component does one of the actions kill, stop, start, restart, pause and resume. All but kill and restart of a dead
// process return when it is done; start and restart do not wait for the component to answer.
func (c *Client) Component(ctx context.Context, name, action string) error {
	if err := c.call(ctx, http.MethodPost, "/v1/components/"+url.PathEscape(name)+"/"+action, nil, nil); err != nil {
		return fmt.Errorf("%s %s: %w", action, name, err)
	}
	return nil
}

// Node does one of the actions kill, restart, pause, resume and heal.
func (c *Client) Node(ctx context.Context, name, action string) error {
	if err := c.call(ctx, http.MethodPost, "/v1/nodes/"+url.PathEscape(name)+"/"+action, nil, nil); err != nil {
		return fmt.Errorf("%s %s: %w", action, name, err)
	}
	return nil
}

// Cut loses the packets of one direction or of both, silently, until the node is healed or restarted.
func (c *Client) Cut(ctx context.Context, name string, d Direction) error {
	path := "/v1/nodes/" + url.PathEscape(name) + "/" + ActionCut + "?direction=" + url.QueryEscape(string(d))
	if err := c.call(ctx, http.MethodPost, path, nil, nil); err != nil {
		return fmt.Errorf("cut %s: %w", name, err)
	}
	return nil
}

// snapshotRequest names the file of a snapshot.
type snapshotRequest struct {
	File string `json:"file"`
}

// Snapshot writes a consistent snapshot of etcd to file, while the cluster runs.
func (c *Client) Snapshot(ctx context.Context, file string) error {
	return c.etcd(ctx, "snapshot", file)
}

// Restore puts etcd back to a snapshot: the API server and etcd are stopped, the data is replaced, and both start again.
// Revisions go on from the snapshot's, so watchers must notice that time went back. It returns when the API is ready.
func (c *Client) Restore(ctx context.Context, file string) error {
	return c.etcd(ctx, "restore", file)
}

func (c *Client) etcd(ctx context.Context, verb, file string) error {
	abs, err := filepath.Abs(file)
	if err == nil {
		err = c.call(ctx, http.MethodPost, "/v1/etcd/"+verb, snapshotRequest{File: abs}, nil)
	}
	if err != nil {
		return fmt.Errorf("etcd %s %s: %w", verb, file, err)
	}
	return nil
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://localkube"+path, body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if uerr := new(url.Error); errors.As(err, &uerr) { // the URL says nothing: everything goes to one socket
			err = uerr.Err
		}
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return errors.New(strings.TrimSpace(string(raw)))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// Dial connects to an address inside the cluster: service.namespace:port (port by number or name; one of its ready
// endpoints is taken), node-name:port or ip:port. It sees the cluster as the control plane does.
func (c *Client) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	r, err := openTunnel(conn, addr)
	if !stop() { // the connection has failed, or will, for the context's sake
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("dial %s in the cluster: %w", addr, err)
	}
	return &tunnel{Conn: conn, r: r}, nil
}

// openTunnel asks for a connection to addr by an HTTP upgrade: CONNECT would not take a port by name.
func openTunnel(conn net.Conn, addr string) (*bufio.Reader, error) {
	req := "GET /v1/dial?target=" + url.QueryEscape(addr) + " HTTP/1.1\r\nHost: localkube\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
	if _, err := io.WriteString(conn, req); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // an upgrade has none
	if resp.StatusCode != http.StatusSwitchingProtocols {
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // what came is enough
		return nil, errors.New(strings.TrimSpace(string(raw)))
	}
	return r, nil
}

// tunnel reads first what came behind the answer.
type tunnel struct {
	net.Conn
	r *bufio.Reader
}

func (t *tunnel) Read(p []byte) (int, error) { return t.r.Read(p) }

// CloseWrite tells the other side that nothing more will come.
func (t *tunnel) CloseWrite() error { return t.Conn.(*net.UnixConn).CloseWrite() }
