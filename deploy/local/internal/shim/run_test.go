package shim

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"fairlead.dev/deploy/local/internal/nstest"
	"fairlead.dev/pkg/kubetest"
)

func TestRun_EnvironmentIsTheSpecsAlone(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		s := n.spec(t, "cat", "/proc/self/environ")
		s.Env = []string{"PATH=/bin", "A=b=c", "EMPTY=", "LINES=1 2"}
		assert.Equal(t, []string{"PATH=/bin\x00A=b=c\x00EMPTY=\x00LINES=1 2\x00"}, n.lines(t, s))
		s = n.spec(t, "cat", "/proc/self/environ", "print", "end")
		s.Env = nil
		assert.Equal(t, []string{"end"}, n.lines(t, s))
	})
}

func TestRun_HostnameIsTheContainersAlone(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		before, err := os.Hostname()
		require.NoError(t, err)
		s := n.spec(t, "hostname", "")
		s.Hostname = "web-0"
		assert.Equal(t, []string{"web-0"}, n.lines(t, s))
		after, err := os.Hostname()
		require.NoError(t, err)
		assert.Equal(t, before, after)
		assert.Equal(t, []string{before}, n.lines(t, n.spec(t, "hostname", "")), "a pod on the node's network is called as the node")
	})
}

func TestRun_WorkingDirectory(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		tests := []struct {
			name, give, want string
			args             []string
		}{
			{name: "none is the root", want: "/"},
			{name: "one of the image", give: "/app", want: "/app"},
			{name: "one that is made", give: "/srv/new", want: "/srv/new"},
			{name: "a program relative to it", give: "/app", want: "/app", args: []string{"./probe", "cwd"}},
		}
		for _, tt := range tests {
			s := n.spec(t, "cwd")
			s.Cwd = tt.give
			if tt.args != nil {
				s.Args = tt.args
			}
			assert.Equal(t, []string{tt.want}, n.lines(t, s), tt.name)
		}
	})
}

func TestRun_UserAndGroups(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		if !nstest.UserRange(t) {
			t.Skip("only one user id is mapped")
		}
		s := n.spec(t, "user", "", "cat", "/etc/resolv.conf", "write", "/etc/resolv.conf:x", "write", "/tmp/new:x", "write", "/dev/stderr:reopened\n")
		s.Files = map[string]string{"etc/resolv.conf": "for all to read"}
		s.UID, s.GID, s.Groups, s.SetUser = 1234, 5678, []int{9, 10}, true
		assert.Equal(t, result{out: "1234 5678 [9 10]\nfor all to read\nopen /etc/resolv.conf: permission denied\nwritten\nwritten\n", errors: "reopened\n"},
			n.run(t, s))

		s.Args, s.SetUser = []string{"/app/probe", "user", ""}, false
		assert.Contains(t, n.run(t, s).out, "0 0 ", "who maps one id only says so")
	})
}

func TestRun_OnlyPipesBecomeTheUsers(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		if !nstest.UserRange(t) {
			t.Skip("only one user id is mapped")
		}
		out, err := os.Create(filepath.Join(t.TempDir(), "output"))
		require.NoError(t, err)
		defer out.Close()
		s := n.spec(t, "print", "done")
		s.UID, s.GID, s.SetUser = 1234, 1234, true
		cmd := n.command(t, s, "run")
		cmd.SysProcAttr.Cloneflags = ownNamespaces
		cmd.Stdout, cmd.Stderr = out, out
		require.NoError(t, cmd.Run())
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(int(out.Fd()), &st))
		assert.Equal(t, uint32(0), st.Uid, "it might be the machine's /dev/null")
	})
}

func TestRun_Privileges(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		const none, some, all = "0000000000000000", "0000000000000021", "000001ffffffffff"
		tests := []struct {
			name         string
			capabilities uint64
			noNewPrivs   bool
			want         string
		}{
			{name: "none, even of root", noNewPrivs: true, want: "CapPrm " + none + "\nCapEff " + none + "\nCapBnd " + none + "\nNoNewPrivs 1\n"},
			{name: "some", capabilities: 1<<unix.CAP_CHOWN | 1<<unix.CAP_KILL, want: "CapPrm " + some + "\nCapEff " + some + "\nCapBnd " + some + "\nNoNewPrivs 0\n"},
			{name: "all", capabilities: ^uint64(0), want: "CapPrm " + all + "\nCapEff " + all + "\nCapBnd " + all + "\nNoNewPrivs 0\n"},
		}
		for _, tt := range tests {
			s := n.spec(t, "status", "CapPrm", "status", "CapEff", "status", "CapBnd", "status", "NoNewPrivs")
			s.Capabilities, s.NoNewPrivs = tt.capabilities, tt.noNewPrivs
			assert.Equal(t, tt.want, n.run(t, s).out, tt.name)
		}
	})
}

func TestRun_ProgramIsFoundOnTheContainersPath(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		s := n.spec(t)
		s.Args, s.Env = []string{"probe", "print", "found"}, []string{"A=b", "PATH=/nowhere:/app"}
		assert.Equal(t, []string{"found"}, n.lines(t, s))
	})
}

// The kubelet shows such a container's exit code and, where the pod asks for it, the end of its log.
func TestRun_ProgramThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		n.write(t, "app/script", "no program", 0o755)
		tests := []struct{ name, give, want string }{
			{name: "not on the path", give: "nothing", want: `exec: "nothing": executable file not found in $PATH`},
			{name: "not there", give: "/nothing", want: `exec: "/nothing": stat /nothing: no such file or directory`},
			{name: "not executable", give: "/app/data", want: `exec: "/app/data": permission denied`},
			{name: "a folder", give: "/app", want: `exec: "/app": is a directory`},
			{name: "not a program", give: "/app/script", want: `exec format error`},
		}
		for _, tt := range tests {
			s := n.spec(t)
			s.Args = []string{tt.give}
			assert.Equal(t, result{errors: "localkube-shim: " + tt.want + "\n", code: ExitCannotStart}, n.run(t, s), tt.name)
		}
	})
}

func TestRun_ExitCodeIsThePrograms(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		assert.Equal(t, result{out: "out\n", errors: "err\n", code: 3}, n.run(t, n.spec(t, "print", "out", "complain", "err", "exit", "3")))
	})
}

func TestRun_ProgramGetsTheRuntimesSignals(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		c := n.start(t, n.spec(t, "wait", "", "exit", "7"), "waiting")
		require.NoError(t, c.cmd.Process.Signal(syscall.SIGTERM))
		require.Error(t, c.cmd.Wait())
		assert.Equal(t, 7, c.cmd.ProcessState.ExitCode())
	})
}

func TestRun_TellsWhenTheProgramRuns(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		stays, fails := n.spec(t, "stay"), n.spec(t)
		fails.Args = []string{"/missing"}
		for _, s := range []*Spec{stays, fails} {
			started, end, err := os.Pipe()
			require.NoError(t, err)
			defer started.Close()
			cmd := n.command(t, s, "run")
			cmd.SysProcAttr.Cloneflags = ownNamespaces
			cmd.ExtraFiles = []*os.File{end}
			require.NoError(t, cmd.Start())
			require.NoError(t, end.Close())
			require.NoError(t, started.SetReadDeadline(time.Now().Add(kubetest.Patience)))
			_, err = started.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
			_ = cmd.Process.Kill() // it may have ended
			require.Error(t, cmd.Wait())
		}
	})
}

func TestRun_KilledContainerLeavesNothing(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		mounts := func() string {
			raw, err := os.ReadFile("/proc/self/mountinfo")
			require.NoError(t, err)
			return string(raw)
		}
		before := mounts()
		s := n.spec(t, "write", "/tmp/file:x", "stay", "", "marked as the container")
		s.Mounts = []Mount{{Source: t.TempDir(), Target: "/data"}}
		c := n.start(t, s, "staying")
		inside := n.joined(t, c, n.spec(t, "stay", "", "marked as joined"))
		awaitOutput(t, inside, "staying")
		require.Equal(t, before, mounts(), "its mounts are its own")
		require.Len(t, nstest.Processes(t, "marked as"), 2)

		c.kill(t)
		require.Error(t, inside.Wait())
		assert.Equal(t, 128+int(syscall.SIGKILL), inside.ProcessState.ExitCode(), "what has joined goes with it")
		assert.Empty(t, nstest.Processes(t, "marked as"))
		assert.Empty(t, entries(t, c.root))
		assert.Equal(t, before, mounts())
		require.NoError(t, os.Remove(c.root), "nothing is mounted there any more")
	})
}

func TestShim_SaysHowItIsCalled(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		for _, args := range [][]string{{}, {"run"}, {"join", "1"}, {"walk", "x"}} {
			cmd := n.command(t, n.spec(t))
			cmd.Args = append(cmd.Args[:1], args...)
			r := finish(t, cmd)
			assert.True(t, strings.HasPrefix(r.errors, "localkube-shim: usage: "), r.errors)
			assert.Equal(t, 2, r.code)
		}
	})
}
