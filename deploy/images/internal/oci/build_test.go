package oci

import (
	"archive/tar"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var created = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)

// write makes a file in a folder of its own.
func write(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	require.NoError(t, os.Chmod(file, mode))
	return file
}

func params(t *testing.T) Params {
	t.Helper()
	return Params{
		Name:     "app",
		Binaries: []Binary{{"linux/amd64", write(t, "for amd64", 0o755)}, {"linux/arm64", write(t, "for arm64", 0o755)}},
		Files:    []File{{write(t, "one", 0o644), "/etc/app/one"}, {write(t, "two", 0o755), "/usr/bin/two"}},
		Args:     []string{"--config=/etc/app/one"}, Cmd: []string{"-v"}, Env: []string{"A=b"}, User: "65532:65532",
		Description: "An app", Version: "v1.2.3", Revision: "abc", Source: "https://fairlead.dev", Licenses: "Apache-2.0",
		Created: created,
	}
}

func build(t *testing.T, p Params) (string, v1.Descriptor) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "layout")
	d, err := Build(dir, p)
	require.NoError(t, err)
	return dir, d
}

// indexOf returns the index of a layout.
func indexOf(t *testing.T, dir string, d v1.Descriptor) v1.ImageIndex {
	t.Helper()
	path, err := layout.FromPath(dir)
	require.NoError(t, err)
	content, err := path.ImageIndex()
	require.NoError(t, err)
	index, err := content.ImageIndex(d.Digest)
	require.NoError(t, err)
	return index
}

func TestBuild_SameInputSameDigest(t *testing.T) {
	t.Parallel()
	first := params(t)
	first.Compress = true
	_, want := build(t, first)
	for range 5 {
		p := params(t)
		p.Compress = true
		rand.Shuffle(len(p.Files), func(i, j int) { p.Files[i], p.Files[j] = p.Files[j], p.Files[i] })
		rand.Shuffle(len(p.Binaries), func(i, j int) { p.Binaries[i], p.Binaries[j] = p.Binaries[j], p.Binaries[i] })
		p.Created = created.In(time.FixedZone("elsewhere", 3600)).Add(time.Millisecond)
		require.NoError(t, os.Chmod(p.Files[0].Source, fileMode(t, p.Files[0].Source)|0o660)) // another umask
		require.NoError(t, os.Chtimes(p.Binaries[0].File, time.Now(), time.Unix(1, 0)))
		_, got := build(t, p)
		require.Equal(t, want.Digest, got.Digest)
	}
}

func fileMode(t *testing.T, file string) os.FileMode {
	t.Helper()
	info, err := os.Stat(file)
	require.NoError(t, err)
	return info.Mode()
}

func TestBuild_DigestDependsOnWhatMatters(t *testing.T) {
	t.Parallel()
	_, want := build(t, params(t))
	tests := []struct {
		name   string
		change func(p *Params)
	}{
		{name: "binary", change: func(p *Params) { p.Binaries[0].File = p.Binaries[1].File }},
		{name: "platform", change: func(p *Params) { p.Binaries[0].Platform = "linux/s390x" }},
		{name: "path", change: func(p *Params) { p.Path = "/usr/bin/app" }},
		{name: "target of a file", change: func(p *Params) { p.Files[0].Target = "/etc/app/other" }},
		{name: "arguments of the entrypoint", change: func(p *Params) { p.Args = nil }},
		{name: "default arguments", change: func(p *Params) { p.Cmd = nil }},
		{name: "environment", change: func(p *Params) { p.Env = nil }},
		{name: "user", change: func(p *Params) { p.User = "" }},
		{name: "version", change: func(p *Params) { p.Version = "v1.2.4" }},
		{name: "time", change: func(p *Params) { p.Created = created.Add(time.Second) }},
		{name: "compression", change: func(p *Params) { p.Compress = true }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := params(t)
			tt.change(&p)
			_, got := build(t, p)
			assert.NotEqual(t, want.Digest, got.Digest)
		})
	}
}

func TestBuild_IndexAndConfiguration(t *testing.T) {
	t.Parallel()
	p := params(t)
	p.Compress = true
	dir, d := build(t, p)
	index := indexOf(t, dir, d)
	require.NoError(t, validate.Index(index), "digests, sizes and diff IDs")
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	assert.Equal(t, types.OCIImageIndex, manifest.MediaType)
	annotations := map[string]string{
		"org.opencontainers.image.title": "app", "org.opencontainers.image.description": "An app", "org.opencontainers.image.version": "v1.2.3",
		"org.opencontainers.image.revision": "abc", "org.opencontainers.image.source": "https://fairlead.dev",
		"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.created": "2026-11-01T12:00:00Z",
	}
	assert.Equal(t, annotations, manifest.Annotations)
	require.Len(t, manifest.Manifests, 2)
	for i, arch := range []string{"amd64", "arm64"} {
		assert.Equal(t, &v1.Platform{OS: "linux", Architecture: arch}, manifest.Manifests[i].Platform)
		img, err := index.Image(manifest.Manifests[i].Digest)
		require.NoError(t, err)
		config, err := img.ConfigFile()
		require.NoError(t, err)
		assert.Equal(t, arch, config.Architecture)
		assert.Equal(t, created, config.Created.Time)
		assert.Equal(t, v1.Config{Entrypoint: []string{"/app", "--config=/etc/app/one"}, Cmd: []string{"-v"}, Env: []string{"A=b"}, User: "65532:65532", WorkingDir: "/", Labels: annotations}, config.Config)
		image, err := img.Manifest()
		require.NoError(t, err)
		assert.Equal(t, annotations, image.Annotations)
		assert.Equal(t, types.OCILayer, image.Layers[0].MediaType)
	}
	content := contentOf(t, index, 1)
	assert.Equal(t, "for arm64", content["app"].text)
	assert.Equal(t, "one", content["etc/app/one"].text)
}

// content is an entry of an image.
type content struct {
	text string
	head tar.Header
}

// contentOf reads all layers of the image of a platform.
func contentOf(t *testing.T, index v1.ImageIndex, platform int) map[string]content {
	t.Helper()
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	img, err := index.Image(manifest.Manifests[platform].Digest)
	require.NoError(t, err)
	layers, err := img.Layers()
	require.NoError(t, err)
	found := map[string]content{}
	for _, l := range layers {
		in, err := l.Uncompressed()
		require.NoError(t, err)
		archive := tar.NewReader(in)
		for {
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			raw, err := io.ReadAll(archive)
			require.NoError(t, err)
			found[h.Name] = content{text: string(raw), head: *h}
		}
		require.NoError(t, in.Close())
	}
	return found
}

func TestBuild_ImageHasWhatAStaticBinaryNeeds(t *testing.T) {
	t.Parallel()
	dir, d := build(t, params(t))
	found := contentOf(t, indexOf(t, dir, d), 0)
	modes := map[string]int64{}
	for name, c := range found {
		modes[name] = c.head.Mode
		assert.Equal(t, created, c.head.ModTime.UTC(), name)
		if name != "home/nonroot/" {
			assert.Zero(t, c.head.Uid+c.head.Gid, name)
		}
	}
	assert.Equal(t, map[string]int64{
		"app": 0o755, "etc/": 0o755, "etc/app/": 0o755, "etc/app/one": 0o644, "etc/group": 0o644, "etc/passwd": 0o644, "etc/ssl/": 0o755,
		"etc/ssl/certs/": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644, "home/": 0o755, "home/nonroot/": 0o700, "root/": 0o700,
		"tmp/": 0o1777, "usr/": 0o755, "usr/bin/": 0o755, "usr/bin/two": 0o755,
	}, modes)
	assert.Equal(t, Nonroot, found["home/nonroot/"].head.Uid)
	assert.Contains(t, found["etc/passwd"].text, "nonroot:x:65532:65532:")

	var roots int
	rest := []byte(found["etc/ssl/certs/ca-certificates.crt"].text)
	for block, after := pem.Decode(rest); block != nil; block, after = pem.Decode(after) {
		_, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		roots++
	}
	assert.Greater(t, roots, 100)
}

func TestBuild_Refuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, want string
		change     func(p *Params)
	}{
		{name: "no name", want: "an image needs a name and a binary", change: func(p *Params) { p.Name = "" }},
		{name: "no binary", want: "an image needs a name and a binary", change: func(p *Params) { p.Binaries = nil }},
		{name: "a platform twice", want: "two binaries for linux/amd64", change: func(p *Params) { p.Binaries[1].Platform = "linux/amd64" }},
		{name: "unknown platform", want: "too many slashes", change: func(p *Params) { p.Binaries[1].Platform = "a/b/c/d" }},
		{name: "missing binary", want: "no such file or directory", change: func(p *Params) { p.Binaries[1].File = "/nowhere" }},
		{name: "a directory", want: "is not a regular file", change: func(p *Params) { p.Files[0].Source = "/" }},
		{name: "relative target", want: `"a" is not an absolute path`, change: func(p *Params) { p.Files[0].Target = "a" }},
		{name: "target that leads up", want: `"/a/../b" is not an absolute path`, change: func(p *Params) { p.Files[0].Target = "/a/../b" }},
		{name: "the root", want: `"/" is not an absolute path of a file`, change: func(p *Params) { p.Path = "/" }},
		{name: "two files of a name", want: "/usr/bin/two: two files of this name", change: func(p *Params) { p.Files[0].Target = "/usr/bin/two" }},
		{name: "a file of the base", want: "/etc/passwd: two files of this name", change: func(p *Params) { p.Files[0].Target = "/etc/passwd" }},
		{name: "a file below a file", want: "/app/x: /app is a file", change: func(p *Params) { p.Files[0].Target = "/app/x" }},
		{name: "no Go program to attest", want: "which must be a Go program", change: func(p *Params) { p.Attest = true }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := params(t)
			tt.change(&p)
			top := t.TempDir()
			kept := filepath.Join(top, "layout")
			require.NoError(t, os.Mkdir(kept, 0o755))
			_, err := Build(kept, p)
			require.ErrorContains(t, err, tt.want)
			left, err := os.ReadDir(top)
			require.NoError(t, err)
			assert.Len(t, left, 1, "the earlier layout, and nothing temporary")
		})
	}
}

func TestBuild_ReplacesAnEarlierLayout(t *testing.T) {
	t.Parallel()
	p := params(t)
	p.Compress = true
	dir, _ := build(t, p)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "blobs", "sha256", strings.Repeat("0", 64)), nil, 0o644))
	p.Version = "v2.0.0"
	d, err := Build(dir, p)
	require.NoError(t, err)
	require.NoError(t, validate.Index(indexOf(t, dir, d)))
	assert.NoFileExists(t, filepath.Join(dir, "blobs", "sha256", strings.Repeat("0", 64)))
}
