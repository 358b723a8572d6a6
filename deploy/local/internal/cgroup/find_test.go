package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// machine is a file system with cgroups: folders, and what is in files. DIR stands for its root.
func machine(t *testing.T, files map[string]string, folders ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range folders {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for name, content := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o600))
	}
	return root
}

const (
	v1Mounts = `24 1 0:21 / / rw - ext4 /dev/vda rw
30 24 0:26 / DIR/memory rw,nosuid shared:9 - cgroup cgroup rw,memory
31 24 0:27 / DIR/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / DIR/pids rw - cgroup cgroup rw,pids
33 24 0:29 / DIR/unified rw - cgroup2 cgroup rw,nsdelegate
`
	v2Mounts      = "30 24 0:26 / DIR rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	nestedMounts  = "30 24 0:26 /docker/7f DIR ro - cgroup cgroup rw,memory\n"
	foreignMounts = "30 24 0:26 /.. DIR ro - cgroup cgroup rw,memory\n"
)

func TestFind(t *testing.T) {
	t.Parallel()
	control := func(dir string) string { return filepath.Join(dir, "cgroup.subtree_control") }
	tests := []struct {
		name        string
		files       map[string]string
		folders     []string
		mounts, own string
		want        Tree // DIR stands for the machine's root
		wantErr     string
	}{
		{
			name: "v1: the caller's own in each hierarchy", folders: []string{"memory/a", "cpu,cpuacct/b", "pids"}, mounts: v1Mounts, own: "4:memory:/a\n3:cpu,cpuacct:/b\n2:pids:/\n0::/\n",
			want: Tree{Dirs: map[string]string{memory: "DIR/memory/a", cpu: "DIR/cpu,cpuacct/b", pids: "DIR/pids"}},
		},
		{name: "v1: what is mounted counts from there", folders: []string{"x"}, mounts: nestedMounts, own: "4:memory:/docker/7f/x\n", want: Tree{Dirs: map[string]string{memory: "DIR/x"}}},
		{name: "v1: the mount of another namespace", folders: []string{"x"}, mounts: foreignMounts, own: "4:memory:/x\n", want: Tree{Dirs: map[string]string{memory: "DIR/x"}}},
		{name: "v1: without a right to memory", mounts: v1Mounts, own: "4:memory:/gone\n", wantErr: "no right to make cgroups in DIR/memory/gone"},
		{
			name: "v2: the nearest whose children have memory", mounts: v2Mounts, own: "0::/user/app/terminal\n",
			files: map[string]string{control(""): "cpu memory pids", control("user"): "memory", control("user/app"): "cpu\n", control("user/app/terminal"): ""},
			want:  Tree{Unified: "DIR/user"},
		},
		{name: "v2: none has memory", mounts: v2Mounts, own: "0::/a\n", files: map[string]string{control(""): "cpu", control("a"): "hugetlb"}, wantErr: "no writable cgroup delegates the memory controller"},
		{name: "neither", mounts: "24 1 0:21 / / rw - ext4 /dev/vda rw\n", own: "0::/\n", wantErr: "cgroups are not mounted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := machine(t, tt.files, tt.folders...)
			got, err := find(parseMounts(strings.ReplaceAll(tt.mounts, "DIR", root)), parseOwn(tt.own))
			if tt.wantErr != "" {
				require.ErrorContains(t, err, strings.ReplaceAll(tt.wantErr, "DIR", root))
				return
			}
			require.NoError(t, err)
			want := Tree{Unified: strings.ReplaceAll(tt.want.Unified, "DIR", root), Dirs: map[string]string{}}
			for controller, dir := range tt.want.Dirs {
				want.Dirs[controller] = strings.ReplaceAll(dir, "DIR", root)
			}
			assert.Equal(t, want.Unified, got.Unified)
			if want.Unified == "" {
				assert.Equal(t, want.Dirs, got.Dirs)
			}
		})
	}
}
