package imagestore

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/local/internal/imagestore/imagetest"
)

func runsProgram() v1.Config { return v1.Config{Entrypoint: []string{"/program"}} }

// program returns a layout of an image with one file.
func program(t *testing.T, content string) string {
	t.Helper()
	return imagetest.Layout(t, imagetest.Image(t, runsProgram(), imagetest.Layer(t, imagetest.File("program", content, 0o755))))
}

func load(t *testing.T, s *Store, ref, layout string) *Image {
	t.Helper()
	img, err := s.LoadLayout(layout, ref)
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

func library(name, tag string) Reference { return Reference{"docker.io/library/" + name, tag} }

func TestStore_SameImageTwiceIsStoredOnce(t *testing.T) {
	t.Parallel()
	s := Open(filepath.Join(t.TempDir(), "store"))
	first := load(t, s, "a:1", program(t, "one"))
	second := load(t, s, "b:1", program(t, "one"))

	assert.Equal(t, first.ID, second.ID)
	assert.Regexp(t, "^sha256:[0-9a-f]{64}$", first.ID)
	assert.Len(t, names(t, s, "blobs"), 1)
	assert.Equal(t, []Reference{library("a", "1"), library("b", "1")}, second.Refs)
	assert.Len(t, second.Digests, 2)
	assert.Equal(t, int64(3), second.Size)
	assert.Len(t, names(t, s, ""), 2, "blobs and refs, nothing temporary")
}

func TestStore_ChangedProgramUnderTheSameTagIsANewImageAndTheOldOneStays(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	before := load(t, s, "a:1", program(t, "one"))
	after := load(t, s, "a:1", program(t, "two"))
	require.NotEqual(t, before.ID, after.ID)

	got, err := s.Resolve("a:1")
	require.NoError(t, err)
	assert.Equal(t, after, got)
	raw, err := os.ReadFile(filepath.Join(before.Root, "program"))
	require.NoError(t, err, "containers run from it")
	assert.Equal(t, "one", string(raw))
	for _, ref := range []string{before.ID, before.Digests[0]} {
		old, err := s.Resolve(ref)
		require.NoError(t, err)
		assert.Equal(t, before.Root, old.Root)
		assert.Empty(t, old.Refs)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	hub := load(t, s, "team-name/a:1", program(t, "x"))
	other := load(t, s, "registry.example:5000/team-name/a:1", program(t, "y"))
	tests := []struct {
		name, give string
		want       *Image
	}{
		{name: "without a registry", give: "team-name/a:1", want: hub},
		{name: "with the default registry", give: "docker.io/team-name/a:1", want: hub},
		{name: "by tag and digest", give: "team-name/a:1@" + strings.TrimPrefix(hub.Digests[0], "docker.io/team-name/a@"), want: hub},
		{name: "by ID", give: hub.ID, want: hub},
		{name: "another registry", give: "registry.example:5000/team-name/a:1", want: other},
		{name: "by digest", give: other.Digests[0], want: other},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := s.Resolve(tt.give)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestResolve_NotFound(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	img := load(t, s, "a:1", program(t, "x"))
	gone := load(t, s, "gone:1", program(t, "y"))
	require.NoError(t, os.RemoveAll(filepath.Dir(gone.Root)))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "refs", "docker.io", "library", "a", "old"), []byte(img.ID+"\n"), 0o644))
	zeros := "sha256:" + strings.Repeat("0", 64)
	tests := []struct{ name, give, want string }{
		{name: "tag", give: "a:2", want: "image not found: docker.io/library/a:2"},
		{name: "name", give: "registry.example/b:1", want: "image not found: registry.example/b:1"},
		{name: "the same name in another registry", give: "registry.example/library/a:1", want: "image not found: registry.example/library/a:1"},
		{name: "ID", give: zeros, want: "image not found: " + zeros},
		{name: "digest beside a tag that is there", give: "a:1@" + zeros, want: "image not found: docker.io/library/a@" + zeros},
		{name: "image whose files are gone", give: "gone:1", want: "image not found: docker.io/library/gone:1"},
		{name: "no tag", give: "a", want: "image not found: docker.io/library/a:latest"},
		{name: "reference without a digest, as earlier versions wrote it", give: "a:old", want: "image not found: docker.io/library/a:old"},
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

// A reference is a file below its name's folder, so a name cannot be a folder and a tag at once.
func TestTag_InTheWayOfANameIsRefused(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	x := program(t, "x")
	load(t, s, "h.example/a:b", x)
	_, err := s.LoadLayout(x, "h.example/a/b:c")
	require.ErrorContains(t, err, "tag h.example/a/b:c: ")
	load(t, s, "h.example/d/e:f", x)
	_, err = s.LoadLayout(x, "h.example/d:e")
	require.ErrorContains(t, err, "tag h.example/d:e: ")
	assert.Len(t, names(t, s, ""), 2, "blobs and refs, nothing temporary")
}

func TestTag(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	require.ErrorIs(t, s.Tag("a:1", "b:1"), ErrNotFound)
	img := load(t, s, "a:1", program(t, "x"))
	require.ErrorContains(t, s.Tag("a:1", "B:1"), "is not an image reference")
	require.ErrorContains(t, s.Tag("A:1", "b:1"), "is not an image reference")
	require.NoError(t, s.Tag("a:1", "h.example/b:2"))
	got, err := s.Resolve("h.example/b:2")
	require.NoError(t, err)
	assert.Equal(t, img.ID, got.ID)
	assert.Equal(t, []Reference{library("a", "1"), {"h.example/b", "2"}}, got.Refs)
}

func TestList_EachImageOnceWithAllItsReferences(t *testing.T) {
	t.Parallel()
	s := Open(filepath.Join(t.TempDir(), "store"))
	list, err := s.List()
	require.NoError(t, err, "a store that is not there yet is empty")
	assert.Empty(t, list)

	z := load(t, s, "z:1", program(t, "z"))
	b := load(t, s, "b/c:1", program(t, "b"))
	require.NoError(t, s.Tag("z:1", "a.example/a:2"))
	require.NoError(t, s.Tag("z:1", "z:2"))

	list, err = s.List()
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, z.ID, list[0].ID, "a.example comes first")
	assert.Equal(t, []Reference{{"a.example/a", "2"}, library("z", "1"), library("z", "2")}, list[0].Refs)
	assert.Equal(t, b.ID, list[1].ID)
	assert.Equal(t, []Reference{{"docker.io/b/c", "1"}}, list[1].Refs)
}

func TestUntagAndPrune_KeepWhatATagLeadsTo(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	n, err := s.Prune()
	require.NoError(t, err)
	assert.Zero(t, n)
	kept := load(t, s, "kept:1", program(t, "kept"))
	require.NoError(t, s.Tag("kept:1", "kept:2"))
	dropped := load(t, s, "dropped:1", program(t, "dropped"))
	replaced := load(t, s, "kept:3", program(t, "replaced"))
	load(t, s, "kept:3", program(t, "kept"))
	require.NoError(t, s.Untag("kept:1"))
	require.NoError(t, s.Untag("docker.io/library/dropped:1"))
	require.ErrorIs(t, s.Untag("dropped:1"), ErrNotFound)
	assert.DirExists(t, dropped.Root, "an image stays until Prune")

	n, err = s.Prune()
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	assert.DirExists(t, kept.Root)
	assert.NoDirExists(t, dropped.Root)
	assert.NoDirExists(t, replaced.Root)
	for _, ref := range []string{"kept:2", kept.Digests[0]} {
		_, err = s.Resolve(ref)
		require.NoError(t, err)
	}
	_, err = s.Resolve(dropped.Digests[0])
	require.ErrorIs(t, err, ErrNotFound)
}

// readNow reads an image as a node does that starts a container, and lists the store; it returns ID and content.
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
	return img.ID + " " + string(raw), err
}

func TestStore_IsReadWhileImagesAreAdded(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir())
	layouts := []string{program(t, "zero"), program(t, "one"), program(t, "two")}
	valid := map[string]bool{}
	for i, content := range []string{"zero", "one", "two"} {
		valid[load(t, Open(t.TempDir()), "a:1", layouts[i]).ID+" "+content] = true
	}
	load(t, s, "a:1", layouts[0])
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for i := range 3 {
		writers.Go(func() {
			for range 20 {
				if _, err := s.LoadLayout(layouts[i], "a:1"); err != nil {
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
