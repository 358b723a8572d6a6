//go:build system

package clusterapi

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serve serves h on the control socket in dir until the test ends.
func serve(t *testing.T, dir string, h http.HandlerFunc) {
	t.Helper()
	l, err := Listen(dir)
	require.NoError(t, err)
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
}

func TestClient_SendsWhatTheClusterIsToDo(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "snapshot.db")
	tests := []struct {
		name     string
		do       func(ctx context.Context, c *Client) error
		want     string
		wantBody string
	}{
		{
			name: "component",
			do:   func(ctx context.Context, c *Client) error { return c.Component(ctx, APIServer, ActionPause) },
			want: "POST /v1/components/kube-apiserver/pause",
		},
		{
			name: "node",
			do:   func(ctx context.Context, c *Client) error { return c.Node(ctx, "node-2", ActionRestart) },
			want: "POST /v1/nodes/node-2/restart",
		},
		{
			name: "cut",
			do:   func(ctx context.Context, c *Client) error { return c.Cut(ctx, "node-2", CutInbound) },
			want: "POST /v1/nodes/node-2/cut?direction=inbound",
		},
		{
			name: "slashes in a name are escaped",
			do:   func(ctx context.Context, c *Client) error { return c.Node(ctx, "../status", ActionKill) },
			want: "POST /v1/nodes/..%2Fstatus/kill",
		},
		{
			name:     "snapshot",
			do:       func(ctx context.Context, c *Client) error { return c.Snapshot(ctx, file) },
			want:     "POST /v1/etcd/snapshot",
			wantBody: `{"file":"` + file + `"}`,
		},
		{
			name:     "restore",
			do:       func(ctx context.Context, c *Client) error { return c.Restore(ctx, file) },
			want:     "POST /v1/etcd/restore",
			wantBody: `{"file":"` + file + `"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var got, body string
			serve(t, dir, func(_ http.ResponseWriter, r *http.Request) {
				raw, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				got, body = r.Method+" "+r.RequestURI, string(raw)
			})
			require.NoError(t, tt.do(t.Context(), NewClient(dir)))
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.wantBody, body)
		})
	}
}

func TestClient_FileOfASnapshotIsTheCallers(t *testing.T) {
	dir, here := t.TempDir(), t.TempDir()
	t.Chdir(here)
	var got snapshotRequest
	serve(t, dir, func(_ http.ResponseWriter, r *http.Request) {
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&got))
	})
	require.NoError(t, NewClient(dir).Snapshot(t.Context(), "snapshot.db"))
	assert.Equal(t, filepath.Join(here, "snapshot.db"), got.File, "the cluster has a different working directory")
}

func TestStatus_IsWhatTheClusterSays(t *testing.T) {
	t.Parallel()
	want := Status{
		Ready:      true,
		Components: []ComponentStatus{{Name: Etcd, State: StateRunning, Restarts: 2}},
		Nodes:      []NodeStatus{{Name: "node-1", Address: "10.200.0.11", PodCIDR: "10.244.1.0/24", State: StatePaused, Cut: CutBoth, Boots: 1}},
	}
	dir := t.TempDir()
	serve(t, dir, func(w http.ResponseWriter, _ *http.Request) { assert.NoError(t, json.NewEncoder(w).Encode(want)) })
	got, err := NewClient(dir).Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, *got)
}

func TestClient_ErrorIsTheClustersOwnLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve(t, dir, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not found", http.StatusNotFound)
	})
	c := NewClient(dir)
	_, err := c.Status(t.Context())
	require.EqualError(t, err, "get status: not found")
	require.EqualError(t, c.Component(t.Context(), "etdc", ActionKill), "kill etdc: not found")
	require.EqualError(t, c.Node(t.Context(), "node-9", ActionHeal), "heal node-9: not found")
	require.EqualError(t, c.Cut(t.Context(), "node-9", CutBoth), "cut node-9: not found")
	require.EqualError(t, c.Restore(t.Context(), "/x.db"), "etcd restore /x.db: not found")
	_, err = c.Dial(t.Context(), "web.default:http")
	require.EqualError(t, err, "dial web.default:http in the cluster: not found")
}

func TestClient_WithoutAClusterSaysWhereItLooked(t *testing.T) {
	t.Parallel()
	empty, left := t.TempDir(), t.TempDir()
	l, err := Listen(left)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.FileExists(t, filepath.Join(left, socketName), "the socket of a killed cluster")
	tests := []struct{ name, dir, want string }{
		{name: "no socket", dir: empty, want: "connect to the cluster in " + empty + ": connect: no such file or directory"},
		{name: "no listener", dir: left, want: "connect to the cluster in " + left + ": connect: connection refused"},
		{name: "no directory", dir: empty + "/x", want: "connect to the cluster in " + empty + "/x: no such file or directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := NewClient(tt.dir).Status(t.Context())
			require.EqualError(t, err, "get status: "+tt.want)
			_, err = NewClient(tt.dir).Dial(t.Context(), "web.default:80")
			require.EqualError(t, err, tt.want)
		})
	}
}

func TestListen_TakesOverFromAClusterThatWasKilledHoweverDeepItsFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 50)) // the limit of a socket address is 108 bytes
	require.NoError(t, os.MkdirAll(dir, 0o755))
	l, err := Listen(dir)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	serve(t, dir, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	_, err = NewClient(dir).Status(t.Context())
	require.NoError(t, err)
}

func TestListen_InAFolderThatIsNotThere(t *testing.T) {
	t.Parallel()
	_, err := Listen(filepath.Join(t.TempDir(), "x"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "open control socket: ")
}

// upgrade hijacks the connection and responds like the cluster; it sends first in the same packet as the response.
func upgrade(w http.ResponseWriter, first string) (net.Conn, error) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"+first)
	return conn, err
}

func TestDial_CarriesBytesBothWaysUntilEachSideIsDone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var target string
	serve(t, dir, func(w http.ResponseWriter, r *http.Request) {
		target = r.URL.Query().Get("target")
		conn, err := upgrade(w, "banner ")
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		_, err = io.Copy(conn, conn) // ends with CloseWrite
		assert.NoError(t, err)
	})
	conn, err := NewClient(dir).Dial(t.Context(), "web.default:http")
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "request")
	require.NoError(t, err)
	require.NoError(t, conn.(interface{ CloseWrite() error }).CloseWrite())
	raw, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "banner request", string(raw))
	assert.Equal(t, "web.default:http", target)
}

func TestDial_EndsWithItsContextButTheConnectionDoesNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	silent := make(chan struct{})
	serve(t, dir, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("target") == "silent" {
			close(silent)
			<-r.Context().Done()
			return
		}
		conn, err := upgrade(w, "")
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		_, err = io.Copy(conn, conn)
		assert.NoError(t, err)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-silent
		cancel()
	}()
	_, err := NewClient(dir).Dial(ctx, "silent")
	require.ErrorIs(t, err, context.Canceled)

	ctx, cancel = context.WithCancel(t.Context())
	conn, err := NewClient(dir).Dial(ctx, "echo")
	require.NoError(t, err)
	defer conn.Close()
	cancel()
	_, err = io.WriteString(conn, "hello")
	require.NoError(t, err)
	buf := make([]byte, 5)
	_, err = io.ReadFull(conn, buf)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(buf))
}
