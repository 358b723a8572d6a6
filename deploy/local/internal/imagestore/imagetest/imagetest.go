// Package imagetest makes OCI images for tests.
package imagetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"runtime"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
)

// File returns an entry of a layer.
func File(name, content string, mode int64) Entry {
	return Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}, Content: content}
}

// Entry is an entry of a layer.
type Entry struct {
	tar.Header
	Content string
}

// Layer returns a layer of entries.
func Layer(t testing.TB, entries ...Entry) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		require.NoError(t, w.WriteHeader(&e.Header))
		_, err := io.WriteString(w, e.Content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	// The race detector makes a compressor slow, and a program has megabytes.
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithCompressionLevel(gzip.NoCompression))
	require.NoError(t, err)
	return l
}

// Image returns an image of layers for this machine's platform.
func Image(t testing.TB, config v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	require.NoError(t, err)
	file, err := img.ConfigFile()
	require.NoError(t, err)
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, config
	img, err = mutate.ConfigFile(img, file)
	require.NoError(t, err)
	return img
}

// Layout writes a layout of an image and returns its folder.
func Layout(t testing.TB, img v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	path, err := layout.Write(dir, empty.Index)
	require.NoError(t, err)
	require.NoError(t, path.AppendImage(img))
	return dir
}
