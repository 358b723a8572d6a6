package imagestore

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/local/internal/imagestore/imagetest"
)

func TestLoadLayout_ConfigurationIsTheImages(t *testing.T) {
	t.Parallel()
	config := v1.Config{Entrypoint: []string{"/app"}, Cmd: []string{"-v"}, Env: []string{"A=b"}, User: "app:7", WorkingDir: "/srv"}
	img := imagetest.Image(t, config, imagetest.Layer(t, imagetest.File("app", "x", 0o755)))
	s := Open(t.TempDir())
	got := load(t, s, "a:1", imagetest.Layout(t, img))

	assert.Equal(t, Config{Entrypoint: []string{"/app"}, Cmd: []string{"-v"}, Env: []string{"A=b"}, User: "app:7", WorkingDir: "/srv"}, got.Config)
	id, err := img.ConfigName()
	require.NoError(t, err)
	assert.Equal(t, id.String(), got.ID, "the ID is the digest of the configuration")
	digest, err := img.Digest()
	require.NoError(t, err)
	assert.Equal(t, []string{"docker.io/library/a@" + digest.String()}, got.Digests)
}

// withPlatforms writes a layout with an index of images, one for each platform, whose file says which.
func withPlatforms(t *testing.T, annotations map[string]string, platforms ...v1.Platform) string {
	t.Helper()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		img := imagetest.Image(t, runsProgram(), imagetest.Layer(t, imagetest.File("program", p.String(), 0o755)))
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p}})
	}
	index = mutate.Annotations(index, annotations).(v1.ImageIndex)
	dir := t.TempDir()
	path, err := layout.Write(dir, empty.Index)
	require.NoError(t, err)
	require.NoError(t, path.AppendIndex(index))
	return dir
}

func TestLoadLayout_TakesThisMachinesPlatform(t *testing.T) {
	t.Parallel()
	dir := withPlatforms(t, map[string]string{"org.opencontainers.image.title": "app", "org.opencontainers.image.version": "v1"},
		v1.Platform{OS: "linux", Architecture: "riscv64"}, v1.Platform{OS: "windows", Architecture: runtime.GOARCH},
		v1.Platform{OS: "linux", Architecture: runtime.GOARCH})
	img := load(t, Open(t.TempDir()), "", dir)
	raw, err := os.ReadFile(filepath.Join(img.Root, "program"))
	require.NoError(t, err)
	assert.Equal(t, "linux/"+runtime.GOARCH, string(raw))
	assert.Equal(t, []Reference{library("app", "v1")}, img.Refs, "called as its annotations say")

	_, err = Open(t.TempDir()).LoadLayout(withPlatforms(t, nil, v1.Platform{OS: "linux", Architecture: "riscv64"}), "a:1")
	require.ErrorContains(t, err, "load docker.io/library/a:1: it has no image for linux/"+runtime.GOARCH)
}

func TestLoadLayout_IgnoresArtifactsThatReferToTheImage(t *testing.T) {
	t.Parallel()
	img := imagetest.Image(t, runsProgram(), imagetest.Layer(t, imagetest.File("program", "x", 0o755)))
	dir := imagetest.Layout(t, img)
	path, err := layout.FromPath(dir)
	require.NoError(t, err)
	raw, err := os.ReadFile(filepath.Join(dir, "index.json"))
	require.NoError(t, err)
	artifact := `{"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":"application/spdx+json","size":1,"digest":"sha256:` + strings.Repeat("0", 64) + `"},`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "index.json"), []byte(strings.Replace(string(raw), `"manifests":[`, `"manifests":[`+artifact, 1)), 0o644))
	_, err = path.ImageIndex()
	require.NoError(t, err)
	load(t, Open(t.TempDir()), "a:1", dir)
}

// blobOf returns the file of a blob of a layout.
func blobOf(dir string, h v1.Hash) string { return filepath.Join(dir, "blobs", h.Algorithm, h.Hex) }

func TestLoadLayout_RefusesAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	layer := imagetest.Layer(t, imagetest.File("program", "x", 0o755))
	img := imagetest.Image(t, runsProgram(), layer)
	manifest, err := img.Manifest()
	require.NoError(t, err)
	digest, err := img.Digest()
	require.NoError(t, err)
	other, err := imagetest.Layer(t, imagetest.File("program", "y", 0o755)).Compressed()
	require.NoError(t, err)
	replace := func(t *testing.T, h v1.Hash, content func(string) string) string {
		t.Helper()
		dir := imagetest.Layout(t, img)
		raw, err := os.ReadFile(blobOf(dir, h))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(blobOf(dir, h), []byte(content(string(raw))), 0o644))
		return dir
	}
	two := imagetest.Layout(t, img)
	path, err := layout.FromPath(two)
	require.NoError(t, err)
	require.NoError(t, path.AppendImage(imagetest.Image(t, v1.Config{}, layer)))
	tests := []struct {
		name, dir, ref, wantErr string
	}{
		{name: "no layout", dir: t.TempDir(), ref: "a:1", wantErr: "read layout "},
		{name: "no name", dir: imagetest.Layout(t, img), wantErr: "no annotations with title and version: name the image"},
		{name: "no reference", dir: imagetest.Layout(t, img), ref: "A:1", wantErr: `"A:1" is not an image reference`},
		{name: "two images", dir: two, ref: "a:1", wantErr: "want one image, it has 2"},
		{name: "changed manifest", dir: replace(t, digest, func(s string) string { return s + " " }), ref: "a:1", wantErr: "load docker.io/library/a:1: the content of " + digest.String() + " has digest "},
		{name: "changed configuration", dir: replace(t, manifest.Config.Digest, func(s string) string { return strings.Replace(s, "/program", "/changed", 1) }), ref: "a:1", wantErr: "read configuration of docker.io/library/a:1: the content of " + manifest.Config.Digest.String()},
		{name: "changed layer", dir: replace(t, manifest.Layers[0].Digest, func(string) string { return readAll(t, other) }), ref: "a:1", wantErr: "unpack docker.io/library/a:1: layer 1: its content has digest "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := Open(t.TempDir())
			_, err := s.LoadLayout(tt.dir, tt.ref)
			require.ErrorContains(t, err, tt.wantErr)
			assert.Empty(t, names(t, s, "blobs"))
			assert.Empty(t, names(t, s, "refs"))
		})
	}
}
