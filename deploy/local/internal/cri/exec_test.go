package cri

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	utilexec "k8s.io/utils/exec"

	"fairlead.dev/deploy/local/internal/nstest"
	"fairlead.dev/pkg/kubetest"
)

func TestExecSync_OutputsAndExitCode(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		id := n.startWaiting(t, n.runPod(t, "web"), "app")
		out, complaints, err := n.ExecSync(t.Context(), id, []string{"/probe", "print", "out", "complain", "err", "hostname", "", "env", "IMAGE"}, kubetest.Patience)
		require.NoError(t, err)
		assert.Equal(t, "out\nweb\nyes\n", string(out))
		assert.Equal(t, "err\n", string(complaints))
		assert.Equal(t, []string{"stdout F waiting"}, entries(t, n.status(t, id).LogPath), "the container's log has none of it")

		out, _, err = n.ExecSync(t.Context(), id, []string{"/probe", "print", "out", "exit", "3"}, 0)
		var exit utilexec.ExitError
		require.ErrorAs(t, err, &exit)
		assert.Equal(t, 3, exit.ExitStatus())
		assert.Equal(t, "out\n", string(out))

		_, complaints, err = n.ExecSync(t.Context(), id, []string{"nothing"}, kubetest.Patience)
		require.ErrorAs(t, err, &exit)
		assert.Equal(t, 126, exit.ExitStatus())
		assert.Contains(t, string(complaints), `"nothing": executable file not found in $PATH`)
		left, err := filepath.Glob(filepath.Join(n.Dir, "containers", id, "exec-*"))
		require.NoError(t, err)
		assert.Empty(t, left)
	})
}

func TestExecSync_TimeoutKillsTheProgramAndTheContainerCanStillEnd(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		id := n.startWaiting(t, n.runPod(t, "web"), "app")
		var out []byte
		for timeout := 2 * time.Second; len(out) == 0 && timeout < kubetest.Patience; timeout *= 2 { // until the program had the time to print
			var err error
			out, _, err = n.ExecSync(t.Context(), id, []string{"/probe", "stay", "", "marked"}, timeout)
			assert.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
			require.ErrorContains(t, err, "/probe did not end within "+timeout.String())
			assert.Empty(t, nstest.Processes(t, "marked"))
		}
		assert.Equal(t, "staying\n", string(out))

		ctx, cancel := context.WithTimeout(t.Context(), kubetest.Patience)
		defer cancel()
		require.NoError(t, n.StopContainer(ctx, id, never))
		assert.Equal(t, int32(0), n.status(t, id).ExitCode, "its program heard the signal")
	})
}

// The kubelet runs a postStart hook at once.
func TestExecSync_RightAfterTheStartIsInTheContainer(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p := n.runPod(t, "web")
		for i := range 10 {
			id := n.start(t, p, containerConfig(fmt.Sprintf("app-%d", i), "wait"))
			out, complaints, err := n.ExecSync(t.Context(), id, []string{"/probe", "hostname", "", "list", "/"}, kubetest.Patience)
			require.NoError(t, err, "%s", complaints)
			require.Equal(t, "web\ndev etc probe proc tmp\n", string(out))
		}
	})
}

func TestExecSync_EndsWithTheContainer(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		id := n.startWaiting(t, n.runPod(t, "web"), "app")
		done := make(chan error, 1)
		go func() {
			_, _, err := n.ExecSync(t.Context(), id, []string{"/probe", "write", "/tmp/joined:x", "stay"}, 0)
			done <- err
		}()
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			_, _, err := n.ExecSync(t.Context(), id, []string{"/probe", "cat", "/tmp/joined"}, kubetest.Patience)
			require.NoError(collect, err)
			assert.Len(collect, nstest.Processes(t, "/tmp/joined:x"), 1)
		}, kubetest.Patience, tick)
		require.NoError(t, n.StopContainer(t.Context(), id, 0))
		var exit utilexec.ExitError
		require.ErrorAs(t, <-done, &exit)
		assert.Equal(t, 137, exit.ExitStatus())
	})
}

func TestExecSync_WhereNothingRuns(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p := n.runPod(t, "web")
		created, ended := n.create(t, p, containerConfig("new")), n.startWaiting(t, p, "app")
		require.NoError(t, n.StopContainer(t.Context(), ended, 0))
		for name, id := range map[string]string{"not started": created, "ended": ended} {
			_, _, err := n.ExecSync(t.Context(), id, []string{"/probe"}, kubetest.Patience)
			assert.Equal(t, codes.FailedPrecondition, status.Code(err), name)
		}
	})
}

// output is a stream's writing end.
type output struct{ bytes.Buffer }

func (*output) Close() error { return nil }

func TestExec_StreamsInputAndOutputs(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		id := n.startWaiting(t, n.runPod(t, "web"), "app")
		var out, complaints output
		require.NoError(t, streamer{n.Runtime}.Exec(t.Context(), id, []string{"/probe", "cat", "/dev/stdin", "complain", "err"},
			strings.NewReader("from the client"), &out, &complaints, false, nil))
		assert.Equal(t, "from the client\n", out.String())
		assert.Equal(t, "err\n", complaints.String())
		assert.Equal(t, codes.Unimplemented, status.Code(streamer{n.Runtime}.Attach(t.Context(), id, nil, nil, nil, false, nil)))
	})
}

// A person's terminal stays open after the program has ended.
func TestExec_DoesNotWaitForTheEndOfItsInput(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		id := n.startWaiting(t, n.runPod(t, "web"), "app")
		in, terminal := io.Pipe()
		defer terminal.Close()
		var out output
		require.NoError(t, streamer{n.Runtime}.Exec(t.Context(), id, []string{"/probe", "print", "done"}, in, &out, &out, false, nil))
		assert.Equal(t, "done\n", out.String())
	})
}

func TestExec_ClientThatGoesTakesTheProgramWithIt(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		id := n.startWaiting(t, n.runPod(t, "web"), "app")
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		var out output
		go func() {
			done <- streamer{n.Runtime}.Exec(ctx, id, []string{"/probe", "stay", "", "marked"}, nil, &out, &out, false, nil)
		}()
		require.Eventually(t, func() bool { return len(nstest.Processes(t, "probe\x00stay\x00\x00marked")) == 1 }, kubetest.Patience, tick)
		leave()
		require.Error(t, <-done)
		assert.Empty(t, nstest.Processes(t, "marked"))
	})
}
