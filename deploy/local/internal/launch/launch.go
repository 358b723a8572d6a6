// Package launch is the host's side of a cluster: it opens the host's listeners, creates the namespaces and runs the control
// process (package control) in them, until one of both ends.
package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/deploy/local/internal/control"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

const (
	// ControlCommand is the sub-command of this binary for the control process.
	ControlCommand = "control"
	// lockName is a file that marks a cluster's folder. It is locked while the cluster runs.
	lockName = ".localkube-lock"
	// idRange is the number of user IDs that root maps into the cluster.
	idRange = 1 << 16
)

// Params are the parameters of Run.
type Params struct {
	Config   clusterapi.Config
	Shim     string    // the localkube-shim binary
	Out      io.Writer // receives the Ready line
	Progress io.Writer // receives the log for people
}

// Run launches a cluster. It returns when ctx ends or when the cluster cannot run; only the folder remains. Call it on a
// thread that lives as long as the process: the cluster dies with that thread.
func Run(ctx context.Context, p Params) error {
	started := time.Now()
	unlock, err := claim(p.Config.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	ids := mappableIDs()
	h := control.Handover{Config: p.Config, Shim: p.Shim, UserRange: ids > 1, Started: started}
	tidy := limit(&h)
	defer tidy()
	files, err := listen(&h)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(h)
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", ControlCommand)
	cmd.Env = append(os.Environ(), control.Env+"="+string(raw))
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = p.Out, p.Progress, files
	cmd.SysProcAttr = namespaces(ids)
	if err := cmd.Start(); err != nil {
		return explain(err)
	}
	return await(ctx, cmd, p.Config.Dir)
}

// await returns when the control process has ended. It kills it when ctx ends or the disk of dir is full.
func await(ctx context.Context, cmd *exec.Cmd, dir string) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	full := make(chan error, 1)
	watch, stop := context.WithCancel(ctx)
	defer stop()
	go watchDisk(watch, dir, full)
	var err error
	select {
	case err := <-ended:
		if ctx.Err() == nil {
			return outcome(err)
		}
		return nil
	case err = <-full:
	case <-ctx.Done():
	}
	// Its end also ends all processes of its pid namespace; none of them needs a graceful shutdown.
	_ = cmd.Process.Kill()
	<-ended
	return err
}

// mappableIDs returns the number of user IDs that the cluster can have: a range for root, so that containers can have their
// own IDs; one for other users, and for a root that has only one, as in a container without a range.
func mappableIDs() int {
	if os.Getuid() != 0 {
		return 1
	}
	for _, file := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		raw, err := os.ReadFile(file)
		if err != nil || !mapsRange(string(raw)) {
			return 1
		}
	}
	return idRange
}

// mapsRange reports whether the lines of an ID map (first ID inside, first ID outside, number) contain a whole range from 0.
func mapsRange(idMap string) bool {
	for line := range strings.Lines(idMap) {
		var inside, outside, count int64
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err == nil && inside == 0 && count >= idRange {
			return true
		}
	}
	return false
}

// namespaces returns the attributes that make the control process the first one of new namespaces, with that many user IDs.
func namespaces(ids int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: ids}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: ids}},
		GidMappingsEnableSetgroups: ids > 1,
		Pdeathsig:                  unix.SIGKILL, // and its pid namespace with it
		Setpgid:                    true,         // Ctrl-C must reach only this process
	}
}

// explain adds the fix to an error of a kernel that refuses namespaces.
func explain(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EUSERS) {
		return fmt.Errorf("make namespaces: %w: this system forbids user namespaces; run as root, or allow them with "+
			"sysctl user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 (those that exist)", err)
	}
	return fmt.Errorf("make namespaces: %w", err)
}

// outcome interprets the control process's end. The control process has logged the cause.
func outcome(err error) error {
	if err == nil {
		return errors.New("the cluster ended unexpectedly")
	}
	return ErrFailed
}

// ErrFailed means that the cluster failed and has already logged the reason.
var ErrFailed = errors.New("the cluster did not start or ended")

// claim reserves a folder for one cluster: it must be empty, or contain an earlier one, which claim removes.
func claim(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, lockName)
	if _, err := os.Stat(file); len(entries) > 0 && err != nil {
		return nil, fmt.Errorf("%s is not empty and contains no cluster; name another folder for the state", dir)
	}
	lock, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := tryLock(lock); err != nil {
		lock.Close()
		return nil, fmt.Errorf("a cluster is running in %s already; stop it, or name another folder", dir)
	}
	for _, e := range entries {
		if e.Name() == lockName || e.Name() == logName { // a detached launcher has already created its log
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			lock.Close()
			return nil, fmt.Errorf("remove the earlier cluster: %w", err)
		}
	}
	if err := errors.Join(enoughRoom(dir), sign(lock)); err != nil {
		lock.Close()
		return nil, err
	}
	return func() { lock.Close() }, nil
}

// sign writes the holder of the lock into it.
func sign(lock *os.File) error {
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return err
}

// listen opens the host's listeners, the API server's first, and records their actual addresses.
func listen(h *control.Handover) ([]*os.File, error) {
	files, addrs := []*os.File{}, []string{}
	hosts := []string{h.Config.APIAddress}
	for _, p := range h.Config.Publish {
		hosts = append(hosts, p.Host)
	}
	for _, host := range hosts {
		ln, err := net.Listen("tcp4", host)
		if errors.Is(err, unix.EADDRINUSE) {
			return files, fmt.Errorf("host address %s is in use; name another (port 0 takes a free one)", host)
		}
		if err != nil {
			return files, fmt.Errorf("listen on host address %s: %w", host, err)
		}
		f, err := ln.(*net.TCPListener).File()
		addrs = append(addrs, ln.Addr().String())
		ln.Close()
		if err != nil {
			return files, fmt.Errorf("hand over listener: %w", err)
		}
		files = append(files, f)
	}
	h.APIAddress, h.Published = addrs[0], addrs[1:]
	return files, nil
}
