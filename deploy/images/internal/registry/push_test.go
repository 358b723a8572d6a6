package registry

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
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

func TestPush_Refuses(t *testing.T) {
	t.Parallel()
	dir, _ := built(t)
	host := serve(t, true)
	empty := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(empty, "index.json"), []byte(`{"schemaVersion":2,"manifests":[]}`), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(empty, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644))
	tests := []struct {
		name   string
		target Target
		dir    string
		want   string
	}{
		{name: "no layout", target: Target{Registry: host}, dir: t.TempDir(), want: "read layout "},
		{name: "no image", target: Target{Registry: host}, dir: empty, want: "want one index of images"},
		{name: "another version", target: Target{Registry: host, Version: "v2.0.0"}, dir: dir, want: `the image has version "v1.2.3", not "v2.0.0": build it with ` + "`make images VERSION=v2.0.0`"},
		{name: "no registry", target: Target{Registry: "UPPER CASE"}, dir: dir, want: "the registry, the title or the version is wrong"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Push(t.Context(), tt.target, tt.dir)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// roundTrip is a network on which everything is an answer in plain HTTP.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransport_PlainHTTPBeyondLoopbackOnlyIfAllowed(t *testing.T) {
	t.Parallel()
	sent := roundTrip(func(*http.Request) (*http.Response, error) { return &http.Response{}, nil })
	tests := []struct {
		url      string
		insecure bool
		wantErr  string
	}{
		{url: "http://127.0.0.1:5000/v2/"}, {url: "http://[::1]:5000/v2/"}, {url: "http://localhost:5000/v2/"}, {url: "https://registry.example/v2/"},
		{url: "http://10.0.0.1:5000/v2/", wantErr: "10.0.0.1:5000 answers in plain HTTP only: use --insecure"}, {url: "http://10.0.0.1:5000/v2/", insecure: true},
		{url: "http://localhost.example/v2/", wantErr: "localhost.example answers in plain HTTP only"},
	}
	for _, tt := range tests {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tt.url, nil)
		require.NoError(t, err)
		_, err = transport{insecure: tt.insecure, base: sent}.RoundTrip(req)
		if tt.wantErr == "" {
			require.NoError(t, err, tt.url)
			continue
		}
		require.ErrorContains(t, err, tt.wantErr)
	}
}
