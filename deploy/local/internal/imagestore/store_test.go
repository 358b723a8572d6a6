package imagestore

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// write makes a file with a mode, and the folders above it.
func write(t *testing.T, file, content string, mode fs.FileMode) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
	require.NoError(t, os.Chmod(file, mode))
	return file
}

// program makes a file that can stand for a program.
func program(t *testing.T, content string) File {
	t.Helper()
	return File{Source: write(t, filepath.Join(t.TempDir(), "program"), content, 0o755), Target: "/program"}
}

var runsProgram = Config{Entrypoint: []string{"/program"}}

func add(t *testing.T, s *Store, ref string, f File) *Image {
	t.Helper()
	img, err := s.Add(ref, []File{f}, runsProgram)
	require.NoError(t, err)
	return img
}

// names lists what is directly in one of the store's folders.
func names(t *testing.T, s *Store, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, dir))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestAdd_SameContentTwiceIsOneImage(t *testing.T) {
	t.Parallel()
	s := Open(filepath.Join(t.TempDir(), "store"))
	first := add(t, s, "a:1", program(t, "one"))
	second := add(t, s, "b:1", program(t, "one"))

	assert.Equal(t, first.Digest, second.Digest)
	assert.Regexp(t, "^sha256:[0-9a-f]{64}$", first.Digest)
	assert.Len(t, names(t, s, "blobs"), 1)
	assert.Equal(t, []Reference{{"b", "1"}}, second.Refs)
	assert.Equal(t, int64(3), second.Size)
}

func TestAdd_ChangedProgramUnderTheSameTagIsANewImageAndTheOldOneStays(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	before := add(t, s, "a:1", program(t, "one"))
	after := add(t, s, "a:1", program(t, "two"))
	require.NotEqual(t, before.Digest, after.Digest)

	got, err := s.Resolve("a:1")
	require.NoError(t, err)
	assert.Equal(t, after, got)
	raw, err := os.ReadFile(filepath.Join(before.Root, "program"))
	require.NoError(t, err, "containers run from it")
	assert.Equal(t, "one", string(raw))
	old, err := s.Resolve(before.Digest)
	require.NoError(t, err)
	assert.Equal(t, before.Root, old.Root)
}

func TestAdd_DigestDependsOn(t *testing.T) {
	t.Parallel()
	user := 0
	base := func(string) ([]File, Config) { return []File{{Target: "/a"}}, Config{Entrypoint: []string{"/a"}} }
	tests := []struct {
		name string
		give func(dir string) ([]File, Config)
		mode fs.FileMode
	}{
		{name: "target", mode: 0o755, give: func(string) ([]File, Config) { return []File{{Target: "/b"}}, Config{Entrypoint: []string{"/a"}} }},
		{name: "mode", mode: 0o700, give: base},
		{name: "entrypoint", mode: 0o755, give: func(string) ([]File, Config) { return []File{{Target: "/a"}}, Config{Entrypoint: []string{"/a", "b"}} }},
		{name: "environment", mode: 0o755, give: func(string) ([]File, Config) {
			return []File{{Target: "/a"}}, Config{Entrypoint: []string{"/a"}, Env: []string{"A=b"}}
		}},
		{name: "user", mode: 0o755, give: func(string) ([]File, Config) {
			return []File{{Target: "/a"}}, Config{Entrypoint: []string{"/a"}, User: &user}
		}},
	}
	s := Open(t.TempDir())
	digest := func(t *testing.T, give func(string) ([]File, Config), mode fs.FileMode) string {
		dir := t.TempDir()
		files, cfg := give(dir)
		files[0].Source = write(t, filepath.Join(dir, "file"), "x", mode)
		img, err := s.Add("a:"+filepath.Base(filepath.Dir(dir)), files, cfg)
		require.NoError(t, err)
		return img.Digest
	}
	want := digest(t, base, 0o755)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.NotEqual(t, want, digest(t, tt.give, tt.mode))
		})
	}
}

func TestAdd_ContentThatLooksLikeTheNextFileIsAnotherImage(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	image := func(contents map[string]string) string {
		dir, files := t.TempDir(), []File(nil)
		for name, content := range contents {
			files = append(files, File{Source: write(t, filepath.Join(dir, name), content, 0o644), Target: "/" + name})
		}
		img, err := s.Add("a:1", files, Config{})
		require.NoError(t, err)
		return img.Digest
	}
	assert.NotEqual(t, image(map[string]string{"a": "1/b\x00644\x002", "c": ""}), image(map[string]string{"a": "1", "b": "2/c\x00644\x00"}))
}

func TestAdd_OrderOfFilesDoesNotMatter(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	a, b := program(t, "a"), program(t, "b")
	a.Target, b.Target = "/a", "/b"
	one, err := s.Add("a:1", []File{a, b}, runsProgram)
	require.NoError(t, err)
	other, err := s.Add("a:1", []File{b, a}, runsProgram)
	require.NoError(t, err)
	assert.Equal(t, one.Digest, other.Digest)
}

// A reference is a file below its name's folder, so a name cannot be a folder and a tag at once.
func TestAdd_TagInTheWayOfANameIsRefused(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	add(t, s, "a:b", program(t, "x"))
	_, err := s.Add("a/b:c", []File{program(t, "x")}, runsProgram)
	require.ErrorContains(t, err, "tag a/b:c: ")
	add(t, s, "d/e:f", program(t, "x"))
	_, err = s.Add("d:e", []File{program(t, "x")}, runsProgram)
	require.ErrorContains(t, err, "tag d:e: ")
	assert.Len(t, names(t, s, ""), 2, "blobs and refs, nothing temporary")
}

func TestAdd_FoldersLinksAndModes(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	write(t, filepath.Join(source, "bin", "tool"), "#!", 0o750)
	write(t, filepath.Join(source, "share", "private"), "x", 0o600)
	require.NoError(t, os.Mkdir(filepath.Join(source, "empty"), 0o700))
	require.NoError(t, os.Symlink("bin/tool", filepath.Join(source, "link")))
	require.NoError(t, os.Symlink(filepath.Join(source, "bin"), filepath.Join(source, "absolute")))
	outer := filepath.Join(t.TempDir(), "outer")
	require.NoError(t, os.Symlink(filepath.Join(source, "bin", "tool"), outer))

	s := Open(t.TempDir())
	img, err := s.Add("a:1", []File{{Source: outer, Target: "/usr/bin/tool"}, {Source: source, Target: "/app"}}, Config{})
	require.NoError(t, err)

	got := map[string]string{}
	require.NoError(t, filepath.WalkDir(img.Root, func(p string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		rel, err := filepath.Rel(img.Root, p)
		got[rel] = info.Mode().String()
		return err
	}))
	assert.Equal(t, map[string]string{
		".": "drwxr-xr-x", "app": "drwxr-xr-x", "app/bin": "drwxr-xr-x", "app/bin/tool": "-rwxr-xr--", "app/share": "drwxr-xr-x",
		"app/share/private": "-rw-r--r--", "app/empty": "drwxr-xr-x", "app/link": "Lrwxrwxrwx", "app/absolute": "Lrwxrwxrwx",
		"usr": "drwxr-xr-x", "usr/bin": "drwxr-xr-x", "usr/bin/tool": "-rwxr-xr--",
	}, got)
	link, err := os.Readlink(filepath.Join(img.Root, "app", "absolute"))
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(source, "bin"), link)
}

// The umask is the process's, so this test runs by itself.
func TestAdd_ContainersReadWhateverTheUmask(t *testing.T) { //nolint:paralleltest // see above
	defer syscall.Umask(syscall.Umask(0o077))
	img := add(t, Open(t.TempDir()), "a:1", File{Source: program(t, "x").Source, Target: "/usr/local/bin/program"})

	for name, want := range map[string]fs.FileMode{"..": 0o755, ".": 0o755, "usr": 0o755, "usr/local/bin": 0o755, "usr/local/bin/program": 0o755} {
		info, err := os.Stat(filepath.Join(img.Root, name))
		require.NoError(t, err)
		assert.Equal(t, want, info.Mode().Perm(), name)
	}
}

func TestAdd_RefusesAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	good := write(t, filepath.Join(source, "good"), "x", 0o755)
	write(t, filepath.Join(source, "rootfs", "etc", "passwd"), "x", 0o644)
	require.NoError(t, syscall.Mkfifo(filepath.Join(source, "fifo"), 0o644))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(source, "dangling")))
	require.NoError(t, os.Mkdir(filepath.Join(source, "away"), 0o755))
	require.NoError(t, os.Symlink(source, filepath.Join(source, "away", "out")))
	from := func(name string) string { return filepath.Join(source, name) }
	tests := []struct {
		name    string
		ref     string
		files   []File
		wantErr string
	}{
		{name: "no file", ref: "a:1", wantErr: "add a:1: an image needs a file"},
		{name: "no reference", ref: "A:1", files: []File{{good, "/x"}}, wantErr: `"A:1" is not an image reference`},
		{name: "relative target", ref: "a:1", files: []File{{good, "x"}}, wantErr: `"x" is not an absolute path in the image`},
		{name: "target with a way up", ref: "a:1", files: []File{{good, "/x/../y"}}, wantErr: `"/x/../y" is not an absolute path`},
		{name: "reserved file", ref: "a:1", files: []File{{good, "/etc"}}, wantErr: "add a:1: /etc: /etc is made for each container, an image must not bring it"},
		{name: "file in a reserved folder", ref: "a:1", files: []File{{good, "/tmp/x"}}, wantErr: "/tmp/x: /tmp is made for each container"},
		{name: "reserved folder in a whole root", ref: "a:1", files: []File{{from("rootfs"), "/"}}, wantErr: "/etc: /etc is made for each container"},
		{name: "no source", ref: "a:1", files: []File{{good, "/a"}, {from("missing"), "/b"}}, wantErr: "missing: no such file or directory"},
		{name: "source that is a dangling link", ref: "a:1", files: []File{{good, "/a"}, {from("dangling"), "/b"}}, wantErr: "no such file or directory"},
		{name: "source that is no file", ref: "a:1", files: []File{{good, "/a"}, {from("fifo"), "/b"}}, wantErr: "fifo is neither file, directory nor link"},
		{name: "two files at one target", ref: "a:1", files: []File{{good, "/a"}, {good, "/a"}}, wantErr: "file exists"},
		{name: "way out of the image by a link of its own", ref: "a:1", files: []File{{from("away"), "/a"}, {good, "/a/out/b"}}, wantErr: "path escapes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := Open(t.TempDir())
			_, err := s.Add(tt.ref, tt.files, Config{})
			require.ErrorContains(t, err, tt.wantErr)
			assert.Empty(t, names(t, s, "blobs"))
			assert.Empty(t, names(t, s, "refs"))
		})
	}
	assert.NoFileExists(t, from("b"))
}

func TestAdd_ReservedNamesMayStandDeeper(t *testing.T) {
	t.Parallel()
	img := add(t, Open(t.TempDir()), "a:1", File{Source: program(t, "x").Source, Target: "/app/etc/program"})
	assert.FileExists(t, filepath.Join(img.Root, "app", "etc", "program"))
}

func TestResolve(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	img := add(t, s, "registry.example/team.name/a:1", program(t, "x"))
	tests := []struct{ name, give string }{
		{name: "by the name it was added with", give: "registry.example/team.name/a:1"},
		{name: "by name and tag", give: "a:1"},
		{name: "by its own reference", give: img.Refs[0].String()},
		{name: "by name, tag and another digest", give: "a:1@sha256:" + strings.Repeat("0", 64)},
		{name: "by digest", give: img.Digest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := s.Resolve(tt.give)
			require.NoError(t, err)
			assert.Equal(t, img.Digest, got.Digest)
			assert.Equal(t, img.Root, got.Root)
			assert.Equal(t, runsProgram, got.Config)
			assert.Equal(t, DefaultUser, got.UserID())
		})
	}
}

func TestResolve_NotFound(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	img := add(t, s, "a:1", program(t, "x"))
	gone := add(t, s, "gone:1", program(t, "y"))
	require.NoError(t, os.RemoveAll(filepath.Dir(gone.Root)))
	write(t, filepath.Join(s.dir, "outside", "config.json"), "{}", 0o644)
	tests := []struct{ name, give, want string }{
		{name: "tag", give: "a:2", want: "image not found: a:2"},
		{name: "name", give: "registry.example/b:1", want: "image not found: b:1"},
		{name: "digest", give: "sha256:" + strings.Repeat("0", 64), want: "image not found: sha256:000"},
		{name: "image whose files are gone", give: "gone:1", want: "image not found: gone:1"},
		{name: "folder of tags", give: strings.Replace(img.Refs[0].String(), ":1", "", 1), want: "image not found: a:latest"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := s.Resolve(tt.give)
			require.ErrorIs(t, err, ErrNotFound)
			assert.ErrorContains(t, err, tt.want)
		})
	}
	_, err := s.Resolve("sha256:../outside")
	require.ErrorContains(t, err, "is not an image reference")
	_, err = Open(filepath.Join(t.TempDir(), "none")).Resolve("a:1")
	require.ErrorIs(t, err, ErrNotFound)
}

func TestUserID_IsTheConfigurationsEvenWhenItIsRoot(t *testing.T) {
	t.Parallel()
	root := 0
	assert.Equal(t, 0, (&Image{Config: Config{User: &root}}).UserID())
}

func TestList_EachImageOnceWithAllItsReferences(t *testing.T) {
	t.Parallel()
	s := Open(filepath.Join(t.TempDir(), "store"))
	list, err := s.List()
	require.NoError(t, err, "a store that is not there yet is empty")
	assert.Empty(t, list)

	z := add(t, s, "z:1", program(t, "z"))
	b := add(t, s, "b/c:1", program(t, "b"))
	for _, name := range []string{"f", "e", "d", "c"} {
		add(t, s, name+":1", program(t, name))
	}
	require.NoError(t, s.Tag("z:1", "registry.example/a:2"))
	require.NoError(t, s.Tag(z.Digest, "z:2"))

	for range 20 { // whatever the order of a map
		list, err = s.List()
		require.NoError(t, err)
		var first []string
		for _, img := range list {
			first = append(first, img.Refs[0].String())
		}
		require.Equal(t, []string{"a:2", "b/c:1", "c:1", "d:1", "e:1", "f:1"}, first)
	}
	assert.Equal(t, z.Digest, list[0].Digest)
	assert.Equal(t, []Reference{{"a", "2"}, {"z", "1"}, {"z", "2"}}, list[0].Refs)
	assert.Equal(t, b.Digest, list[1].Digest)
	assert.Equal(t, []Reference{{"b/c", "1"}}, list[1].Refs)
}

func TestTag_RefusesWhatIsNotThere(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	require.ErrorIs(t, s.Tag("a:1", "b:1"), ErrNotFound)
	add(t, s, "a:1", program(t, "x"))
	require.ErrorContains(t, s.Tag("a:1", "B:1"), "is not an image reference")
}

func TestUntagAndPrune_KeepWhatAReferenceLeadsTo(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	n, err := s.Prune()
	require.NoError(t, err)
	assert.Zero(t, n)
	kept := add(t, s, "kept:1", program(t, "kept"))
	require.NoError(t, s.Tag("kept:1", "kept:2"))
	dropped := add(t, s, "dropped:1", program(t, "dropped"))
	replaced := add(t, s, "kept:3", program(t, "replaced"))
	add(t, s, "kept:3", program(t, "kept"))
	require.NoError(t, s.Untag("kept:1"))
	require.NoError(t, s.Untag("registry.example/dropped:1"))
	require.ErrorIs(t, s.Untag("dropped:1"), ErrNotFound)
	assert.DirExists(t, dropped.Root, "an image stays until Prune")

	n, err = s.Prune()
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	assert.DirExists(t, kept.Root)
	assert.NoDirExists(t, dropped.Root)
	assert.NoDirExists(t, replaced.Root)
	_, err = s.Resolve("kept:2")
	require.NoError(t, err)
}

// readNow reads an image as a node does that starts a container, and lists the store; it returns digest and content.
func readNow(s *Store) (string, error) {
	img, err := s.Resolve("a:1")
	if err != nil {
		return "", err
	}
	raw, err := os.ReadFile(filepath.Join(img.Root, "program"))
	if err != nil {
		return "", err
	}
	_, err = s.List()
	return img.Digest + " " + string(raw), err
}

func TestStore_IsReadWhileImagesAreAdded(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	programs := []File{program(t, "zero"), program(t, "one"), program(t, "two")}
	valid := map[string]bool{}
	for i, content := range []string{"zero", "one", "two"} {
		other := Open(t.TempDir())
		valid[add(t, other, "a:1", programs[i]).Digest+" "+content] = true
	}
	add(t, s, "a:1", programs[0])
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for i := range 3 {
		writers.Go(func() {
			for range 20 {
				if _, err := s.Add("a:1", []File{programs[i]}, runsProgram); err != nil {
					t.Error(err)
				}
			}
		})
		readers.Go(func() {
			for {
				content, err := readNow(s)
				if err != nil {
					t.Error(err)
					return
				}
				assert.Contains(t, valid, content)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	assert.Len(t, names(t, s, "blobs"), 3)
	assert.Len(t, names(t, s, ""), 2, "blobs and refs, nothing temporary")
}
