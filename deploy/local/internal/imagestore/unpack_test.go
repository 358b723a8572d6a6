package imagestore

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/local/internal/imagestore/imagetest"
)

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	raw, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(raw)
}

func dir(name string, mode int64) imagetest.Entry {
	return imagetest.Entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}}
}

func link(kind byte, name, to string) imagetest.Entry {
	return imagetest.Entry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: to, Mode: 0o777}}
}

func file(name, content string) imagetest.Entry { return imagetest.File(name, content, 0o644) }

// tree unpacks layers and describes the result: content of files, ends of links, modes of directories.
func tree(t *testing.T, bounds limits, layers ...[]imagetest.Entry) (map[string]string, error) {
	t.Helper()
	list := make([]v1.Layer, len(layers))
	for i, entries := range layers {
		list[i] = imagetest.Layer(t, entries...)
	}
	img := imagetest.Image(t, v1.Config{}, list...)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	root := filepath.Join(t.TempDir(), "root")
	if _, err := unpack(root, img, config.RootFS.DiffIDs, bounds); err != nil {
		return nil, err
	}
	found := map[string]string{}
	return found, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		name := strings.TrimPrefix(p, root)
		switch {
		case d.IsDir():
			found[name+"/"] = info.Mode().String()
		case info.Mode()&fs.ModeSymlink != 0:
			found[name], err = os.Readlink(p)
		default:
			var raw []byte
			raw, err = os.ReadFile(p)
			found[name] = string(raw)
		}
		return err
	})
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	const plain = "drwxr-xr-x"
	type entries = []imagetest.Entry
	tests := []struct {
		name string
		give []entries
		want map[string]string
	}{
		{name: "directories are made as needed, and all may read them", give: []entries{{file("usr/bin/tool", "x"), dir("tmp", 0o1777), dir("home", 0o700)}},
			want: map[string]string{"/usr/": plain, "/usr/bin/": plain, "/usr/bin/tool": "x", "/tmp/": "dtrwxrwxrwx", "/home/": plain}},
		{name: "a later layer replaces", give: []entries{{file("a", "one"), dir("b", 0o755), file("b/in", "x"), dir("c", 0o755), link(tar.TypeSymlink, "d", "a")},
			{file("a", "two"), file("b", "file"), dir("c", 0o1777), file("d", "not a link")}},
			want: map[string]string{"/a": "two", "/b": "file", "/c/": "dtrwxrwxrwx", "/d": "not a link"}},
		{name: "an earlier entry of the layer is replaced too", give: []entries{{file("a", "one"), file("a", "two")}}, want: map[string]string{"/a": "two"}},
		{name: "whiteout", give: []entries{{file("dir/a", "x"), file("dir/b", "x"), file("all/c", "x")}, {file("dir/.wh.a", ""), file(".wh.all", ""), file(".wh.missing", "")}},
			want: map[string]string{"/dir/": plain, "/dir/b": "x"}},
		{name: "opaque whiteout, wherever it stands in its layer", give: []entries{{file("dir/a", "x"), file("dir/sub/b", "x"), file("dir/gone/c", "x")},
			{file("dir/new", "x"), file("dir/sub/new", "x"), file("dir/.wh..wh..opq", ""), file("dir/after", "x")}},
			want: map[string]string{"/dir/": plain, "/dir/new": "x", "/dir/sub/": plain, "/dir/sub/new": "x", "/dir/after": "x"}},
		{name: "links are kept, and followed inside the image", give: []entries{{dir("run", 0o755), link(tar.TypeSymlink, "var/run", "/run"), link(tar.TypeSymlink, "up", "../../run")},
			{file("var/run/a", "x"), file("up/b", "y")}},
			want: map[string]string{"/run/": plain, "/run/a": "x", "/run/b": "y", "/var/": plain, "/var/run": "/run", "/up": "../../run"}},
		{name: "hard link", give: []entries{{file("a", "x")}, {link(tar.TypeLink, "b", "a"), link(tar.TypeLink, "a", "a")}}, want: map[string]string{"/a": "x", "/b": "x"}},
		{name: "names with a dot or a slash before", give: []entries{{dir(".", 0o700), file("./a", "x"), file("/b", "y")}}, want: map[string]string{"/a": "x", "/b": "y"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.want["/"] = plain
			got, err := tree(t, defaultLimits(), tt.give...)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestUnpack_RefusesHostileLayers(t *testing.T) {
	t.Parallel()
	small := limits{layers: 2, entries: 3, bytes: 1 << 16}
	type entries = []imagetest.Entry
	tests := []struct {
		name string
		give []entries
		want string
	}{
		{name: "name that leads out", give: []entries{{file("../outside", "x")}}, want: `"../outside": the name leads out of the image`},
		{name: "name that leads out further in", give: []entries{{file("a/../../outside", "x")}}, want: "the name leads out of the image"},
		{name: "hard link that leads out", give: []entries{{link(tar.TypeLink, "a", "../../etc/passwd")}}, want: `the link to "../../etc/passwd" leads out of the image`},
		{name: "hard link to a file of the machine", give: []entries{{link(tar.TypeLink, "a", "/etc/passwd")}}, want: `the link to "/etc/passwd" leads nowhere`},
		{name: "hard link through a link to the machine", give: []entries{{link(tar.TypeSymlink, "machine", "/etc"), link(tar.TypeLink, "a", "machine/passwd")}}, want: "leads nowhere"},
		{name: "hard link to a directory", give: []entries{{dir("d", 0o755), link(tar.TypeLink, "a", "d")}}, want: "leads to a directory"},
		{name: "whiteout of the directory itself", give: []entries{{file("a/.wh..", "")}}, want: "the whiteout names no file"},
		{name: "whiteout of the directory above", give: []entries{{file("a/.wh...", "")}}, want: "the whiteout names no file"},
		{name: "whiteout of nothing", give: []entries{{file("a/.wh.", "")}}, want: "the whiteout names no file"},
		{name: "device", give: []entries{{{Header: tar.Header{Typeflag: tar.TypeBlock, Name: "disk"}}}}, want: `"disk": type '4' is not supported`},
		{name: "file below a file", give: []entries{{file("a", "x"), file("a/b", "x")}}, want: "not a directory"},
		{name: "too many layers", give: []entries{{}, {}, {}}, want: "it has 3 layers, more than 2"},
		{name: "too many files", give: []entries{{file("a", ""), file("b", "")}, {file("c", ""), file("d", "")}}, want: `layer 2: "d": the image has too many files`},
		{name: "too large", give: []entries{{file("a", strings.Repeat("x", 1<<15))}, {file("b", strings.Repeat("x", 1<<15))}}, want: "the image is too large"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := tree(t, small, tt.give...)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// A link of the image that leads to the machine is followed inside the image: nothing is written out there.
func TestUnpack_WritesNothingThroughALink(t *testing.T) {
	t.Parallel()
	machine := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(machine, "kept"), []byte("x"), 0o644))
	got, err := tree(t, defaultLimits(),
		[]imagetest.Entry{link(tar.TypeSymlink, "away", machine), link(tar.TypeSymlink, "file", filepath.Join(machine, "kept"))},
		[]imagetest.Entry{file("away/new", "x"), file("file", "replaced"), file("away/.wh.kept", ""), file("away/.wh..wh..opq", "")})
	require.NoError(t, err)
	assert.Equal(t, "replaced", got["/file"])
	assert.Equal(t, "x", got[machine+"/new"])
	raw, err := os.ReadFile(filepath.Join(machine, "kept"))
	require.NoError(t, err)
	assert.Equal(t, "x", string(raw))
	assert.NoFileExists(t, filepath.Join(machine, "new"))
}

// A sparse file is large and takes little room in its archive.
func TestUnpack_BoundsSparseFiles(t *testing.T) {
	t.Parallel()
	u := &unpacker{root: t.TempDir(), maxBytes: 10, size: 4}
	name := filepath.Join(u.root, "a")
	require.ErrorIs(t, u.writeFile(name, &tar.Header{Size: 7}, 0o644, strings.NewReader("1234567")), errTooLarge)
	require.NoError(t, u.writeFile(name, &tar.Header{Size: 6}, 0o644, strings.NewReader("123456")))
	assert.Equal(t, int64(10), u.size)
}

func TestUnpack_LayersThatTheConfigurationDoesNotName(t *testing.T) {
	t.Parallel()
	img := imagetest.Image(t, v1.Config{}, imagetest.Layer(t, file("a", "x")))
	_, err := unpack(filepath.Join(t.TempDir(), "root"), img, nil, defaultLimits())
	require.EqualError(t, err, "it has 1 layers, and 0 in its configuration")
}

// The umask is the process's, so this test runs by itself.
func TestUnpack_ContainersReadWhateverTheUmask(t *testing.T) { //nolint:paralleltest // see above
	defer syscall.Umask(syscall.Umask(0o077))
	img := load(t, Open(t.TempDir()), "a:1", imagetest.Layout(t, imagetest.Image(t, v1.Config{},
		imagetest.Layer(t, imagetest.File("usr/local/bin/program", "x", 0o700), imagetest.File("secret", "x", 0o600)))))

	for name, want := range map[string]fs.FileMode{"..": 0o755, ".": 0o755, "usr": 0o755, "usr/local/bin": 0o755, "usr/local/bin/program": 0o744, "secret": 0o644} {
		info, err := os.Stat(filepath.Join(img.Root, name))
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("%o", want), fmt.Sprintf("%o", info.Mode().Perm()), name)
	}
}
