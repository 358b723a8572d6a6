package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/deploy/local/internal/nstest"
	"fairlead.dev/pkg/kubetest"
)

const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED

	// never is a grace in seconds that no test waits for.
	never = 24 * 60 * 60
)

func TestContainer_StatusFollowsItsLife(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p, begin := n.runPod(t, "web"), time.Now().UnixNano()
		cfg := containerConfig("app", "print", "up", "complain", "beware", "wait", "")
		cfg.Mounts = []*runtimeapi.Mount{{HostPath: t.TempDir(), ContainerPath: "/data"}}
		cfg.StopSignal = runtimeapi.Signal_SIGNAL_SIGINT
		id := n.create(t, p, cfg)
		want := &runtimeapi.ContainerStatus{
			Id: id, Metadata: cfg.Metadata, State: created, Image: &runtimeapi.ImageSpec{Image: probeImage}, ImageRef: n.image.Digests[0], ImageId: n.image.ID,
			Labels: cfg.Labels, Annotations: cfg.Annotations, Mounts: cfg.Mounts, LogPath: filepath.Join(p.config.LogDirectory, "app/0.log"),
			StopSignal: cfg.StopSignal, CreatedAt: n.status(t, id).CreatedAt,
		}
		assert.Equal(t, want, n.status(t, id))
		assert.NoFileExists(t, want.LogPath, "nothing has run yet")

		require.NoError(t, n.StartContainer(t.Context(), id))
		want.State, want.StartedAt = running, n.status(t, id).StartedAt
		assert.Equal(t, want, n.status(t, id))

		n.awaitLog(t, id, "stdout F waiting")
		require.NoError(t, n.StopContainer(t.Context(), id, never))
		want.State, want.FinishedAt, want.Reason = exited, n.status(t, id).FinishedAt, "Completed"
		assert.Equal(t, want, n.status(t, id))
		assert.ElementsMatch(t, []string{"stdout F up", "stderr F beware", "stdout F waiting", "stdout F interrupt"}, entries(t, want.LogPath))
		assert.IsIncreasing(t, []int64{begin, want.CreatedAt, want.StartedAt, want.FinishedAt, time.Now().UnixNano()})
	})
}

func TestContainer_HowItEnded(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p := n.runPod(t, "web")
		tests := []struct {
			name       string
			command    []string
			wantCode   int32
			wantReason string
			wantLog    []string
		}{
			{name: "well", command: []string{"/probe", "print", "done"}, wantReason: "Completed", wantLog: []string{"stdout F done"}},
			{name: "with-a-code", command: []string{"/probe", "complain", "no", "exit", "3"}, wantCode: 3, wantReason: "Error", wantLog: []string{"stderr F no"}},
			{name: "missing-program", command: []string{"/missing"}, wantCode: 128, wantReason: "Error",
				wantLog: []string{`stderr F localkube-shim: exec: "/missing": stat /missing: no such file or directory`}},
		}
		for _, tt := range tests {
			cfg := containerConfig(tt.name)
			cfg.Command = tt.command
			id := n.start(t, p, cfg)
			n.awaitEnd(t, id)
			s := n.status(t, id)
			assert.Equal(t, tt.wantCode, s.ExitCode, tt.name)
			assert.Equal(t, tt.wantReason, s.Reason, tt.name)
			assert.Equal(t, tt.wantLog, entries(t, s.LogPath), tt.name)
		}
	})
}

func TestStopContainer_SignalsThenKills(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p := n.runPod(t, "web")
		tests := []struct {
			name, program, says string
			grace               int64
			signal              runtimeapi.Signal
			wantCode            int32
			wantLog             []string
		}{
			{name: "by-sigterm", program: "wait", says: "waiting", grace: never, wantLog: []string{"stdout F waiting", "stdout F terminated"}},
			{name: "by-its-signal", program: "wait", says: "waiting", grace: never, signal: runtimeapi.Signal_SIGNAL_SIGINT,
				wantLog: []string{"stdout F waiting", "stdout F interrupt"}},
			{name: "after-its-grace", program: "stay", says: "staying", grace: 1, wantCode: 137, wantLog: []string{"stdout F staying"}},
			{name: "without-grace", program: "wait", says: "waiting", wantCode: 137, wantLog: []string{"stdout F waiting"}},
		}
		for _, tt := range tests {
			cfg := containerConfig(tt.name, tt.program)
			cfg.StopSignal = tt.signal
			id := n.start(t, p, cfg)
			n.awaitLog(t, id, tt.says)
			ctx, cancel := context.WithTimeout(t.Context(), kubetest.Patience)
			require.NoError(t, n.StopContainer(ctx, id, tt.grace), "%s: it does not wait for the end of the grace", tt.name)
			cancel()
			s := n.status(t, id)
			assert.Equal(t, exited, s.State, "%s: it has ended when the call returns", tt.name)
			assert.Equal(t, tt.wantCode, s.ExitCode, tt.name)
			assert.Equal(t, tt.wantLog, entries(t, s.LogPath), tt.name)
			require.NoError(t, n.StopContainer(t.Context(), id, tt.grace), "%s: again", tt.name)
			assert.Equal(t, s, n.status(t, id), tt.name)
		}
	})
}

func TestStopContainer_GivesUpWithItsCaller(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		id := n.start(t, n.runPod(t, "web"), containerConfig("app", "stay"))
		n.awaitLog(t, id, "staying")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, n.StopContainer(ctx, id, 30), context.Canceled)
		_, _, err := n.ExecSync(t.Context(), id, []string{"/probe"}, kubetest.Patience)
		require.NoError(t, err, "it goes on")
		assert.Equal(t, running, n.status(t, id).State)
		require.NoError(t, n.StopContainer(t.Context(), id, 0))
	})
}

func TestStopContainer_BeforeItsStartChangesNothing(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		id := n.create(t, n.runPod(t, "web"), containerConfig("app"))
		require.NoError(t, n.StopContainer(t.Context(), id, 30))
		assert.Equal(t, created, n.status(t, id).State)
	})
}

func TestRemoveContainer_KillsAndForgets(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p := n.runPod(t, "web")
		id, other := n.startWaiting(t, p, "app"), n.startWaiting(t, p, "other")
		log := n.status(t, id).LogPath
		require.DirExists(t, filepath.Join(n.Dir, "containers", id))
		for range 2 {
			require.NoError(t, n.RemoveContainer(t.Context(), id))
			_, err := n.ContainerStatus(t.Context(), id, false)
			assert.Equal(t, codes.NotFound, status.Code(err))
			assert.NoDirExists(t, filepath.Join(n.Dir, "containers", id))
			assert.NoFileExists(t, log)
		}
		assert.Len(t, nstest.Processes(t, "/probe\x00wait"), 1)
		assert.Equal(t, running, n.status(t, other).State)
	})
}

func TestContainer_RestartIsANewOneInTheSameSandbox(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p, volume := n.runPod(t, "web"), t.TempDir()
		attempt := func(number uint32, args ...string) *runtimeapi.ContainerConfig {
			cfg := containerConfig("app", args...)
			cfg.Metadata.Attempt, cfg.LogPath = number, fmt.Sprintf("app/%d.log", number)
			cfg.Mounts = []*runtimeapi.Mount{{HostPath: volume, ContainerPath: "/data"}}
			return cfg
		}
		require.NoError(t, os.Chmod(volume, 0o777)) // the container's user is not ours
		first := n.start(t, p, attempt(0, "write", "/tmp/file:x", "write", "/data/file:kept", "exit", "1"))
		n.awaitEnd(t, first)
		address := n.address(t, p)
		got := n.finish(t, p, attempt(1, "cat", "/tmp/file", "cat", "/data/file", "hostname", "", "cat", "/proc/net/fib_trie"))

		require.Greater(t, len(got), 3)
		assert.Equal(t, []string{"stdout F open /tmp/file: no such file or directory", "stdout F kept", "stdout F web"}, got[:3])
		routes := strings.Join(got[3:], "\n")
		assert.Contains(t, routes, "|-- "+address+"\n", "it is in the pod's network")
		assert.NotContains(t, routes, network.NodeIP(1))
		assert.Equal(t, address, n.address(t, p))
		assert.Equal(t, []string{"stdout F written", "stdout F written"}, entries(t, n.status(t, first).LogPath), "the first one's log stays")
		assert.Equal(t, int32(1), n.status(t, first).ExitCode)
	})
}

func TestStartContainer_InAStoppedSandboxIsRefused(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p := n.runPod(t, "web")
		id := n.create(t, p, containerConfig("app", "print", "up"))
		require.NoError(t, n.StopPodSandbox(t.Context(), p.id))
		err := n.StartContainer(t.Context(), id)
		assert.Equal(t, codes.FailedPrecondition, status.Code(err), "the node's network is not the pod's: %v", err)
		assert.Equal(t, created, n.status(t, id).State)
	})
}

func TestCreateContainer_NeedsItsImage(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p, cfg := n.runPod(t, "web"), containerConfig("app")
		cfg.Image.Image = "local/missing:v1"
		_, err := n.CreateContainer(t.Context(), p.id, cfg, p.config)
		assert.Equal(t, codes.NotFound, status.Code(err))
		require.ErrorContains(t, err, "image not found: docker.io/local/missing:v1")
	})
}

func TestReopenContainerLog_FollowsARotation(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p := n.runPod(t, "web")
		id := n.create(t, p, containerConfig("app", "wait"))
		assert.Equal(t, codes.FailedPrecondition, status.Code(n.ReopenContainerLog(t.Context(), id)))
		require.NoError(t, n.StartContainer(t.Context(), id))
		n.awaitLog(t, id, "waiting")
		log := n.status(t, id).LogPath
		require.NoError(t, os.Rename(log, log+".rotated"))
		require.NoError(t, n.ReopenContainerLog(t.Context(), id))
		require.NoError(t, n.StopContainer(t.Context(), id, 30))
		assert.Equal(t, []string{"stdout F waiting"}, entries(t, log+".rotated"))
		assert.Equal(t, []string{"stdout F terminated"}, entries(t, log))
	})
}

func TestListContainers_Filters(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		web, db := n.runPod(t, "web"), n.runPod(t, "db")
		app, side := n.startWaiting(t, web, "app"), n.create(t, web, containerConfig("side"))
		data := n.startWaiting(t, db, "data")
		state := func(s runtimeapi.ContainerState) *runtimeapi.ContainerFilter {
			return &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: s}}
		}
		tests := []struct {
			name string
			give *runtimeapi.ContainerFilter
			want []string
		}{
			{name: "none", want: []string{app, side, data}},
			{name: "id", give: &runtimeapi.ContainerFilter{Id: side}, want: []string{side}},
			{name: "sandbox", give: &runtimeapi.ContainerFilter{PodSandboxId: web.id}, want: []string{app, side}},
			{name: "running", give: state(running), want: []string{app, data}},
			{name: "created", give: state(created), want: []string{side}},
			{name: "exited", give: state(exited)},
			{name: "label", give: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"container": "data"}}, want: []string{data}},
			{name: "all labels must fit", give: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"tier": "test", "container": "x"}}},
			{name: "id in another sandbox", give: &runtimeapi.ContainerFilter{Id: app, PodSandboxId: db.id}},
		}
		for _, tt := range tests {
			list, err := n.ListContainers(t.Context(), tt.give)
			require.NoError(t, err)
			var got []string
			for _, c := range list {
				got = append(got, c.Id)
			}
			assert.ElementsMatch(t, tt.want, got, tt.name)
		}
		list, err := n.ListContainers(t.Context(), &runtimeapi.ContainerFilter{Id: app})
		require.NoError(t, err)
		cfg := containerConfig("app")
		assert.Equal(t, []*runtimeapi.Container{{Id: app, PodSandboxId: web.id, Metadata: cfg.Metadata, Image: cfg.Image, ImageRef: n.image.Digests[0],
			ImageId: n.image.ID, State: running, CreatedAt: n.status(t, app).CreatedAt, Labels: cfg.Labels, Annotations: cfg.Annotations}}, list)
	})
}
