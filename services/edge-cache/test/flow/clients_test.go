//go:build system

package flow

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

// olderClients returns the programs that `make edge-clients` builds, by their version of client-go.
func olderClients(t *testing.T) map[string]string {
	t.Helper()
	root, err := cluster.Repository()
	require.NoError(t, err)
	programs := map[string]string{}
	for _, folder := range []string{"", "v0.32", "v0.35"} {
		raw, err := os.ReadFile(filepath.Join(root, "services/edge-cache/test/clients", folder, "go.mod"))
		require.NoError(t, err)
		version := regexp.MustCompile(`k8s\.io/client-go (v\S+)`).FindSubmatch(raw)
		require.NotNil(t, version)
		program := filepath.Join(root, "bin/cache/edge-clients-"+string(version[1]))
		require.FileExists(t, program, "run `make edge-clients`")
		programs[string(version[1])] = program
	}
	return programs
}

// olderState is what an informer of such a program has.
type olderState struct {
	Synced bool
	Slices map[string][]string
}

// older is a running program.
type older struct {
	t     *testing.T
	stdin io.WriteCloser
	lines *bufio.Reader
	end   func()
}

// older starts a program as the controller of a cache.
func (e *edge) older(t *testing.T, program string, environment ...string) *older {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "--server=https://"+e.address("client"),
		"--token="+filepath.Join(e.cfg.Client.CredentialsDir, "token"), "--ca="+filepath.Join(e.cfg.Client.CredentialsDir, "ca.crt"))
	cmd.Env = append(os.Environ(), environment...)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	end := sync.OnceFunc(func() { stdin.Close(); _ = cmd.Wait() })
	t.Cleanup(end)
	return &older{t: t, stdin: stdin, lines: bufio.NewReader(stdout), end: end}
}

// state asks for what the informers have.
func (o *older) state() map[string]olderState {
	o.t.Helper()
	_, err := fmt.Fprintln(o.stdin)
	require.NoError(o.t, err)
	line, err := o.lines.ReadBytes('\n')
	require.NoError(o.t, err)
	state := map[string]olderState{}
	require.NoError(o.t, json.Unmarshal(line, &state))
	return state
}

// requireState waits until all informers have these slices, and the nodes of their endpoints.
func (o *older) requireState(want map[string][]string) {
	o.t.Helper()
	var state map[string]olderState
	reached := func() bool {
		state = o.state()
		for name, s := range state {
			expected := want
			if name == "metadata" {
				expected = keysOnly(want)
			}
			if !s.Synced || !assert.ObjectsAreEqual(expected, s.Slices) {
				return false
			}
		}
		return len(state) == 4
	}
	for deadline := time.Now().Add(kubetest.Patience); !reached(); time.Sleep(tick) {
		require.True(o.t, time.Now().Before(deadline), "want %v, got %+v", want, state)
	}
}

func keysOnly(all map[string][]string) map[string][]string {
	out := map[string][]string{}
	for key := range all {
		out[key] = nil
	}
	return out
}

// nodesOf is the oracle: the slices of a direct list, with the nodes of their endpoints in the pool.
func (w *world) nodesOf(pool string) map[string][]string {
	w.t.Helper()
	nodes, err := w.direct.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{LabelSelector: poolKey + "=" + pool})
	require.NoError(w.t, err)
	members := map[string]bool{}
	for i := range nodes.Items {
		members[nodes.Items[i].Name] = true
	}
	all, err := w.direct.DiscoveryV1().EndpointSlices("").List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	out := map[string][]string{}
	for i := range all.Items {
		s := &all.Items[i]
		out[s.Namespace+"/"+s.Name] = shownNodes(s, members)
	}
	return out
}

func shownNodes(s *discoveryv1.EndpointSlice, members map[string]bool) []string {
	var nodes []string
	for i := range s.Endpoints {
		if node := s.Endpoints[i].NodeName; node != nil && members[*node] {
			nodes = append(nodes, *node)
		}
	}
	sort.Strings(nodes)
	return nodes
}

// TestOlderClients runs informers of older versions of client-go, with and without watch-lists where they have a switch for them: online,
// after changes, started offline, and after the outage.
func TestOlderClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.node("in-2", "edge")
	w.node("out-1", "other")
	w.createSlice(slice("default", "a", "a-1", "in-1", "out-1"))
	w.createSlice(slice("default", "b", "b-1", "out-1"))
	e := w.edge("edge").ready()
	var all []*older
	start := func() {
		for _, program := range olderClients(t) {
			for _, watchList := range []string{"true", "false"} {
				all = append(all,
					e.older(t, program, "KUBE_FEATURE_WatchListClient="+watchList, "ENABLE_CLIENT_GO_WATCH_LIST_ALPHA="+watchList))
			}
		}
	}
	requireAll := func() {
		t.Helper()
		want := w.nodesOf("edge")
		for _, o := range all {
			o.requireState(want)
		}
	}
	start()
	requireAll()
	w.createSlice(slice("default", "c", "c-1", "in-2", "out-1"))
	w.label("out-1", "edge")
	w.label("in-2", "")
	require.NoError(t, w.direct.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "a-1", metav1.DeleteOptions{}))
	requireAll()

	for _, o := range all {
		o.end()
	}
	all = nil
	w.network.set(linkCut)
	e.restart()
	e.ready()
	start()
	requireAll()
	w.createSlice(slice("default", "d", "d-1", "in-1"))
	w.label("in-2", "edge")
	require.NoError(t, w.direct.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "b-1", metav1.DeleteOptions{}))
	w.network.set(linkUp)
	requireAll()
}
