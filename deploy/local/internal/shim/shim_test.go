package shim

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"fairlead.dev/deploy/local/internal/nstest"
	"fairlead.dev/pkg/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(nstest.Exit)) }

const tick = 5 * time.Millisecond

// node is a machine that has the shim and an image: the probe as /app/probe, two files and /tmp.
type node struct{ shim, image string }

// onNode runs f as root of namespaces of their own.
func onNode(t *testing.T, f func(t *testing.T, n *node)) {
	t.Helper()
	shim, probe := nstest.Program(t, nstest.Shim), nstest.Program(t, nstest.Probe)
	nstest.Inside(t, func(t *testing.T) {
		n := &node{shim: shim, image: t.TempDir()}
		program, err := os.ReadFile(probe)
		require.NoError(t, err)
		n.write(t, "app/probe", string(program), 0o755)
		n.write(t, "app/data", "from the image", 0o644)
		n.write(t, "top", "at the top", 0o644)
		require.NoError(t, os.Mkdir(filepath.Join(n.image, "tmp"), 0o755))
		require.NoError(t, os.Chmod(filepath.Join(n.image, "tmp"), 0o777|os.ModeSticky))
		f(t, n)
	})
}

// write puts a file into the image.
func (n *node) write(t *testing.T, name, content string, mode os.FileMode) {
	t.Helper()
	file := filepath.Join(n.image, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(content), mode))
	require.NoError(t, os.Chmod(file, mode))
}

// spec is a container of the image in which the probe does what args say.
func (n *node) spec(t *testing.T, args ...string) *Spec {
	t.Helper()
	return &Spec{Root: t.TempDir(), Image: n.image, Args: append([]string{"/app/probe"}, args...), Env: []string{"PATH=/app"}}
}

// command prepares the shim as the container runtime does.
func (n *node) command(t *testing.T, s *Spec, args ...string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(t.TempDir(), "spec.json")
	require.NoError(t, s.Write(file))
	cmd := exec.Command(n.shim, append(args, file)...)
	cmd.Env = []string{"SHIM=this is not for the program"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// result is what came of a program.
type result struct {
	out, errors string
	code        int
}

// run runs a container to its end.
func (n *node) run(t *testing.T, s *Spec) result {
	t.Helper()
	cmd := n.command(t, s, "run")
	cmd.SysProcAttr.Cloneflags = ownNamespaces
	return finish(t, cmd)
}

const ownNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// lines runs a container that must end well and splits its output.
func (n *node) lines(t *testing.T, s *Spec) []string {
	t.Helper()
	r := n.run(t, s)
	require.Equal(t, result{out: r.out}, r)
	return strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return result{out.String(), complaints.String(), cmd.ProcessState.ExitCode()}
}

// running is a container whose program waits.
type running struct {
	cmd  *exec.Cmd
	root string
}

// start starts a container whose program says so when it waits.
func (n *node) start(t *testing.T, s *Spec, says string) *running {
	t.Helper()
	cmd := n.command(t, s, "run")
	cmd.SysProcAttr.Cloneflags = ownNamespaces
	awaitOutput(t, cmd, says)
	c := &running{cmd: cmd, root: s.Root}
	t.Cleanup(func() { c.kill(t) })
	return c
}

// awaitOutput starts a command and waits until it has written a line.
func awaitOutput(t *testing.T, cmd *exec.Cmd, line string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "output")
	out, err := os.Create(file)
	require.NoError(t, err)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		raw, err := os.ReadFile(file)
		require.NoError(collect, err)
		assert.Contains(collect, string(raw), line+"\n")
	}, kubetest.Patience, tick)
}

// kill ends the container's first process, as the runtime does.
func (c *running) kill(t *testing.T) {
	t.Helper()
	if c.cmd.ProcessState == nil {
		require.NoError(t, c.cmd.Process.Kill())
		_ = c.cmd.Wait() // it was killed
	}
}

// joined prepares a program in the running container.
func (n *node) joined(t *testing.T, c *running, s *Spec) *exec.Cmd {
	t.Helper()
	return n.command(t, s, "join", strconv.Itoa(c.cmd.Process.Pid))
}
