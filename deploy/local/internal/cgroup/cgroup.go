// Package cgroup limits memory, CPU time and processes of containers if the machine permits it: in cgroup v1 hierarchies
// below the caller's own cgroup, or in the nearest v2 cgroup whose children have the memory controller. A cluster has its
// own tree: one cgroup for the cluster, one for each of its nodes, and in those one for each container.
//
// A process enters a cgroup by writing 0 to cgroup.procs in each of the Folders.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Controllers that support limits.
const (
	memory = "memory"
	cpu    = "cpu"
	pids   = "pids"
)

// maxProcesses is the limit of a container's processes and threads. It keeps the machine usable, like the pod limit of a
// node.
const maxProcesses = 4096

// clusterShares is the CPU weight of a cluster's containers with a quota, compared with 1024 for any other process.
const clusterShares = 8192

// retryInterval is the interval of attempts to remove a cgroup: the kernel releases it some time after its processes have
// ended.
const retryInterval = 10 * time.Millisecond

// Tree is one cgroup, or with v1 one in each hierarchy.
type Tree struct {
	Unified string            `json:"unified,omitempty"` // the folder, with v2
	Dirs    map[string]string `json:"dirs,omitempty"`    // the folders by controller, with v1
}

// Limits are the limits of a container; 0 means no limit.
type Limits struct {
	MemoryBytes int64
	// CPUQuota is the CPU time of a CPUPeriod, both in microseconds.
	CPUQuota, CPUPeriod int64
}

// New creates the tree of a cluster, or returns the reason why it cannot.
func New(name string) (*Tree, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	parent, err := find(parseMounts(string(mounts)), parseOwn(string(own)))
	if err != nil {
		return nil, err
	}
	t, err := parent.child(name, []string{memory, cpu, pids})
	if err != nil {
		return nil, err
	}
	if dir := t.Dirs[cpu]; dir != "" {
		err = t.write(dir, "cpu.shares", strconv.Itoa(clusterShares))
	}
	return t, err
}

// Container creates the cgroup of a container below its node's. Only with a quota does it have its own share of the CPU.
func (t *Tree) Container(name string, l Limits) (*Tree, error) {
	controllers := []string{memory, pids}
	if l.CPUQuota > 0 {
		controllers = append(controllers, cpu)
	}
	if err := t.delegate(); err != nil {
		return nil, err
	}
	c, err := t.child(name, controllers)
	if err != nil {
		return nil, err
	}
	if err := c.Limit(l); err != nil {
		return nil, errors.Join(err, c.Remove(0))
	}
	return c, nil
}

// Node creates the cgroup of a node below its cluster's. It removes remains of an earlier boot.
func (t *Tree) Node(name string, timeout time.Duration) (*Tree, error) {
	if err := t.delegate(); err != nil {
		return nil, err
	}
	n, err := t.child(name, []string{memory, cpu, pids})
	if err != nil {
		return nil, err
	}
	return n, n.removeChildren(timeout)
}

// child creates a cgroup below t with the controllers.
func (t *Tree) child(name string, controllers []string) (*Tree, error) {
	if t.Unified != "" {
		c := &Tree{Unified: filepath.Join(t.Unified, name)}
		return c, makeDir(c.Unified)
	}
	c := &Tree{Dirs: map[string]string{}}
	for controller, dir := range t.Dirs {
		if !slices.Contains(controllers, controller) {
			continue
		}
		c.Dirs[controller] = filepath.Join(dir, name)
		if err := makeDir(c.Dirs[controller]); err != nil {
			return nil, errors.Join(err, c.Remove(0))
		}
	}
	return c, nil
}

func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make cgroup: %w", err)
	}
	return nil
}

// delegate makes the available controllers of a v2 cgroup available to its children.
func (t *Tree) delegate() error {
	if t.Unified == "" {
		return nil
	}
	raw, err := os.ReadFile(filepath.Join(t.Unified, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(raw)) {
		if slices.Contains([]string{memory, cpu, pids}, controller) {
			if err := t.write(t.Unified, "cgroup.subtree_control", "+"+controller); err != nil {
				return err
			}
		}
	}
	return nil
}

// Limit sets the limits of a container.
func (t *Tree) Limit(l Limits) error {
	if t.Unified != "" {
		return t.limitUnified(l)
	}
	if dir := t.Dirs[memory]; dir != "" && l.MemoryBytes > 0 {
		if err := t.write(dir, "memory.limit_in_bytes", strconv.FormatInt(l.MemoryBytes, 10)); err != nil {
			return err
		}
	}
	if dir := t.Dirs[pids]; dir != "" {
		if err := t.write(dir, "pids.max", strconv.Itoa(maxProcesses)); err != nil {
			return err
		}
	}
	if dir := t.Dirs[cpu]; dir != "" && l.CPUQuota > 0 {
		if err := t.write(dir, "cpu.cfs_period_us", strconv.FormatInt(l.CPUPeriod, 10)); err != nil {
			return err
		}
		return t.write(dir, "cpu.cfs_quota_us", strconv.FormatInt(l.CPUQuota, 10))
	}
	return nil
}

func (t *Tree) limitUnified(l Limits) error {
	settings := [][2]string{{"memory.oom.group", "1"}, {"pids.max", strconv.Itoa(maxProcesses)}}
	if l.MemoryBytes > 0 {
		settings = append(settings, [2]string{"memory.max", strconv.FormatInt(l.MemoryBytes, 10)})
	}
	if l.CPUQuota > 0 {
		settings = append(settings, [2]string{"cpu.max", fmt.Sprintf("%d %d", l.CPUQuota, l.CPUPeriod)})
	}
	for _, s := range settings {
		// Files of controllers that the machine does not delegate are missing.
		if err := t.write(t.Unified, s[0], s[1]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (*Tree) write(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0) // O_CREATE would be refused
	if err != nil {
		return fmt.Errorf("limit cgroup: %w", err)
	}
	defer f.Close()
	if _, err := f.WriteString(value); err != nil {
		return fmt.Errorf("limit cgroup to %s: %w", value, err)
	}
	return nil
}

// Folders returns the folders of the tree by their paths in a container.
func (t *Tree) Folders() map[string]string {
	if t.Unified != "" {
		return map[string]string{"/sys/fs/cgroup": t.Unified}
	}
	folders := map[string]string{}
	for controller, dir := range t.Dirs {
		folders["/sys/fs/cgroup/"+controller] = dir
	}
	return folders
}

// OOMKilled reports whether the kernel has killed a process of a container because of its memory limit.
func (t *Tree) OOMKilled() bool {
	file := filepath.Join(t.Dirs[memory], "memory.oom_control")
	if t.Unified != "" {
		file = filepath.Join(t.Unified, "memory.events")
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(n) != "0"
		}
	}
	return false
}

// Roots returns the folders of the tree.
func (t *Tree) Roots() []string {
	if t.Unified != "" {
		return []string{t.Unified}
	}
	var dirs []string
	for _, dir := range t.Dirs {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs
}

// Remove removes the cgroup and its children after their processes have ended, which it awaits for at most timeout.
func (t *Tree) Remove(timeout time.Duration) error {
	return Tidy(t.Roots(), timeout)
}

func (t *Tree) removeChildren(timeout time.Duration) error {
	var errs []error
	for _, dir := range t.Roots() {
		for _, child := range children(dir) {
			errs = append(errs, remove(child, timeout))
		}
	}
	return errors.Join(errs...)
}

func children(dir string) []string {
	entries, _ := os.ReadDir(dir) // a missing folder is empty
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(dir, e.Name()))
		}
	}
	return dirs
}

// Tidy removes cgroups from Roots, and their children, after their processes have ended.
func Tidy(roots []string, timeout time.Duration) error {
	var errs []error
	for _, dir := range roots {
		errs = append(errs, remove(dir, timeout))
	}
	return errors.Join(errs...)
}

// remove removes a cgroup, its children first.
func remove(dir string, timeout time.Duration) error {
	for _, child := range children(dir) {
		if err := remove(child, timeout); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(timeout); ; time.Sleep(retryInterval) {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
	}
}
