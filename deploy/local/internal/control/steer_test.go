package control

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/local/internal/components"
	"fairlead.dev/deploy/local/internal/supervise"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// steer opens the steering socket and returns its client.
func steer(t *testing.T, c *cluster) *clusterapi.Client {
	t.Helper()
	require.NoError(t, c.serveSteering(t.Context()))
	return clusterapi.NewClient(c.Config.Dir)
}

// connect connects to the steering socket itself.
func connect(t *testing.T, c *cluster) net.Conn {
	t.Helper()
	dir, err := os.Open(c.Config.Dir) // a name that is short enough for a socket
	require.NoError(t, err)
	defer dir.Close()
	conn, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/localkube.sock", dir.Fd()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// request asks without the client, which could not ask for nonsense.
func request(t *testing.T, c *cluster, method, path, body string) (int, string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return connect(t, c), nil }}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localkube"+path, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, strings.TrimSpace(string(raw))
}

func TestSteering_RefusesNonsense(t *testing.T) {
	t.Parallel()
	c, _ := newCluster(t, []clusterapi.Node{{Name: "node-1"}}, clusterapi.Etcd)
	close(c.ready)
	steer(t, c)
	tests := []struct {
		name, method, path, body string
		want                     int
		wantBody                 string
	}{
		{name: "an unknown component", method: "POST", path: "/v1/components/kubelet/kill", want: 409, wantBody: `unknown component "kubelet"`},
		{name: "an unknown component's unknown action", method: "POST", path: "/v1/components/node-1/melt", want: 409, wantBody: `unknown component "node-1"`},
		{name: "an action that components lack", method: "POST", path: "/v1/components/etcd/cut", want: 409,
			wantBody: `unknown action "cut" of a component: give kill, stop, start, restart, pause or resume`},
		{name: "an unknown node", method: "POST", path: "/v1/nodes/node-2/kill", want: 409, wantBody: `unknown node "node-2"`},
		{name: "an action that nodes lack", method: "POST", path: "/v1/nodes/node-1/stop", want: 409,
			wantBody: `unknown action "stop" of a node: give kill, restart, pause, resume, cut or heal`},
		{name: "an unknown direction", method: "POST", path: "/v1/nodes/node-1/cut?direction=up", want: 409,
			wantBody: `unknown direction "up": give both, inbound or outbound`},
		{name: "a cut without direction", method: "POST", path: "/v1/nodes/node-1/cut", want: 409,
			wantBody: `unknown direction "": give both, inbound or outbound`},
		{name: "an outage asked for by GET", method: "GET", path: "/v1/components/etcd/kill", want: 405, wantBody: "Method Not Allowed"},
		{name: "a node's outage asked for by GET", method: "GET", path: "/v1/nodes/node-1/kill", want: 405, wantBody: "Method Not Allowed"},
		{name: "a status that is written", method: "POST", path: "/v1/status", want: 405, wantBody: "Method Not Allowed"},
		{name: "an unknown path", method: "GET", path: "/v1/pods", want: 404, wantBody: "404 page not found"},
		{name: "a snapshot without a file", method: "POST", path: "/v1/etcd/snapshot", want: 409, wantBody: "read request: EOF"},
		{name: "a restore that is no JSON", method: "POST", path: "/v1/etcd/restore", body: `"`, want: 409, wantBody: "read request: unexpected EOF"},
		{name: "a target of nobody", method: "GET", path: "/v1/dial?target=nobody:80", want: 404, wantBody: `"nobody" names no address, node or service.namespace`},
		{name: "no target", method: "GET", path: "/v1/dial", want: 404, wantBody: `"" is not host:port`},
		{name: "a target that refuses", method: "GET", path: "/v1/dial?target=127.0.0.1:1", want: 502, wantBody: "dial tcp4 127.0.0.1:1: connect: connection refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, body := request(t, c, tt.method, tt.path, tt.body)
			assert.Equal(t, tt.want, status)
			assert.Equal(t, tt.wantBody, body)
		})
	}
}

func TestSteering_RefusesOutagesWhileTheClusterStarts(t *testing.T) {
	t.Parallel()
	c, _ := newCluster(t, []clusterapi.Node{{Name: "node-1"}}, clusterapi.Etcd)
	client := steer(t, c)
	still := "the cluster is still starting"
	require.ErrorContains(t, client.Component(t.Context(), clusterapi.Etcd, clusterapi.ActionKill), still)
	require.ErrorContains(t, client.Node(t.Context(), "node-1", clusterapi.ActionRestart), still)
	require.ErrorContains(t, client.Cut(t.Context(), "node-1", clusterapi.CutBoth), still)
	require.ErrorContains(t, client.Restore(t.Context(), "snapshot.db"), still)

	s, err := client.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, &clusterapi.Status{
		Components: []clusterapi.ComponentStatus{{Name: clusterapi.Etcd, State: clusterapi.StateStopped}},
		Nodes: []clusterapi.NodeStatus{{Name: "node-1", Address: "10.200.0.11", PodCIDR: "10.244.1.0/24", State: clusterapi.StateStopped,
			Cut: clusterapi.CutNone}},
	}, s)
	close(c.ready)
	s, err = client.Status(t.Context())
	require.NoError(t, err)
	assert.True(t, s.Ready)
}

func TestSteering_ComponentsDoAsTheyAreTold(t *testing.T) {
	t.Parallel()
	c, _ := newCluster(t, nil, clusterapi.Etcd, clusterapi.APIServer)
	startComponents(t, c)
	client := steer(t, c)
	// starts counts how often the second component came up.
	starts := func() int { return strings.Count(read(c.log(clusterapi.APIServer)), "up ") }
	steps := []struct {
		action, want string
		wantErr      string
		wantStarts   int
	}{
		{action: clusterapi.ActionPause, want: clusterapi.StatePaused, wantStarts: 1},
		{action: clusterapi.ActionResume, want: clusterapi.StateRunning, wantStarts: 1},
		{action: clusterapi.ActionStop, want: clusterapi.StateStopped, wantStarts: 1},
		{action: clusterapi.ActionKill, want: clusterapi.StateStopped, wantStarts: 1, wantErr: "kill kube-apiserver: kube-apiserver is stopped"},
		{action: clusterapi.ActionPause, want: clusterapi.StateStopped, wantStarts: 1, wantErr: "pause kube-apiserver: kube-apiserver is stopped"},
		{action: clusterapi.ActionStart, want: clusterapi.StateRunning, wantStarts: 2},
		{action: clusterapi.ActionRestart, want: clusterapi.StateRunning, wantStarts: 3},
	}
	for _, tt := range steps {
		err := client.Component(t.Context(), clusterapi.APIServer, tt.action)
		if tt.wantErr != "" {
			require.EqualError(t, err, tt.wantErr)
		} else {
			require.NoError(t, err, tt.action)
		}
		s, err := client.Status(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []clusterapi.ComponentStatus{{Name: clusterapi.Etcd, State: clusterapi.StateRunning},
			{Name: clusterapi.APIServer, State: tt.want}}, s.Components, tt.action)
		require.Eventually(t, func() bool { return starts() == tt.wantStarts }, kubetest.Patience, tick, tt.action)
	}
	require.NoError(t, client.Component(t.Context(), clusterapi.APIServer, clusterapi.ActionKill))
	require.Eventually(t, func() bool { return starts() == 4 }, kubetest.Patience, tick, "it comes back by itself")
	assert.Equal(t, 1, c.process(clusterapi.APIServer).Status().Restarts)
}

func TestSnapshot_IsWrittenWhereItIsWanted(t *testing.T) {
	t.Parallel()
	c, _ := newCluster(t, nil)
	client := steer(t, c)
	file := filepath.Join(t.TempDir(), "snapshot.db")
	require.NoError(t, client.Snapshot(t.Context(), file))
	assert.Equal(t, "good, of http://127.0.0.1:2379\n", read(file))
	err := client.Snapshot(t.Context(), filepath.Join(file, "below"))
	require.ErrorContains(t, err, "exit status ")
	require.ErrorContains(t, err, "irectory", "what the program said")
}

// restorable is a cluster whose etcd holds old data and runs beside an API server; file is a snapshot.
func restorable(t *testing.T, snapshot string) (c *cluster, client *clusterapi.Client, file string) {
	t.Helper()
	c, _ = newCluster(t, nil, clusterapi.Etcd, clusterapi.APIServer)
	c.client = clientOf(t, api(t, ready))
	require.NoError(t, os.Mkdir(components.EtcdDir(c.Config.Dir), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(components.EtcdDir(c.Config.Dir), "data"), []byte("old"), 0o600))
	file = filepath.Join(t.TempDir(), "snapshot.db")
	require.NoError(t, os.WriteFile(file, []byte(snapshot), 0o600))
	startComponents(t, c)
	return c, steer(t, c), file
}

func TestRestore_ReplacesTheDataAndStartsAllAgain(t *testing.T) {
	t.Parallel()
	c, client, file := restorable(t, "good")
	require.NoError(t, os.Mkdir(components.EtcdDir(c.Config.Dir)+".restored", 0o700), "of a restore that was cut short")
	require.NoError(t, c.process(clusterapi.APIServer).Stop(t.Context()))

	require.NoError(t, client.Restore(t.Context(), file))
	assert.Equal(t, "good", read(filepath.Join(components.EtcdDir(c.Config.Dir), "data")))
	assert.NoDirExists(t, components.EtcdDir(c.Config.Dir)+".restored")
	for _, p := range c.processes {
		assert.Equal(t, clusterapi.ComponentStatus{Name: p.Name(), State: clusterapi.StateRunning}, p.Status(), "it was meant")
		awaitLog(t, c.log(p.Name()), "up "+p.Name()+"\n", 2)
	}
}

func TestRestore_ReplacesNothingUnderARunningEtcd(t *testing.T) {
	t.Parallel()
	c, client, file := restorable(t, "good")
	// An etcd that takes its time to end and looks at its data then.
	data := filepath.Join(components.EtcdDir(c.Config.Dir), "data")
	script := `trap 'sleep 0.2; cat ` + data + `; exit 0' TERM; echo up; while :; do sleep 0.01; done`
	slow := supervise.New("/bin/sh", supervise.Spec{Name: clusterapi.Etcd, Args: []string{"-c", script}, Env: childEnv(), LogFile: c.log("slow")})
	t.Cleanup(func() { assert.NoError(t, slow.Stop(context.Background())) })
	require.NoError(t, c.processes[0].Stop(t.Context()))
	c.processes[0] = slow
	require.NoError(t, slow.Start())
	slow.Settle()
	awaitLog(t, c.log("slow"), "up\n", 1)

	require.NoError(t, client.Restore(t.Context(), file))
	awaitLog(t, c.log("slow"), "up\n", 2)
	assert.Equal(t, "up\noldup\n", read(c.log("slow")))
	assert.Equal(t, "good", read(data))
}

func TestRestore_OfADamagedSnapshotChangesNothing(t *testing.T) {
	t.Parallel()
	c, client, file := restorable(t, "torn")
	err := client.Restore(t.Context(), file)
	require.EqualError(t, err, "etcd restore "+file+": exit status 1: the snapshot is damaged")
	assert.Equal(t, "old", read(filepath.Join(components.EtcdDir(c.Config.Dir), "data")))
	for _, p := range c.processes {
		assert.Equal(t, clusterapi.StateRunning, p.Status().State)
		assert.Equal(t, "up "+p.Name()+"\n", read(c.log(p.Name())), "it went on")
	}
}
