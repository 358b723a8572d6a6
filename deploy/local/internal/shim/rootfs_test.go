package shim

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const readOnly = "read-only file system"

func TestRun_RootIsTheImageWithDevicesAndProcAndNothingElse(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		outside := filepath.Join(t.TempDir(), "outside")
		require.NoError(t, os.WriteFile(outside, nil, 0o644))
		n.write(t, "etc/passwd", "the image's", 0o644)
		n.write(t, "dev/image", "hidden", 0o644)
		s := n.spec(t, "list", "/", "list", "/etc", "cat", "/etc/passwd", "cat", "/etc/deeper/file", "cat", "/app/data", "cat", "/top", "cat", outside)
		s.Files = map[string]string{"etc/resolv.conf": "written", "etc/deeper/file": "written"}
		assert.Equal(t, []string{"app dev etc proc tmp top", "deeper passwd resolv.conf", "the image's", "written", "from the image", "at the top",
			"open " + outside + ": no such file or directory"}, n.lines(t, s))
	})
}

func TestRun_WhatIsWrittenGoesAndTheImageStays(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		s := n.spec(t, "write", "/app/new:x", "write", "/app/data:x", "write", "/top:x", "write", "/new:x", "cat", "/app/data")
		assert.Equal(t, []string{"written", "written", "written", "written", "x"}, n.lines(t, s))
		assert.Empty(t, entries(t, s.Root), "it was the container's own")
		assert.Equal(t, []string{"data", "probe"}, entries(t, filepath.Join(n.image, "app")))
		raw, err := os.ReadFile(filepath.Join(n.image, "app", "data"))
		require.NoError(t, err)
		assert.Equal(t, "from the image", string(raw))
		assert.Equal(t, "from the image", n.lines(t, n.spec(t, "cat", "/app/data"))[0], "another container of the image")
	})
}

// The links of an image lead to the image, whatever this machine has at their ends.
func TestRun_LinksOfTheImageDoNotLeadOut(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		machine := t.TempDir()
		for _, name := range []string{"proc", "dev", "etc", "data"} {
			dir := filepath.Join(machine, name)
			require.NoError(t, os.Mkdir(dir, 0o755))
			require.NoError(t, os.MkdirAll(filepath.Join(n.image, dir), 0o755))
			require.NoError(t, os.Symlink(dir, filepath.Join(n.image, name)))
		}
		file := filepath.Join(machine, "file")
		require.NoError(t, os.WriteFile(file, []byte("the machine's"), 0o644))
		n.write(t, strings.TrimPrefix(file, "/"), "the image's", 0o644)
		require.NoError(t, os.Symlink(file, filepath.Join(n.image, "link")))
		s := n.spec(t, "cat", "/link", "list", "/data", "list", "/etc")
		s.Files = map[string]string{"etc/resolv.conf": "written"}
		s.Mounts = []Mount{{Source: t.TempDir(), Target: "/data/volume"}}
		assert.Equal(t, []string{"the image's", "volume", "resolv.conf"}, n.lines(t, s))
		for _, name := range []string{"proc", "dev", "etc", "data"} {
			assert.Empty(t, entries(t, filepath.Join(machine, name)))
		}
	})
}

func TestRun_FileReplacesALinkOfTheImage(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		require.NoError(t, os.Mkdir(filepath.Join(n.image, "etc"), 0o755))
		require.NoError(t, os.Symlink("/top", filepath.Join(n.image, "etc", "resolv.conf")))
		s := n.spec(t, "cat", "/etc/resolv.conf", "cat", "/top")
		s.Files = map[string]string{"etc/resolv.conf": "written"}
		assert.Equal(t, []string{"written", "at the top"}, n.lines(t, s))
	})
}

func TestRun_ImageWithTheLettersOfMountOptions(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		odd := filepath.Join(t.TempDir(), `a:b,c\d`)
		require.NoError(t, os.Rename(n.image, odd))
		n.image = odd
		assert.Equal(t, []string{"at the top"}, n.lines(t, n.spec(t, "cat", "/top")))
	})
}

func TestRun_VolumeMayLieBehindALinkOfTheMachine(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		volume := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(volume, "given"), nil, 0o644))
		link := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink(volume, link))
		s := n.spec(t, "list", "/data")
		s.Mounts = []Mount{{Source: link, Target: "/data"}}
		assert.Equal(t, []string{"given"}, n.lines(t, s))
	})
}

func TestRun_ReadOnlyRootLeavesVolumesAndDevicesWritable(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		volume := t.TempDir()
		s := n.spec(t, "write", "/new:x", "write", "/etc/hostname:x", "write", "/app/new:x", "write", "/data/new:x", "write", "/dev/null:x")
		s.ReadOnlyRoot = true
		s.Files = map[string]string{"etc/hostname": "web\n"}
		s.Mounts = []Mount{{Source: volume, Target: "/data"}}
		assert.Equal(t, []string{"open /new: " + readOnly, "open /etc/hostname: " + readOnly, "open /app/new: " + readOnly, "written", "written"},
			n.lines(t, s))
		assert.Equal(t, []string{"new"}, entries(t, volume))
	})
}

func TestRun_Devices(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		s := n.spec(t, "list", "/dev", "cat", "/dev/null", "write", "/dev/null:x", "write", "/dev/full:x", "write", "/dev/stdout:to the link\n",
			"stat", "/dev/null", "stat", "/dev/zero", "stat", "/dev/full", "stat", "/dev/random", "stat", "/dev/urandom")
		const device = "Dcrw-rw-rw-"
		assert.Equal(t, []string{"fd full null random shm stderr stdin stdout urandom zero", "written",
			"write /dev/full: no space left on device", "to the link", "written", device, device, device, device, device}, n.lines(t, s))
	})
}

func TestRun_ModesAreThoseOfAnyMachineWhateverTheUmask(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		defer syscall.Umask(syscall.Umask(0o077)) // of this test's own process
		s := n.spec(t, "stat", "/", "stat", "/etc", "stat", "/etc/resolv.conf", "stat", "/work", "stat", "/data", "stat", "/dev",
			"stat", "/dev/shm", "write", "/dev/shm/new:x", "stat", "/dev/shm/new")
		s.Files = map[string]string{"etc/resolv.conf": "x"}
		s.Cwd = "/work"
		s.Mounts = []Mount{{Source: t.TempDir(), Target: "/data/volume"}}
		const dir, shared = "drwxr-xr-x", "dtrwxrwxrwx"
		assert.Equal(t, []string{dir, dir, "-rw-r--r--", dir, dir, dir, shared, "written", "-rw-r--r--"}, n.lines(t, s))
	})
}

func TestRun_ProcIsThePodsOwn(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		s := n.spec(t, "pid", "", "cat", "/proc/1/cmdline", "stat", "/proc/2")
		got := n.lines(t, s)
		require.Len(t, got, 3)
		assert.Equal(t, "1", got[0])
		assert.True(t, strings.HasPrefix(got[1], "/app/probe\x00pid\x00"), got[1])
		assert.Equal(t, "lstat /proc/2: no such file or directory", got[2])
	})
}

func TestRun_Volumes(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		writable, protected, inner := t.TempDir(), t.TempDir(), t.TempDir()
		file := filepath.Join(t.TempDir(), "hosts")
		for _, name := range []string{filepath.Join(protected, "given"), filepath.Join(inner, "given"), file} {
			require.NoError(t, os.WriteFile(name, []byte("given"), 0o644))
		}
		s := n.spec(t, "write", "/a/new:from the container", "cat", "/b/given", "write", "/b/new:x", "cat", "/a/in/ner/given", "cat", "/etc/hosts",
			"write", "/etc/hosts:changed", "list", "/usr/bin")
		s.Files = map[string]string{"etc/hosts": "hidden"}
		s.Mounts = []Mount{ // what lies inside another one comes first here
			{Source: inner, Target: "/a/in/ner", ReadOnly: true}, {Source: writable, Target: "/a"},
			{Source: protected, Target: "/b", ReadOnly: true}, {Source: file, Target: "/etc/hosts"}, {Source: inner, Target: "/usr/bin"},
		}
		assert.Equal(t, []string{"written", "given", "open /b/new: " + readOnly, "given", "given", "written", "given"}, n.lines(t, s))

		raw, err := os.ReadFile(filepath.Join(writable, "new"))
		require.NoError(t, err)
		assert.Equal(t, "from the container", string(raw))
		raw, err = os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, "changed", string(raw))
		assert.Equal(t, []string{"given"}, entries(t, protected))
	})
}

func TestRun_VolumeMayHideAFolderOfTheImage(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		n.write(t, "srv/www/page", "from the image", 0o644)
		s := n.spec(t, "list", "/srv/www", "write", "/srv/www/new:x")
		volume := t.TempDir()
		s.Mounts = []Mount{{Source: volume, Target: "/srv/www"}}
		assert.Equal(t, []string{"written"}, n.lines(t, s), "no line for a folder that is empty")
		assert.Equal(t, []string{"page"}, entries(t, filepath.Join(n.image, "srv", "www")))
		assert.Equal(t, []string{"new"}, entries(t, volume))
	})
}

func TestRun_RootThatCannotBeBuilt(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		tests := []struct {
			name string
			give func(s *Spec)
			want string
		}{
			{name: "no volume", give: func(s *Spec) { s.Mounts = []Mount{{Source: "/nowhere", Target: "/data"}} },
				want: "read volume of /data: lstat /nowhere: no such file or directory"},
			{name: "a volume below a file", give: func(s *Spec) { s.Mounts = []Mount{{Source: "/proc", Target: "/top/new"}} },
				want: "make mount point /top/new: mkdir /top: not a directory"},
			{name: "no image", give: func(s *Spec) { s.Image = "/nowhere" }, want: "read image: stat /nowhere: no such file or directory"},
			{name: "no place", give: func(s *Spec) { s.Root = "/nowhere" }, want: "mount root tmpfs: no such file or directory"},
			{name: "no working directory", give: func(s *Spec) { s.ReadOnlyRoot, s.Cwd = true, "/missing" }, want: "chdir /missing: no such file or directory"},
		}
		for _, tt := range tests {
			s := n.spec(t, "print", "started")
			tt.give(s)
			assert.Equal(t, result{errors: "localkube-shim: " + tt.want + "\n", code: ExitCannotStart}, n.run(t, s), tt.name)
		}
	})
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}
