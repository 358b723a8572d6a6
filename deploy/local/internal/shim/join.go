package shim

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaces to join; mnt is last, because /proc/PID is resolved in ours.
var namespaces = []struct {
	name string
	flag int
}{
	{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"net", unix.CLONE_NEWNET}, {"pid", unix.CLONE_NEWPID},
	{"mnt", unix.CLONE_NEWNS},
}

// Join runs the spec's program inside the running container whose first process is pid: with its files, its /tmp and its
// processes. It returns the program's exit code.
//
// The program stays in the shim's process group, so that killing the group ends both. Process 1 then has to reap the
// program: the container's first process cannot end while its namespace has a zombie.
func Join(pid, specFile string) (int, error) {
	runtime.LockOSThread()
	s, err := Read(specFile)
	if err != nil {
		return 0, err
	}
	if err := enterCgroups(s); err != nil {
		return 0, err
	}
	if err := enterNamespaces(pid); err != nil {
		return 0, err
	}
	unix.Umask(umask)
	if s.Cwd == "" {
		s.Cwd = "/"
	}
	if err := os.Chdir(s.Cwd); err != nil { // before the search for the program, whose path may be relative
		return 0, err
	}
	path, err := lookPath(s)
	if err != nil {
		return 0, err
	}
	dropBoundingSet(s)
	if err := setNoNewPrivs(s); err != nil {
		return 0, err
	}
	// No Pdeathsig: Go compares getppid afterwards, which is 0 across pid namespaces, and would kill the child at once.
	cmd := &exec.Cmd{Path: path, Args: s.Args, Env: s.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{}}
	if s.SetUser {
		ownStreams(s)
		cmd.SysProcAttr.Credential = credential(s)
	}
	return exitCode(cmd)
}

func enterNamespaces(pid string) error {
	// A thread that shares its cwd and root with others may not change its mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare fs: %w", err)
	}
	fds := make([]int, len(namespaces))
	for i, ns := range namespaces {
		fd, err := unix.Open("/proc/"+pid+"/ns/"+ns.name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s namespace of %s: %w", ns.name, pid, err)
		}
		fds[i] = fd
	}
	for i, ns := range namespaces {
		if err := unix.Setns(fds[i], ns.flag); err != nil {
			return fmt.Errorf("join %s namespace: %w", ns.name, err)
		}
	}
	return nil
}

func credential(s *Spec) *syscall.Credential {
	c := &syscall.Credential{Uid: uint32(s.UID), Gid: uint32(s.GID)}
	for _, g := range s.Groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}

func exitCode(cmd *exec.Cmd) (int, error) {
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}
