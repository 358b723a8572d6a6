package shim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Exit codes of a shim that could not start the program, as in container runtimes.
const (
	ExitCannotJoin  = 126
	ExitCannotStart = 128
)

// StartedFD is the write end of a pipe. Run closes it, without writing, when it becomes the program or fails.
const StartedFD = 3

// umask of a container, independent of the machine's: its user must be able to read files that root creates there.
const umask = 0o022

// Run becomes the container's program. It returns only on error.
func Run(specFile string) error {
	runtime.LockOSThread()
	unix.CloseOnExec(StartedFD)
	s, err := Read(specFile)
	if err != nil {
		return err
	}
	unix.Umask(umask)
	if err := enterCgroups(s); err != nil {
		return err
	}
	if err := buildRoot(s); err != nil {
		return err
	}
	if s.Hostname != "" {
		if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
			return fmt.Errorf("sethostname: %w", err)
		}
	}
	if err := enterWorkDir(s); err != nil {
		return err
	}
	dropBoundingSet(s)
	if s.SetUser {
		if err := becomeUser(s); err != nil {
			return err
		}
	}
	if err := setNoNewPrivs(s); err != nil {
		return err
	}
	path, err := lookPath(s)
	if err != nil {
		return err
	}
	return unix.Exec(path, s.Args, s.Env)
}

// enterCgroups moves the process into its cgroups, before it becomes the program.
func enterCgroups(s *Spec) error {
	for _, dir := range s.Cgroups {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
}

func enterWorkDir(s *Spec) error {
	if s.Cwd == "" {
		s.Cwd = "/"
	}
	if err := os.MkdirAll(s.Cwd, 0o755); err != nil && !s.ReadOnlyRoot {
		return err
	}
	return os.Chdir(s.Cwd)
}

// dropBoundingSet keeps only the program's allowed capabilities: at exec, root gets these, and other users none.
func dropBoundingSet(s *Spec) {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if s.Capabilities&(1<<c) != 0 {
			continue
		}
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) // the kernel refuses unknown numbers
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
}

func setNoNewPrivs(s *Spec) error {
	if !s.NoNewPrivs {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

func becomeUser(s *Spec) error {
	ownStreams(s)
	if err := unix.Setgroups(s.Groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := unix.Setresgid(s.GID, s.GID, s.GID); err != nil {
		return fmt.Errorf("setgid: %w", err)
	}
	if err := unix.Setresuid(s.UID, s.UID, s.UID); err != nil {
		return fmt.Errorf("setuid: %w", err)
	}
	return nil
}

// ownStreams makes the container's user the owner of the pipes of stdin, stdout and stderr, like runc: a program may reopen
// /dev/stdout, and root created its pipe with mode 0600. It skips other files, which may be the machine's /dev/null.
func ownStreams(s *Spec) {
	for fd := range 3 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
			_ = unix.Fchown(fd, s.UID, -1) // it may fail, and few programs need it
		}
	}
}

// lookPath finds the program on the container's own PATH.
func lookPath(s *Spec) (string, error) {
	for _, e := range s.Env {
		if p, ok := strings.CutPrefix(e, "PATH="); ok {
			if err := os.Setenv("PATH", p); err != nil {
				return "", err
			}
		}
	}
	return exec.LookPath(s.Args[0])
}
