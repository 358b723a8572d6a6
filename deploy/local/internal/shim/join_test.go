package shim

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"fairlead.dev/deploy/local/internal/nstest"
)

// waiting is a container that has written a file and waits.
func (n *node) waiting(t *testing.T) *running {
	t.Helper()
	s := n.spec(t, "write", "/tmp/file:from the container", "wait", "")
	s.Hostname = "web-0"
	s.Mounts = []Mount{{Source: t.TempDir(), Target: "/data"}}
	return n.start(t, s, "waiting")
}

func TestJoin_IsAmongTheContainersFilesAndProcesses(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		c := n.waiting(t)
		s := n.spec(t, "cat", "/tmp/file", "list", "/data", "write", "/data/new:x", "hostname", "", "cat", "/proc/1/cmdline", "pid", "")
		r := finish(t, n.joined(t, c, s))
		require.Equal(t, result{out: r.out}, r)
		got := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
		require.Len(t, got, 5, r.out)
		assert.Equal(t, []string{"from the container", "written", "web-0"}, got[:3])
		assert.True(t, strings.HasPrefix(got[3], "/app/probe\x00write\x00/tmp/file"), got[3])
		pid, err := strconv.Atoi(got[4])
		require.NoError(t, err)
		assert.Greater(t, pid, 1, "the container's program stays process 1")
		assert.Less(t, pid, 100, "it is counted in the container")

		r = finish(t, n.joined(t, c, n.spec(t, "cat", "/data/new")))
		assert.Equal(t, result{out: "x\n"}, r, "the next one finds what it wrote")
	})
}

func TestJoin_EnvironmentDirectoryAndPrivilegesAreTheSpecs(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		c := n.waiting(t)
		s := n.spec(t, "cat", "/proc/self/environ", "cwd", "", "status", "CapEff", "status", "CapBnd", "status", "NoNewPrivs")
		s.Args[0] = "probe"
		s.Env, s.Cwd, s.NoNewPrivs = []string{"PATH=/app", "A=b"}, "/data", true
		const none = "0000000000000000"
		assert.Equal(t, result{out: "PATH=/app\x00A=b\x00\n/data\nCapEff " + none + "\nCapBnd " + none + "\nNoNewPrivs 1\n"}, finish(t, n.joined(t, c, s)))
	})
}

func TestJoin_UserAndGroups(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		if !nstest.UserRange(t) {
			t.Skip("only one user id is mapped")
		}
		s := n.spec(t, "user", "", "write", "/new:x", "write", "/dev/stdout:reopened\n")
		s.UID, s.GID, s.Groups, s.SetUser = 1234, 5678, []int{9, 10}, true
		assert.Equal(t, result{out: "1234 5678 [9 10]\nopen /new: permission denied\nreopened\nwritten\n"}, finish(t, n.joined(t, n.waiting(t), s)))
	})
}

func TestJoin_ProgramIsFoundAsItIsByRun(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		c := n.waiting(t)
		s := n.spec(t)
		s.Args, s.Cwd = []string{"./probe", "cwd"}, "/app"
		assert.Equal(t, result{out: "/app\n"}, finish(t, n.joined(t, c, s)), "relative to the working directory")
	})
}

func TestJoin_ModeOfNewFilesIsThatOfAnyMachine(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		defer syscall.Umask(syscall.Umask(0o077)) // of this test's own process
		r := finish(t, n.joined(t, n.waiting(t), n.spec(t, "write", "/tmp/new:x", "stat", "/tmp/new")))
		assert.Equal(t, result{out: "written\n-rw-r--r--\n"}, r)
	})
}

func TestJoin_ReadsTheCallersInput(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		s := n.spec(t, "cat", "/dev/stdin")
		s.UID, s.SetUser = 1234, nstest.UserRange(t)
		cmd := n.joined(t, n.waiting(t), s)
		cmd.Stdin = strings.NewReader("from outside")
		assert.Equal(t, result{out: "from outside\n"}, finish(t, cmd))
	})
}

func TestJoin_ExitCodeIsThePrograms(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		assert.Equal(t, result{out: "out\n", errors: "err\n", code: 3},
			finish(t, n.joined(t, n.waiting(t), n.spec(t, "print", "out", "complain", "err", "exit", "3"))))
	})
}

func TestJoin_ProgramThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		c := n.waiting(t)
		tests := []struct {
			name, give, cwd, want string
		}{
			{name: "not on the path", give: "nothing", want: `exec: "nothing": executable file not found in $PATH`},
			{name: "a file of the machine", give: n.shim, want: `exec: "` + n.shim + `": stat ` + n.shim + `: no such file or directory`},
			{name: "no working directory", give: "/app/probe", cwd: "/missing", want: "chdir /missing: no such file or directory"},
		}
		for _, tt := range tests {
			s := n.spec(t)
			s.Args, s.Cwd = []string{tt.give}, tt.cwd
			assert.Equal(t, result{errors: "localkube-shim: " + tt.want + "\n", code: ExitCannotJoin}, finish(t, n.joined(t, c, s)), tt.name)
		}
	})
}

func TestJoin_ContainerThatHasEnded(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		c := n.waiting(t)
		c.kill(t)
		pid := strconv.Itoa(c.cmd.Process.Pid)
		assert.Equal(t, result{errors: "localkube-shim: open ipc namespace of " + pid + ": no such file or directory\n", code: ExitCannotJoin},
			finish(t, n.joined(t, c, n.spec(t, "print", "started"))))
	})
}

func TestJoin_EndsWithItsProcessGroupAndTheContainerStays(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		c := n.waiting(t)
		cmd := n.joined(t, c, n.spec(t, "stay", "", "marked as joined"))
		awaitOutput(t, cmd, "staying")
		require.Len(t, nstest.Processes(t, "marked as"), 1)
		require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
		require.Error(t, cmd.Wait())
		_, err := unix.Wait4(-cmd.Process.Pid, nil, 0, nil) // this is process 1
		if !errors.Is(err, unix.ECHILD) {                   // the parent may have seen its end before its own
			require.NoError(t, err)
		}
		assert.Empty(t, nstest.Processes(t, "marked as"))

		require.NoError(t, c.cmd.Process.Signal(os.Interrupt))
		require.NoError(t, c.cmd.Wait(), "the container's program goes on until it is told to end")
	})
}
