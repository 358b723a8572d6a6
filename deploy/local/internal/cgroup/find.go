package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is a mounted hierarchy of cgroups.
type mount struct {
	root, point string // the mounted cgroup, and its mount point
	kind        string // cgroup (v1) or cgroup2
	options     []string
}

// parseMounts parses the cgroup mounts of a mountinfo file.
func parseMounts(text string) []mount {
	var mounts []mount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(line, " - ")
		before, after := strings.Fields(left), strings.Fields(right)
		if !ok || len(before) < 5 || len(after) < 3 || !strings.HasPrefix(after[0], "cgroup") {
			continue
		}
		mounts = append(mounts, mount{root: before[3], point: before[4], kind: after[0], options: strings.Split(after[2], ",")})
	}
	return mounts
}

// parseOwn parses the caller's cgroups by controller; the v2 cgroup has none.
func parseOwn(text string) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		for _, controller := range strings.Split(fields[1], ",") {
			own[controller] = fields[2]
		}
	}
	return own
}

// find returns the cgroup in which a cluster can create its own. It requires the memory controller: without it cgroups are
// of little use.
func find(mounts []mount, own map[string]string) (*Tree, error) {
	t := &Tree{Dirs: map[string]string{}}
	for _, controller := range []string{memory, cpu, pids} {
		i := slices.IndexFunc(mounts, func(m mount) bool { return m.kind == "cgroup" && slices.Contains(m.options, controller) })
		if i < 0 {
			continue
		}
		dir := mounts[i].folder(own[controller])
		if err := unix.Access(dir, unix.W_OK); err == nil {
			t.Dirs[controller] = dir
		} else if controller == memory {
			return nil, fmt.Errorf("no right to make cgroups in %s: %w", dir, err)
		}
	}
	if t.Dirs[memory] != "" {
		return t, nil
	}
	i := slices.IndexFunc(mounts, func(m mount) bool { return m.kind == "cgroup2" })
	if i < 0 {
		return nil, errors.New("cgroups are not mounted")
	}
	return findUnified(mounts[i], own[""])
}

// folder returns the path of a cgroup in the file system.
func (m mount) folder(path string) string {
	below, ok := strings.CutPrefix(path, m.root)
	if !ok { // the mount belongs to another cgroup namespace
		below = path
	}
	return filepath.Join(m.point, below)
}

// findUnified searches upward from the caller's own cgroup, which has processes and so cannot have children with
// controllers, for one whose children have the memory controller.
func findUnified(m mount, own string) (*Tree, error) {
	for dir := m.folder(own); strings.HasPrefix(dir, m.point); dir = filepath.Dir(dir) {
		raw, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err == nil && slices.Contains(strings.Fields(string(raw)), memory) && unix.Access(dir, unix.W_OK) == nil {
			return &Tree{Unified: dir}, nil
		}
	}
	return nil, errors.New("no writable cgroup delegates the memory controller")
}
