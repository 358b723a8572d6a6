package proc

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
)

// childEnv makes the test binary a process whose threads are all busy.
const childEnv = "PROC_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		for range 2 {
			go func() {
				for {
					os.Getpid()
				}
			}()
		}
		_, _ = os.Stdout.WriteString("up")
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ends
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       stat
		wantOK     bool
	}{
		{name: "an ordinary command", give: "12 (etcd) S 7 12 12 0", want: stat{state: "S", parent: 7}, wantOK: true},
		{name: "a command that looks like fields", give: "12 (a) S 99 (b)) T 7 12", want: stat{state: "T", parent: 7}, wantOK: true},
		{name: "cut off", give: "12 (etcd) S"},
		{name: "no number", give: "12 (etcd) S x 1"},
		{name: "nothing", give: ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := parse([]byte(tt.give))
			assert.Equal(t, tt.wantOK, ok)
			if tt.wantOK {
				assert.Equal(t, tt.want, got)
			}
		})
	}
}

func TestDescendants_AllOfTheTreeAndNoOther(t *testing.T) {
	t.Parallel()
	parents := map[int]int{2: 1, 3: 1, 4: 2, 5: 4, 6: 3, 7: 6}
	assert.ElementsMatch(t, []int{2, 4, 5}, descendants(2, parents))
	assert.Equal(t, 2, descendants(2, parents)[0], "parents first")
	assert.Equal(t, []int{7}, descendants(7, parents))
	assert.Equal(t, []int{99}, descendants(99, parents), "one that has just ended")
}

// startBusy starts a process and returns once it is up.
func startBusy(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=1", "GORACE=atexit_sleep_ms=0")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	_, err = cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		assert.NoError(t, cmd.Process.Kill())
		assert.Error(t, cmd.Wait())
	})
	_, err = io.ReadFull(out, make([]byte, 2))
	require.NoError(t, err)
	return cmd.Process.Pid
}

func TestStopTree_ReturnsWhenEveryThreadStandsStill(t *testing.T) {
	t.Parallel()
	pid := startBusy(t)
	for range 20 {
		require.NoError(t, StopTree(pid))
		busy, err := busyThread(pid)
		require.NoError(t, err)
		require.Empty(t, busy)
		require.NoError(t, ResumeTree(pid))
		require.Eventually(t, func() bool {
			busy, err := busyThread(pid)
			return err == nil && busy != ""
		}, kubetest.Patience, time.Millisecond)
	}
}

func TestAwaitStill_SaysWhoDoesNot(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, AwaitStill(startBusy(t)), "has not stopped: thread ")
}

func TestTree_OfOneThatHasEnded(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("true")
	require.NoError(t, cmd.Run())
	require.NoError(t, StopTree(cmd.Process.Pid))
	require.NoError(t, ResumeTree(cmd.Process.Pid))
}
