package registry

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/images/internal/oci"
)

func TestPush_Refuses(t *testing.T) {
	t.Parallel()
	const host = "registry.example" // nothing is sent
	program, dir := filepath.Join(t.TempDir(), "program"), filepath.Join(t.TempDir(), "layout")
	require.NoError(t, os.WriteFile(program, []byte("x"), 0o755))
	_, err := oci.Build(dir, oci.Params{Name: "app", Version: "v1.2.3", Binaries: []oci.Binary{{Platform: "linux/amd64", File: program}}})
	require.NoError(t, err)
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
