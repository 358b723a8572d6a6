package imagestore

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/local/internal/imagestore/imagetest"
)

// registryServer is a registry that counts how often blobs are fetched, and asks for a password if there is one.
type registryServer struct {
	host  string
	blobs atomic.Int32
}

func startRegistry(t *testing.T, password string) *registryServer {
	t.Helper()
	r := &registryServer{}
	handler := registry.New()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if _, got, _ := q.BasicAuth(); got != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/blobs/") {
			r.blobs.Add(1)
		}
		handler.ServeHTTP(w, q)
	}))
	t.Cleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	return r
}

func (r *registryServer) push(t *testing.T, ref, content string) v1.Image {
	t.Helper()
	img := imagetest.Image(t, runsProgram(), imagetest.Layer(t, imagetest.File("program", content, 0o755)))
	to, err := name.ParseReference(r.host + "/" + ref)
	require.NoError(t, err)
	require.NoError(t, remote.Write(to, img))
	return img
}

func TestPull_AsksEachTimeAndFetchesWhatIsNew(t *testing.T) {
	t.Parallel()
	r := startRegistry(t, "")
	pushed := r.push(t, "team/app:1", "one")
	s := Open(filepath.Join(t.TempDir(), "store"))
	ref := r.host + "/team/app:1"
	img, err := s.Pull(t.Context(), ref, PullOptions{})
	require.NoError(t, err)
	digest, err := pushed.Digest()
	require.NoError(t, err)
	assert.Equal(t, []string{r.host + "/team/app@" + digest.String()}, img.Digests)
	assert.Equal(t, []Reference{{r.host + "/team/app", "1"}}, img.Refs)
	assert.FileExists(t, filepath.Join(img.Root, "program"))

	fetched := r.blobs.Load()
	again, err := s.Pull(t.Context(), ref, PullOptions{})
	require.NoError(t, err)
	assert.Equal(t, img, again)
	assert.Equal(t, fetched+1, r.blobs.Load(), "the configuration only")

	r.push(t, "team/app:1", "two")
	changed, err := s.Pull(t.Context(), ref, PullOptions{})
	require.NoError(t, err)
	assert.NotEqual(t, img.ID, changed.ID)
	old, err := s.Pull(t.Context(), img.Digests[0], PullOptions{})
	require.NoError(t, err)
	assert.Equal(t, img.ID, old.ID)
}

func TestPull_TakesThisMachinesPlatform(t *testing.T) {
	t.Parallel()
	r := startRegistry(t, "")
	path, err := layout.FromPath(withPlatforms(t, nil, v1.Platform{OS: "linux", Architecture: "riscv64"}, v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	require.NoError(t, err)
	content, err := path.ImageIndex()
	require.NoError(t, err)
	manifest, err := content.IndexManifest()
	require.NoError(t, err)
	index, err := content.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	to, err := name.ParseReference(r.host + "/app:1")
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(to, index))

	img, err := Open(t.TempDir()).Pull(t.Context(), r.host+"/app:1", PullOptions{})
	require.NoError(t, err)
	assert.Equal(t, []string{r.host + "/app@" + manifest.Manifests[0].Digest.String()}, img.Digests, "that of the index")
	raw, err := os.ReadFile(filepath.Join(img.Root, "program"))
	require.NoError(t, err)
	assert.Equal(t, "linux/"+runtime.GOARCH, string(raw))
}

func TestPull_Credentials(t *testing.T) {
	t.Parallel()
	r := startRegistry(t, "")
	secret := startRegistry(t, "secret")
	_, err := Open(t.TempDir()).Pull(t.Context(), secret.host+"/app:1", PullOptions{})
	require.ErrorContains(t, err, "401 Unauthorized")
	require.NotErrorIs(t, err, ErrNotFound)
	_, err = Open(t.TempDir()).Pull(t.Context(), secret.host+"/app:1", PullOptions{Auth: authn.AuthConfig{Username: "u", Password: "secret"}})
	require.ErrorIs(t, err, ErrNotFound, "it was let in")
	_, err = Open(t.TempDir()).Pull(t.Context(), r.host+"/app:1", PullOptions{})
	require.ErrorIs(t, err, ErrNotFound)
}

func TestPull_NothingComesFromTheDefaultRegistry(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{"app:1", "fairlead/app:1", "docker.io/fairlead/app:1"} {
		_, err := Open(t.TempDir()).Pull(t.Context(), ref, PullOptions{})
		require.ErrorIs(t, err, ErrNotFound)
		assert.ErrorContains(t, err, "it names no registry to pull from")
	}
}

// No name server knows the host: the error shows what was tried last.
func TestPull_PlainHTTPBeyondPrivateAddressesIfAllowed(t *testing.T) {
	t.Parallel()
	const host = "registry.invalid:5000"
	_, err := Open(t.TempDir()).Pull(t.Context(), host+"/app:1", PullOptions{})
	require.ErrorContains(t, err, `"https://`+host)
	assert.NotContains(t, err.Error(), `"http://`)
	_, err = Open(t.TempDir()).Pull(t.Context(), host+"/app:1", PullOptions{Insecure: []string{host}})
	require.ErrorContains(t, err, `"http://`+host)
}
