//go:build system

package oci

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/images/internal/programtest"
)

// The artifacts are listed beside the index, refer to the image of their platform or to the index, and are the same each time.
func TestBuild_Attestations(t *testing.T) {
	t.Parallel()
	program := programtest.Compile(t)
	p := params(t)
	p.Attest = true
	p.Binaries = []Binary{{"linux/amd64", program}, {"linux/arm64", program}}
	dir, d := build(t, p)
	_, again := build(t, p)
	assert.Equal(t, d.Digest, again.Digest)

	raw, err := os.ReadFile(filepath.Join(dir, "index.json"))
	require.NoError(t, err)
	var list v1.IndexManifest
	require.NoError(t, json.Unmarshal(raw, &list))
	require.Len(t, list.Manifests, 4)
	assert.Equal(t, d.Digest, list.Manifests[0].Digest)
	images, err := indexOf(t, dir, d).IndexManifest()
	require.NoError(t, err)
	want := []struct {
		kind    string
		subject v1.Hash
	}{{"application/spdx+json", images.Manifests[0].Digest}, {"application/spdx+json", images.Manifests[1].Digest}, {"application/vnd.in-toto+json", d.Digest}}
	for i, w := range want {
		artifact := list.Manifests[i+1]
		assert.Equal(t, w.kind, artifact.ArtifactType)
		raw, err := os.ReadFile(filepath.Join(dir, "blobs", "sha256", artifact.Digest.Hex))
		require.NoError(t, err)
		var manifest v1.Manifest
		require.NoError(t, json.Unmarshal(raw, &manifest))
		assert.Equal(t, w.kind, manifest.ArtifactType)
		assert.Equal(t, w.subject, manifest.Subject.Digest)
		assert.Equal(t, types.MediaType(emptyConfig), manifest.Config.MediaType)
		require.Len(t, manifest.Layers, 1)
		document, err := os.ReadFile(filepath.Join(dir, "blobs", "sha256", manifest.Layers[0].Digest.Hex))
		require.NoError(t, err)
		assert.Contains(t, string(document), w.subject.Hex)
	}
}
