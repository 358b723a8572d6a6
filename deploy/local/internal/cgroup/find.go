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

// mount is a hierarchy of cgroups in the file system.
type mount struct {
	root, point string // the cgroup that is mounted, and where
	kind        string // cgroup (v1) or cgroup2
	options     []string
}

// parseMounts reads the mounts of cgroups in a mountinfo file.
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

// parseOwn reads the caller's cgroups by controller; that of v2 has none.
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

// find returns the cgroup below which a cluster may have its own. Memory decides: what cannot limit that is of little use.
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

// folder is where a cgroup is in the file system.
func (m mount) folder(path string) string {
	below, ok := strings.CutPrefix(path, m.root)
	if !ok { // the mount is that of another cgroup namespace
		below = path
	}
	return filepath.Join(m.point, below)
}

// findUnified goes up from the caller's own cgroup, which has processes and so cannot have children with controllers, to one
// whose children have the memory controller.
func findUnified(m mount, own string) (*Tree, error) {
	for dir := m.folder(own); strings.HasPrefix(dir, m.point); dir = filepath.Dir(dir) {
		raw, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err == nil && slices.Contains(strings.Fields(string(raw)), memory) && unix.Access(dir, unix.W_OK) == nil {
			return &Tree{Unified: dir}, nil
		}
	}
	return nil, errors.New("no cgroup whose children have the memory controller may be written")
}
