package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// ExecSync runs argv in the container and returns its output, for probes and hooks.
func (r *Runtime) ExecSync(ctx context.Context, id string, argv []string, timeout time.Duration) ([]byte, []byte, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var stdout, stderr bytes.Buffer
	err := r.exec(ctx, id, argv, streams{stdout: &stdout, stderr: &stderr})
	if ctx.Err() != nil {
		err = status.Errorf(codes.DeadlineExceeded, "%s did not end within %s", argv[0], timeout)
	}
	return stdout.Bytes(), stderr.Bytes(), err
}

// streams are the program's input and outputs; nil means none.
type streams struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

func (r *Runtime) exec(ctx context.Context, id string, argv []string, std streams) error {
	c, s, err := r.container(id)
	if err != nil {
		return err
	}
	dir := filepath.Join(c.dir, "exec-"+newID())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file, err := r.writeSpec(c, s, argv, dir)
	if err != nil {
		return err
	}
	pid, err := r.runningPID(c)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, r.Shim, "join", strconv.Itoa(pid), file)
	cmd.Env = shimEnv
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// The program is the shim's child, in its process group: killing only the shim would leave it running.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Stdout, cmd.Stderr = std.stdout, std.stderr
	cmd.WaitDelay = time.Second
	if err := pipeInput(cmd, std.stdin); err != nil {
		return err
	}
	err = cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		reap(cmd.Process.Pid)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

// pipeInput copies in to the program. If it were cmd.Stdin, Run would wait for its end, and a terminal outlives the program.
func pipeInput(cmd *exec.Cmd, in io.Reader) error {
	if in == nil {
		return nil
	}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(pipe, in) // the program need not read all of it
		pipe.Close()
	}()
	return nil
}

// reap waits for the processes of a killed process group, which the node's first process, this one, inherits. A container
// does not end while one of its processes is a zombie.
func reap(group int) {
	for {
		if _, err := unix.Wait4(-group, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return // no child is left
		}
	}
}

func (r *Runtime) runningPID(c *container) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return 0, status.Errorf(codes.FailedPrecondition, "container %s is not running", c.id)
	}
	return c.cmd.Process.Pid, nil
}

// Exec returns the URL of a command's stream.
func (r *Runtime) Exec(_ context.Context, q *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return r.stream.GetExec(q)
}

// PortForward returns the URL of a port's stream.
func (r *Runtime) PortForward(_ context.Context, q *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return r.stream.GetPortForward(q)
}

// streamer serves the streams that Exec and PortForward announce.
type streamer struct{ r *Runtime }

// Exec runs argv with its streams connected to the caller's. There is no terminal.
//
//nolint:revive // argument-limit: the streaming library's signature
func (s streamer) Exec(ctx context.Context, id string, argv []string, in io.Reader, stdout, stderr io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize) error {
	return s.r.exec(ctx, id, argv, streams{stdin: in, stdout: stdout, stderr: stderr})
}

// Attach is not supported: the program's output goes only to its log.
func (s streamer) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool,
	<-chan remotecommand.TerminalSize) error {
	return errUnimplemented("attach")
}

// PortForward connects the stream to a port on the pod's loopback.
func (s streamer) PortForward(ctx context.Context, sandboxID string, port int32, stream io.ReadWriteCloser) error {
	s.r.mu.Lock()
	b := s.r.sandboxes[sandboxID]
	s.r.mu.Unlock()
	if b == nil {
		return status.Errorf(codes.NotFound, "no sandbox %s", sandboxID)
	}
	var conn net.Conn
	dial := func() (err error) {
		conn, err = (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		return err
	}
	if err := s.r.within(b, dial); err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, stream)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err := io.Copy(stream, conn)
	return err
}
