// Package proc stops and resumes processes, alone or with all their descendants, based on /proc.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stillTimeout is the timeout of AwaitStill; a busy machine needs milliseconds.
const stillTimeout = 5 * time.Second

// StopTree stops a process and all its descendants, including new ones, and returns when they have stopped.
func StopTree(root int) error {
	stopped, err := signalTree(root, unix.SIGSTOP)
	if err != nil {
		return err
	}
	for _, pid := range stopped {
		if err := AwaitStill(pid); err != nil {
			return err
		}
	}
	return nil
}

// ResumeTree resumes a process and all its descendants.
func ResumeTree(root int) error {
	_, err := signalTree(root, unix.SIGCONT)
	return err
}

// AwaitStill waits until no thread of a process runs, after SIGSTOP was sent to it. The signal wakes one thread, which stops
// the others: if CPUs are scarce, they continue until that thread gets one. A process that has ended counts as stopped.
func AwaitStill(pid int) error {
	for deadline := time.Now().Add(stillTimeout); ; time.Sleep(time.Millisecond) {
		busy, err := busyThread(pid)
		if err != nil || busy == "" {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d has not stopped: thread %s", pid, busy)
		}
	}
}

// busyThread returns a thread that may still run.
func busyThread(pid int) (string, error) {
	dir := fmt.Sprintf("/proc/%d/task/", pid)
	threads, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("list threads of process %d: %w", pid, err)
	}
	for _, t := range threads {
		raw, err := os.ReadFile(dir + t.Name() + "/stat")
		if err != nil {
			continue // it has just ended
		}
		if s, ok := parse(raw); ok && !s.still() {
			return t.Name() + " is in state " + s.state, nil
		}
	}
	return "", nil
}

// signalTree signals a process and all its descendants and returns them.
func signalTree(root int, sig unix.Signal) ([]int, error) {
	var list []int
	done := map[int]bool{}
	for { // a process may fork before it stops: repeat until there is no new one
		tree, err := Tree(root)
		if err != nil {
			return nil, err
		}
		fresh := false
		for _, pid := range tree {
			if done[pid] {
				continue
			}
			done[pid], fresh = true, true
			list = append(list, pid)
			if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
				return nil, fmt.Errorf("signal process %d: %w", pid, err)
			}
		}
		if !fresh {
			return list, nil
		}
	}
}

// Tree lists a process and all its descendants, parents first.
func Tree(root int) ([]int, error) {
	parents, err := readParents()
	if err != nil {
		return nil, err
	}
	return descendants(root, parents), nil
}

// readParents maps each process to its parent.
func readParents() (map[int]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	parents := map[int]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has just ended
		}
		if s, ok := parse(raw); ok {
			parents[pid] = s.parent
		}
	}
	return parents, nil
}

// descendants lists root and everything below it, parents first.
func descendants(root int, parents map[int]int) []int {
	children := map[int][]int{}
	for pid, ppid := range parents {
		children[ppid] = append(children[ppid], pid)
	}
	list := []int{root}
	for i := 0; i < len(list); i++ {
		list = append(list, children[list[i]]...)
	}
	return list
}

// stat contains the needed fields of /proc/PID/stat.
type stat struct {
	state  string
	parent int
}

// still reports whether a thread executes nothing: it has stopped or ended, or is in a system call that does not return
// before it stops.
func (s stat) still() bool { return strings.Contains("TtZXD", s.state) }

// parse parses the first two fields after the command's closing parenthesis.
func parse(raw []byte) (stat, bool) {
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 2 {
		return stat{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	return stat{state: fields[0], parent: parent}, err == nil
}
