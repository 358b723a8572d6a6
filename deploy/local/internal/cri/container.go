package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"fairlead.dev/deploy/local/internal/cgroup"
)

// CreateContainer registers a container without starting it.
func (r *Runtime) CreateContainer(_ context.Context, sandboxID string, cfg *runtimeapi.ContainerConfig,
	pod *runtimeapi.PodSandboxConfig) (string, error) {
	img, err := r.resolve(cfg.Image.GetImage())
	if err != nil {
		return "", imageError(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sandboxes[sandboxID] == nil {
		return "", status.Errorf(codes.NotFound, "no sandbox %s", sandboxID)
	}
	c := &container{id: newID(), sandbox: sandboxID, config: cfg, image: img, created: time.Now().UnixNano(),
		state: runtimeapi.ContainerState_CONTAINER_CREATED, logPath: filepath.Join(pod.LogDirectory, cfg.LogPath),
		done: make(chan struct{})}
	c.dir = filepath.Join(r.Dir, "containers", c.id)
	if err := os.MkdirAll(filepath.Join(c.dir, "root"), 0o755); err != nil {
		return "", err
	}
	r.containers[c.id] = c
	return c.id, nil
}

// StartContainer starts the container's program in its pod's network, and returns when it runs.
func (r *Runtime) StartContainer(_ context.Context, id string) error {
	c, s, err := r.container(id)
	if err != nil {
		return err
	}
	if s == nil {
		return status.Errorf(codes.NotFound, "no sandbox %s", c.sandbox)
	}
	argv, err := c.argv()
	if err != nil {
		return err
	}
	if err := r.limit(c); err != nil {
		return err
	}
	cmd, err := r.command(c, s, argv)
	if err != nil {
		return err
	}
	if c.log, err = openLog(c.logPath); err != nil {
		return err
	}
	var copies sync.WaitGroup
	outputs, err := c.pipeOutputs(cmd, &copies)
	var started *os.File
	if err == nil {
		started, err = r.start(s, cmd)
	}
	for _, f := range outputs {
		f.Close()
	}
	if err != nil {
		copies.Wait()
		c.log.close()
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	r.mu.Lock()
	c.cmd, c.state, c.started = cmd, runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	r.mu.Unlock()
	go r.wait(c, &copies)
	defer started.Close()
	_, _ = started.Read(make([]byte, 1)) // returns at the end of the file
	return nil
}

// cgroupTimeout is the maximum time for the kernel to release a cgroup whose processes have ended.
const cgroupTimeout = time.Second

// limit creates the container's cgroup.
func (r *Runtime) limit(c *container) error {
	if r.Cgroups == nil {
		return nil
	}
	res := c.config.GetLinux().GetResources()
	var err error
	c.cgroup, err = r.Cgroups.Container(c.id,
		cgroup.Limits{MemoryBytes: res.GetMemoryLimitInBytes(), CPUQuota: res.GetCpuQuota(), CPUPeriod: res.GetCpuPeriod()})
	return err
}

func (c *container) argv() ([]string, error) {
	entry, args := c.config.Command, c.config.Args
	if len(entry) == 0 {
		entry = c.image.Config.Entrypoint
		if len(args) == 0 {
			args = c.image.Config.Cmd
		}
	}
	argv := append(append([]string(nil), entry...), args...)
	if len(argv) == 0 {
		return nil, errors.New("neither the image nor the container names a command")
	}
	return argv, nil
}

// pipeOutputs copies the program's output to the container's log. It returns our copies of the pipes' write ends.
func (c *container) pipeOutputs(cmd *exec.Cmd, copies *sync.WaitGroup) ([]*os.File, error) {
	var writers []*os.File
	for _, stream := range []string{"stdout", "stderr"} {
		rd, wr, err := os.Pipe()
		if err != nil {
			return writers, err
		}
		writers = append(writers, wr)
		copies.Go(func() {
			defer rd.Close()
			c.log.copy(stream, rd)
		})
	}
	cmd.Stdout, cmd.Stderr = writers[0], writers[1]
	return writers, nil
}

// start starts the shim. The returned file ends when the program runs: a process that joined the container earlier, such as
// a hook, would not see its files.
func (r *Runtime) start(s *sandbox, cmd *exec.Cmd) (*os.File, error) {
	started, end, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer end.Close()
	cmd.ExtraFiles = []*os.File{end} // shim.StartedFD
	if err := r.within(s, cmd.Start); err != nil {
		started.Close()
		return nil, err
	}
	return started, nil
}

// wait records the container's end.
func (r *Runtime) wait(c *container, copies *sync.WaitGroup) {
	_ = c.cmd.Wait() // the state contains the result
	copies.Wait()
	c.log.close()
	code := exitCode(c.cmd.ProcessState)
	r.mu.Lock()
	defer r.mu.Unlock()
	c.exitCode, c.reason = code, "Completed"
	if code != 0 {
		c.reason = "Error"
	}
	if c.cgroup != nil {
		if code != 0 && c.cgroup.OOMKilled() {
			c.reason = "OOMKilled"
		}
		if err := c.cgroup.Remove(cgroupTimeout); err != nil {
			klog.ErrorS(err, "Cgroup stays until the node ends")
		}
	}
	c.state, c.ended = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now().UnixNano()
	close(c.done)
}

func exitCode(st *os.ProcessState) int32 {
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int32(ws.Signal())
	}
	return int32(st.ExitCode())
}

// StopContainer sends the stop signal, waits up to timeout seconds, then kills the container. The kernel ends the other
// processes of its pid namespace with its first process. A missing container counts as stopped.
func (r *Runtime) StopContainer(ctx context.Context, id string, timeout int64) error {
	r.mu.Lock()
	c := r.containers[id]
	if c == nil || c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		r.mu.Unlock()
		return nil
	}
	cmd := c.cmd
	r.mu.Unlock()
	if timeout > 0 {
		_ = cmd.Process.Signal(stopSignal(c.config.StopSignal))
		select {
		case <-c.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(timeout) * time.Second):
		}
	}
	_ = cmd.Process.Kill()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func stopSignal(s runtimeapi.Signal) syscall.Signal {
	if s != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		if n := unix.SignalNum(strings.TrimPrefix(s.String(), "SIGNAL_")); n != 0 {
			return n
		}
	}
	return syscall.SIGTERM
}

// RemoveContainer removes a container, its files and its log.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	if err := r.StopContainer(ctx, id, 0); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		_ = os.RemoveAll(c.dir)
		_ = os.Remove(c.logPath)
		delete(r.containers, id)
	}
	return nil
}

// ListContainers lists containers.
func (r *Runtime) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.Container
	for _, c := range r.containers {
		if f.GetId() != "" && f.GetId() != c.id || f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox ||
			f.GetState() != nil && f.GetState().State != c.state || !matches(c.config.Labels, f.GetLabelSelector()) {
			continue
		}
		out = append(out, &runtimeapi.Container{Id: c.id, PodSandboxId: c.sandbox, Metadata: c.config.Metadata, Image: c.config.Image,
			ImageRef: c.imageRef(), ImageId: c.image.ID, State: c.state, CreatedAt: c.created,
			Labels: c.config.Labels, Annotations: c.config.Annotations})
	}
	return out, nil
}

// ContainerStatus describes one container. Its image has the user's name for it, because the kubelet compares them.
func (r *Runtime) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "no container %s", id)
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: c.id, Metadata: c.config.Metadata, State: c.state,
		CreatedAt: c.created, StartedAt: c.started, FinishedAt: c.ended, ExitCode: c.exitCode, Reason: c.reason,
		Image: &runtimeapi.ImageSpec{Image: c.config.Image.GetUserSpecifiedImage()}, ImageRef: c.imageRef(), ImageId: c.image.ID,
		Labels: c.config.Labels, Annotations: c.config.Annotations, Mounts: c.config.Mounts, LogPath: c.logPath,
		StopSignal: c.config.StopSignal}}, nil
}

// imageRef is the imageID in a pod's status: the image's digest in its registry.
func (c *container) imageRef() string {
	if len(c.image.Digests) > 0 {
		return c.image.Digests[0]
	}
	return c.image.ID
}

// ReopenContainerLog reopens the log after a rotation.
func (r *Runtime) ReopenContainerLog(_ context.Context, id string) error {
	c, _, err := r.container(id)
	if err != nil {
		return err
	}
	if c.log == nil {
		return status.Errorf(codes.FailedPrecondition, "container %s has not started", id)
	}
	return c.log.reopen()
}
