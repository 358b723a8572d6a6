//go:build system

package registry

import (
	"encoding/json"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/images/internal/oci"
	"fairlead.dev/deploy/images/internal/programtest"
)

// serve starts a registry and returns its host. Older registries have no API for referrers.
func serve(t *testing.T, referrers bool) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(referrers)))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func built(t *testing.T) (string, v1.Descriptor) {
	t.Helper()
	program, dir := programtest.Compile(t), filepath.Join(t.TempDir(), "layout")
	d, err := oci.Build(dir, oci.Params{Name: "app", Version: "v1.2.3", Binaries: []oci.Binary{{Platform: "linux/amd64", File: program}, {Platform: "linux/arm64", File: program}},
		Compress: true, Attest: true})
	require.NoError(t, err)
	return dir, d
}

func digest(t *testing.T, ref string) v1.Hash {
	t.Helper()
	parsed, err := name.ParseReference(ref)
	require.NoError(t, err)
	d, err := remote.Head(parsed)
	require.NoError(t, err)
	return d.Digest
}

func TestPush(t *testing.T) {
	t.Parallel()
	dir, index := built(t)
	for mode, referrers := range map[string]bool{"with the API of referrers": true, "without": false} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			host := serve(t, referrers)
			got, err := Push(t.Context(), Target{Registry: host + "/team"}, dir)
			require.NoError(t, err)
			assert.Equal(t, host+"/team/app:v1.2.3@"+index.Digest.String(), got)

			parsed, err := name.ParseReference(got)
			require.NoError(t, err)
			pulled, err := remote.Index(parsed)
			require.NoError(t, err)
			require.NoError(t, validate.Index(pulled))
			assert.Equal(t, []string{"application/vnd.in-toto+json"}, artifacts(t, parsed.Context().Digest(index.Digest.String())))
			manifest, err := pulled.IndexManifest()
			require.NoError(t, err)
			for _, image := range manifest.Manifests {
				assert.Equal(t, []string{"application/spdx+json"}, artifacts(t, parsed.Context().Digest(image.Digest.String())))
			}
			_, err = remote.Head(parsed.Context().Tag("latest"))
			require.ErrorContains(t, err, "404")
		})
	}
}

// artifacts are the types of what refers to a manifest.
func artifacts(t *testing.T, subject name.Digest) []string {
	t.Helper()
	index, err := remote.Referrers(subject)
	require.NoError(t, err)
	raw, err := index.RawManifest()
	require.NoError(t, err)
	var list v1.IndexManifest
	require.NoError(t, json.Unmarshal(raw, &list))
	var found []string
	for _, d := range list.Manifests { // whose types this registry takes from their configurations
		artifact, err := remote.Get(subject.Context().Digest(d.Digest.String()))
		require.NoError(t, err)
		var manifest v1.Manifest
		require.NoError(t, json.Unmarshal(artifact.Manifest, &manifest))
		found = append(found, manifest.ArtifactType)
	}
	return found
}

func TestPush_Latest(t *testing.T) {
	t.Parallel()
	dir, index := built(t)
	host := serve(t, true)
	_, err := Push(t.Context(), Target{Registry: host, Version: "v1.2.3", Latest: true}, dir)
	require.NoError(t, err)
	assert.Equal(t, index.Digest, digest(t, host+"/app:latest"))
}
