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
	// logName is the file in a cluster's folder to which a detached launcher tells its story.
	logName = "launcher.log"
	// stopTimeout is what a launcher has to end.
	stopTimeout = 30 * time.Second
	// stopInterval is how often its end is looked for.
	stopInterval = 20 * time.Millisecond
)

// ErrNotRunning says that there is no cluster to stop.
var ErrNotRunning = errors.New("no cluster is running")

// Detach launches a cluster in dir by calling this program with args, and returns once it is ready; it runs on until Stop. The
// Ready line goes to out, the story so far to progress.
func Detach(dir string, args []string, out, progress io.Writer) error {
	unlock, err := claim(dir) // an error is for the caller, not for the log
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
		_ = cmd.Wait() // and said why
		return ErrFailed
	}
	_, err = io.WriteString(out, ready)
	return err
}

// Stop ends the cluster in dir and removes the folder. It returns ErrNotRunning, and removes what an earlier one left, if there is
// no cluster.
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
