package control

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// signalTree signals a process and all its descendants, and those that appear meanwhile.
func signalTree(root int, sig unix.Signal) error {
	done := map[int]bool{}
	for { // a process may fork before it is stopped: look again until there is nobody new
		parents, err := readParents()
		if err != nil {
			return err
		}
		fresh := false
		for _, pid := range descendants(root, parents) {
			if done[pid] {
				continue
			}
			done[pid], fresh = true, true
			if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("signal process %d: %w", pid, err)
			}
		}
		if !fresh {
			return nil
		}
	}
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
		if ppid, ok := parentOf(raw); ok {
			parents[pid] = ppid
		}
	}
	return parents, nil
}

// parentOf reads the parent's pid out of /proc/PID/stat: the second field behind the command's closing parenthesis.
func parentOf(stat []byte) (int, bool) {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0, false
	}
	ppid, err := strconv.Atoi(fields[1])
	return ppid, err == nil
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
