package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// logName is the log file of a detached launcher in a cluster's folder.
	logName = "launcher.log"
	// stopTimeout is the maximum time for a launcher to end.
	stopTimeout = 30 * time.Second
	// stopInterval is the interval of checks whether it has ended.
	stopInterval = 20 * time.Millisecond
)

// ErrNotRunning means that there is no cluster to stop.
var ErrNotRunning = errors.New("no cluster is running")

// Detach launches a cluster in dir by running this program with args, and returns when it is ready; the cluster runs until
// Stop. The Ready line goes to out, the log until then to progress.
func Detach(dir string, args []string, out, progress io.Writer) error {
	unlock, err := claim(dir) // an error goes to the caller, not to the log
	if err != nil {
		return err
	}
	unlock()
	log, err := os.Create(filepath.Join(dir, logName))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ready, err := bufio.NewReader(stdout).ReadString('\n')
	story, readErr := os.ReadFile(log.Name())
	if readErr != nil {
		return readErr
	}
	if _, err := progress.Write(story); err != nil {
		return err
	}
	if err != nil { // it has ended
		_ = cmd.Wait() // it has logged the reason
		return ErrFailed
	}
	_, err = io.WriteString(out, ready)
	return err
}

// Stop stops the cluster in dir and removes the folder. Without a running cluster it removes the remains of an earlier one
// and returns ErrNotRunning.
func Stop(ctx context.Context, dir string) error {
	lock, err := os.Open(filepath.Join(dir, lockName))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w in %s", ErrNotRunning, dir)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := tryLock(lock); err == nil {
		return errors.Join(fmt.Errorf("%w in %s", ErrNotRunning, dir), os.RemoveAll(dir))
	}
	raw, err := io.ReadAll(lock)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return fmt.Errorf("read the launcher's process id in %s: %w", lock.Name(), err)
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end the launcher: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for tryLock(lock) != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of process %d: %w", pid, ctx.Err())
		case <-time.After(stopInterval):
		}
	}
	return os.RemoveAll(dir)
}

func tryLock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
