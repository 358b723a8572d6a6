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

// socketName is the file name of the control socket in the cluster directory.
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
	// ActionKill sends SIGKILL. A component restarts automatically with its data; a node stays down until ActionRestart.
	ActionKill = "kill"
	// ActionStop stops a component with SIGTERM; it stays down until ActionStart.
	ActionStop = "stop"
	// ActionStart starts a stopped component.
	ActionStart = "start"
	// ActionRestart stops and starts a component. For a node, it is a reboot: all its processes are lost. A cut stays.
	ActionRestart = "restart"
	// ActionPause suspends all processes of a component or node.
	ActionPause = "pause"
	// ActionResume resumes a paused component or node.
	ActionResume = "resume"
	// ActionCut drops all packets between a node, including its pods, and the rest of the cluster. It has a Direction.
	ActionCut = "cut"
	// ActionHeal reverts ActionCut.
	ActionHeal = "heal"
)

// Direction selects the packets that a cut drops.
type Direction string

// Directions of a cut, from the perspective of the node.
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
	// NoLimits is the reason why limits of containers are not enforced, empty if they are.
	NoLimits string `json:"noLimits,omitempty"`
}

// ComponentStatus is the state of one control-plane process.
type ComponentStatus struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Restarts int    `json:"restarts"`
}

// NodeStatus is the state of one node.
type NodeStatus struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`
	PodCIDR string    `json:"podCIDR"`
	State   string    `json:"state"`
	Cut     Direction `json:"cut"`
	Boots   int       `json:"boots"`
	// ServiceProxy is ProxyKube or ProxyUserspace.
	ServiceProxy string `json:"serviceProxy"`
}

// Client controls one running cluster.
type Client struct {
	dir  string
	http *http.Client
}

// NewClient returns a client for the cluster with the directory dir.
func NewClient(dir string) *Client {
	c := &Client{dir: dir}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connectSocket(ctx) },
		DisableKeepAlives: true,
	}}
	return c
}

// Listen opens the control socket of the cluster in dir.
func Listen(dir string) (net.Listener, error) {
	_ = os.Remove(filepath.Join(dir, socketName))
	var l net.Listener
	err := withShortPath(dir, func(path string) (err error) {
		l, err = net.Listen("unix", path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	// On Close, the listener would try to remove the short path, which is no longer valid. Stopping the cluster removes the
	// socket.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l, nil
}

// withShortPath calls f with a path of the socket in dir that fits into a socket address (108 bytes), regardless of the
// length of dir.
func withShortPath(dir string, f func(path string) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketName))
}

func (c *Client) connectSocket(ctx context.Context) (net.Conn, error) {
	var conn net.Conn
	err := withShortPath(c.dir, func(path string) (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster in %s: %w", c.dir, errors.Unwrap(err))
	}
	return conn, nil
}

// Status returns the state of the cluster.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	var s Status
	if err := c.callControl(ctx, http.MethodGet, "/v1/status", nil, &s); err != nil {
		return nil, fmt.Errorf("get status: %w", err)
	}
	return &s, nil
}

// Component runs one of the actions kill, stop, start, restart, pause and resume. It returns after the action is done, except
// for kill, and restart of a dead process. start and restart do not wait until the component is ready.
func (c *Client) Component(ctx context.Context, name, action string) error {
	if err := c.callControl(ctx, http.MethodPost, "/v1/components/"+url.PathEscape(name)+"/"+action, nil, nil); err != nil {
		return fmt.Errorf("%s %s: %w", action, name, err)
	}
	return nil
}

// Node runs one of the actions kill, restart, pause, resume and heal.
func (c *Client) Node(ctx context.Context, name, action string) error {
	if err := c.callControl(ctx, http.MethodPost, "/v1/nodes/"+url.PathEscape(name)+"/"+action, nil, nil); err != nil {
		return fmt.Errorf("%s %s: %w", action, name, err)
	}
	return nil
}

// Cut silently drops the packets in one direction or in both, until the node is healed or restarted.
func (c *Client) Cut(ctx context.Context, name string, d Direction) error {
	path := "/v1/nodes/" + url.PathEscape(name) + "/" + ActionCut + "?direction=" + url.QueryEscape(string(d))
	if err := c.callControl(ctx, http.MethodPost, path, nil, nil); err != nil {
		return fmt.Errorf("cut %s: %w", name, err)
	}
	return nil
}

// snapshotRequest contains the path of a snapshot.
type snapshotRequest struct {
	File string `json:"file"`
}

// Snapshot writes a consistent snapshot of etcd to file while the cluster is running.
func (c *Client) Snapshot(ctx context.Context, file string) error {
	return c.callEtcd(ctx, "snapshot", file)
}

// Restore restores etcd from a snapshot: it stops the API server and etcd, replaces the data, and starts both again. Revisions
// continue from the snapshot, so they decrease for existing watchers. Restore returns when the API is ready.
func (c *Client) Restore(ctx context.Context, file string) error {
	return c.callEtcd(ctx, "restore", file)
}

func (c *Client) callEtcd(ctx context.Context, verb, file string) error {
	abs, err := filepath.Abs(file)
	if err == nil {
		err = c.callControl(ctx, http.MethodPost, "/v1/etcd/"+verb, snapshotRequest{File: abs}, nil)
	}
	if err != nil {
		return fmt.Errorf("etcd %s %s: %w", verb, file, err)
	}
	return nil
}

func (c *Client) callControl(ctx context.Context, method, path string, in, out any) error {
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
		if uerr := new(url.Error); errors.As(err, &uerr) { // omit the URL: all requests use the same socket
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

// Dial connects to an address inside the cluster: service.namespace:port (the port is a number or a name; Dial uses one of the
// ready endpoints), node-name:port or ip:port. The connection originates from the network of the control plane.
func (c *Client) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := c.connectSocket(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	r, err := openTunnel(conn, addr)
	if !stop() { // ctx is canceled: the deadline has broken the connection, or will
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("dial %s in the cluster: %w", addr, err)
	}
	return &tunnel{Conn: conn, r: r}, nil
}

// openTunnel requests a connection to addr by an HTTP upgrade: CONNECT does not support named ports.
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
	defer resp.Body.Close() // the response of an upgrade has no body
	if resp.StatusCode != http.StatusSwitchingProtocols {
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // a partial message is sufficient
		return nil, errors.New(strings.TrimSpace(string(raw)))
	}
	return r, nil
}

// tunnel first reads the data that was buffered with the HTTP response.
type tunnel struct {
	net.Conn
	r *bufio.Reader
}

func (t *tunnel) Read(p []byte) (int, error) { return t.r.Read(p) }

// CloseWrite closes the write side of the connection.
func (t *tunnel) CloseWrite() error { return t.Conn.(*net.UnixConn).CloseWrite() }
