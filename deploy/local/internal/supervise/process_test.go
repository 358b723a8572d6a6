package supervise

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// noEnd is a back-off that does not end during a test.
const noEnd = time.Hour

// childEnv says what the test binary does as a child.
const childEnv = "SUPERVISE_TEST_CHILD"

// What a child may do once it has said that it is up.
const (
	waits   = "wait for SIGTERM"
	resists = "heed no SIGTERM"
	exits0  = "exit with 0"
	exits3  = "exit with 3"
	tick    = 5 * time.Millisecond
)

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		child(what)
	}
	goleak.VerifyTestMain(m)
}

func child(what string) {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	fmt.Println("up", os.Getpid(), time.Now().UnixMilli(), os.Args[1:], len(os.Environ()))
	switch what {
	case waits:
		<-terminated
		fmt.Println("told to end")
	case resists:
		for range terminated {
			fmt.Println("not now")
		}
	case exits3:
		fmt.Fprintln(os.Stderr, "error: no room")
		fmt.Println("bye")
		os.Exit(3)
	}
	os.Exit(0)
}

// newProcess returns one that is not started, and ends when the test does.
func newProcess(t *testing.T, what string) *Process {
	t.Helper()
	p := New("/proc/self/exe", Spec{Name: "child", Args: []string{"an", "argument"}, LogFile: filepath.Join(t.TempDir(), "child.log"),
		Env: []string{childEnv + "=" + what, "GORACE=atexit_sleep_ms=0"}}) // else each child of a test for races takes a second to end
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		assert.NoError(t, p.Stop(now))
	})
	return p
}

// startProcess returns one that is up and settled.
func startProcess(t *testing.T, what string) *Process {
	t.Helper()
	p := newProcess(t, what)
	require.NoError(t, p.Start())
	p.Settle()
	awaitStarts(t, p, 1)
	return p
}

func logged(p *Process) string {
	raw, err := os.ReadFile(p.spec.LogFile)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// start is what a child says when it is up.
type start struct {
	pid int
	at  time.Time
}

// awaitStarts waits until the child has come up n times and returns all of them.
func awaitStarts(t *testing.T, p *Process, n int) []start {
	t.Helper()
	var starts []start
	require.Eventually(t, func() bool {
		starts = nil
		for line := range strings.Lines(logged(p)) {
			fields := strings.Fields(line)
			if fields[0] != "up" || len(fields) < 4 {
				continue
			}
			pid, _ := strconv.Atoi(fields[1])
			millis, _ := strconv.ParseInt(fields[2], 10, 64)
			starts = append(starts, start{pid: pid, at: time.UnixMilli(millis)})
		}
		return len(starts) >= n
	}, kubetest.Patience, tick)
	return starts
}

func awaitState(t *testing.T, p *Process, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return p.Status().State == want }, kubetest.Patience, tick, want)
}

// kernelState is the letter that /proc has for a process, or "" when there is none.
func kernelState(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))[0]
}

func status(state string, restarts int) clusterapi.ComponentStatus {
	return clusterapi.ComponentStatus{Name: "child", State: state, Restarts: restarts}
}

func TestStart_RunsTheProgramWithItsArgumentsAndEnvironmentOnly(t *testing.T) {
	t.Parallel()
	p := newProcess(t, waits)
	assert.Equal(t, "child", p.Name())
	assert.Equal(t, status(clusterapi.StateStopped, 0), p.Status())

	require.NoError(t, p.Start())
	starts := awaitStarts(t, p, 1)
	assert.Contains(t, logged(p), "[an argument] 2\n")
	assert.Equal(t, status(clusterapi.StateRunning, 0), p.Status())

	require.NoError(t, p.Start(), "a second time")
	assert.Equal(t, starts[0].pid, p.cmd.Process.Pid)
}

func TestStop_EndsWithSIGTERMAndStaysDownUntilStart(t *testing.T) {
	t.Parallel()
	p := startProcess(t, waits)
	require.NoError(t, p.Stop(t.Context()))
	assert.Contains(t, logged(p), "told to end\n")
	assert.Equal(t, status(clusterapi.StateStopped, 0), p.Status())
	require.NoError(t, p.Stop(t.Context()), "a second time")

	require.NoError(t, p.Start())
	awaitStarts(t, p, 2)
	assert.Equal(t, status(clusterapi.StateRunning, 0), p.Status())
	assert.True(t, strings.HasPrefix(logged(p), "up "), "the log goes on")
}

func TestStopAndStart_AreNoRestartsOfItsOwn(t *testing.T) {
	t.Parallel()
	p := startProcess(t, waits)
	for range 20 {
		require.NoError(t, p.Stop(t.Context()))
		require.NoError(t, p.Start())
	}
	assert.Equal(t, status(clusterapi.StateRunning, 0), p.Status())
	assert.Zero(t, p.backoff)
}

func TestStop_OfOneThatWasNeverStarted(t *testing.T) {
	t.Parallel()
	require.NoError(t, newProcess(t, waits).Stop(t.Context()))
}

func TestStop_KillsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	p := startProcess(t, resists)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Stop(ctx) }()
	require.Eventually(t, func() bool { return strings.Contains(logged(p), "not now") }, kubetest.Patience, tick)
	cancel()
	require.NoError(t, <-done)
	assert.Equal(t, clusterapi.StateStopped, p.Status().State)
	assert.Equal(t, syscall.SIGKILL, p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

func TestStop_OfAPausedOneLetsItHear(t *testing.T) {
	t.Parallel()
	p := startProcess(t, waits)
	require.NoError(t, p.Pause())
	require.NoError(t, p.Stop(t.Context()))
	assert.Contains(t, logged(p), "told to end\n")
	assert.Equal(t, clusterapi.StateStopped, p.Status().State)
}

func TestStop_DuringBackoffEndsIt(t *testing.T) {
	t.Parallel()
	p := newProcess(t, exits3)
	require.NoError(t, p.Start())
	p.Settle()
	awaitState(t, p, clusterapi.StateStarting)
	require.NoError(t, p.Stop(t.Context()))
	starts := p.Status().Restarts

	p.again(p.cmd) // as the back-off's end does
	assert.Equal(t, status(clusterapi.StateStopped, starts), p.Status())
	assert.True(t, isClosed(p.exited))
}

func TestStart_DuringBackoffDoesNotWaitForIt(t *testing.T) {
	t.Parallel()
	p := startProcess(t, waits)
	p.backoff.next = noEnd
	old := p.cmd
	require.NoError(t, p.Kill())
	awaitState(t, p, clusterapi.StateStarting)
	require.NoError(t, p.Stop(t.Context()))
	require.NoError(t, p.Start())
	starts := awaitStarts(t, p, 2)

	p.again(old) // as the back-off's end does
	assert.Equal(t, starts[1].pid, p.cmd.Process.Pid, "there are never two")
	assert.Equal(t, status(clusterapi.StateRunning, 1), p.Status())
}

func TestStart_WaitsForAStopThatIsUnderWay(t *testing.T) {
	t.Parallel()
	p := startProcess(t, resists)
	first := p.cmd
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, p.Stop(ctx)) })
	require.Eventually(t, func() bool { return strings.Contains(logged(p), "not now") }, kubetest.Patience, tick)
	time.AfterFunc(100*time.Millisecond, cancel) // an early Start does not get to see it
	require.NoError(t, p.Start())
	assert.Empty(t, kernelState(first.Process.Pid), "the first one is gone")
	wg.Wait()
	awaitStarts(t, p, 2)
	assert.Equal(t, status(clusterapi.StateRunning, 0), p.Status())
}

func TestKill_ComesBackByItself(t *testing.T) {
	t.Parallel()
	p := startProcess(t, resists)
	require.NoError(t, p.Kill())
	starts := awaitStarts(t, p, 2)
	assert.NotEqual(t, starts[0].pid, starts[1].pid)
	assert.Equal(t, status(clusterapi.StateRunning, 1), p.Status())
	assert.NotContains(t, logged(p), "not now", "it was not asked")
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	p := startProcess(t, waits)
	pid := p.cmd.Process.Pid
	require.NoError(t, p.Pause())
	assert.Equal(t, status(clusterapi.StatePaused, 0), p.Status())
	require.Eventually(t, func() bool { return kernelState(pid) == "T" }, kubetest.Patience, tick)

	require.NoError(t, p.Resume())
	assert.Equal(t, status(clusterapi.StateRunning, 0), p.Status())
	require.Eventually(t, func() bool { return kernelState(pid) == "S" }, kubetest.Patience, tick)
	assert.Len(t, awaitStarts(t, p, 1), 1, "it went on")
}

func TestKill_OfAPausedOneBringsItBackRunning(t *testing.T) {
	t.Parallel()
	p := startProcess(t, waits)
	p.backoff.next = noEnd
	require.NoError(t, p.Pause())
	require.NoError(t, p.Kill())
	awaitState(t, p, clusterapi.StateStarting)
	p.again(p.cmd) // as the back-off's end does
	awaitStarts(t, p, 2)
	assert.Equal(t, status(clusterapi.StateRunning, 1), p.Status())
}

func TestOutages_OfAStoppedOneAreRefused(t *testing.T) {
	t.Parallel()
	never, stopped := newProcess(t, waits), startProcess(t, waits)
	require.NoError(t, stopped.Stop(t.Context()))
	for _, p := range []*Process{never, stopped} {
		require.EqualError(t, p.Kill(), "child is stopped")
		require.EqualError(t, p.Pause(), "child is stopped")
		require.EqualError(t, p.Resume(), "child is stopped")
	}
}

func TestOutages_OfADeadOneAreRefused(t *testing.T) {
	t.Parallel()
	p := startProcess(t, waits)
	p.backoff.next = noEnd
	require.NoError(t, p.Kill())
	awaitState(t, p, clusterapi.StateStarting)
	require.ErrorIs(t, p.Kill(), os.ErrProcessDone)
	require.ErrorIs(t, p.Pause(), os.ErrProcessDone)
	assert.Equal(t, clusterapi.StateStarting, p.Status().State)
}

func TestStart_ThatFailsLeavesItStopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tests := []struct {
		name    string
		give    *Process
		wantErr string
	}{
		{name: "no program", give: New(filepath.Join(dir, "none"), Spec{Name: "child", LogFile: filepath.Join(dir, "log")}), wantErr: "start child: "},
		{name: "no folder for the log", give: New("/proc/self/exe", Spec{Name: "child", LogFile: filepath.Join(dir, "none", "log")}), wantErr: "open log of child: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, tt.give.Start(), tt.wantErr)
			assert.Equal(t, status(clusterapi.StateStopped, 0), tt.give.Status())
			require.EqualError(t, tt.give.Kill(), "child is stopped")
			require.ErrorContains(t, tt.give.Start(), tt.wantErr)
		})
	}
}

func TestBackoff_GrowsAndResets(t *testing.T) {
	t.Parallel()
	var b backoff
	tests := []struct {
		name string
		ran  time.Duration
		want time.Duration
	}{
		{name: "first", want: 100 * time.Millisecond},
		{name: "second", ran: time.Second, want: 200 * time.Millisecond},
		{name: "third", want: 400 * time.Millisecond},
		{name: "fourth", want: 800 * time.Millisecond},
		{name: "fifth", want: 1600 * time.Millisecond},
		{name: "sixth", want: 3200 * time.Millisecond},
		{name: "seventh, at most", want: 5 * time.Second},
		{name: "not steady yet", ran: steadyAfter, want: 5 * time.Second},
		{name: "steady", ran: steadyAfter + 1, want: 100 * time.Millisecond},
		{name: "grows again", want: 200 * time.Millisecond},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, b.after(tt.ran), tt.name)
	}
}

func TestCrashLoop_IsStartedLaterEachTime(t *testing.T) {
	t.Parallel()
	p := startProcess(t, exits3)
	starts := awaitStarts(t, p, 4)
	for i, least := range []time.Duration{firstBackoff, 2 * firstBackoff, 4 * firstBackoff} {
		assert.GreaterOrEqual(t, starts[i+1].at.Sub(starts[i].at), least)
	}
	assert.GreaterOrEqual(t, p.Status().Restarts, 3)
}

func TestRestart_IsTriedAgainWhenItFails(t *testing.T) {
	t.Parallel()
	p := startProcess(t, waits)
	dir := filepath.Dir(p.spec.LogFile)
	require.NoError(t, os.Rename(dir, dir+".away"))
	require.NoError(t, p.Kill())
	awaitState(t, p, clusterapi.StateStarting)
	p.again(p.cmd) // as the back-off's end does, in vain
	assert.Equal(t, clusterapi.StateStarting, p.Status().State)
	require.NoError(t, os.Rename(dir+".away", dir))
	awaitStarts(t, p, 2)
	assert.Equal(t, status(clusterapi.StateRunning, 1), p.Status())
}

func TestProcess_TakesOrdersFromManyAtOnce(t *testing.T) {
	t.Parallel()
	p := startProcess(t, waits)
	var wg sync.WaitGroup
	for _, order := range []func() error{p.Start, p.Kill, p.Pause, p.Resume, func() error { return p.Stop(t.Context()) }} {
		wg.Go(func() {
			for range 10 {
				_ = order() // some must be refused
				p.Status()
			}
		})
	}
	wg.Wait()
	require.NoError(t, p.Stop(t.Context()))
	assert.Equal(t, clusterapi.StateStopped, p.Status().State)
	for _, s := range awaitStarts(t, p, 1) {
		assert.Empty(t, kernelState(s.pid), "process %d is left over", s.pid)
	}
}
