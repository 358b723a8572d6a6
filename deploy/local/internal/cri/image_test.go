package cri

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/deploy/local/internal/imagestore"
	"fairlead.dev/deploy/local/internal/imagestore/imagetest"
)

// withImage is a runtime that can start containers of one image.
func withImage(t *testing.T, ref string) (*Runtime, *imagestore.Image) {
	t.Helper()
	store := imagestore.Open(t.TempDir())
	img, err := store.LoadLayout(imagetest.Layout(t, appImage(t, "65532:65532")), ref)
	require.NoError(t, err)
	return &Runtime{Params: Params{Images: store, Pulled: imagestore.Open(t.TempDir()), Dir: t.TempDir()}}, img
}

func appImage(t *testing.T, user string) v1.Image {
	t.Helper()
	return imagetest.Image(t, v1.Config{Entrypoint: []string{"/app"}, User: user}, imagetest.Layer(t, imagetest.File("app", "program", 0o755)))
}

func TestImages_AreTheStores(t *testing.T) {
	t.Parallel()
	r, img := withImage(t, "app:v1")
	require.NoError(t, r.Images.Tag("app:v1", "app:v2"))
	want := &runtimeapi.Image{Id: img.ID, Size: 7, Uid: &runtimeapi.Int64Value{Value: 65532}, Pinned: true,
		RepoTags: []string{"docker.io/library/app:v1", "docker.io/library/app:v2"}, RepoDigests: img.Digests}
	list, err := r.ListImages(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, []*runtimeapi.Image{want}, list)

	resp, err := r.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: "docker.io/app:v2"}, false)
	require.NoError(t, err)
	assert.Equal(t, want, resp.Image)

	id, err := r.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "docker.io/library/app:v1"}, nil, nil)
	require.NoError(t, err)
	assert.Equal(t, img.ID, id)
}

// The kubelet decides by these whether runAsNonRoot holds.
func TestImageStatus_User(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give, wantName string
		want                 *runtimeapi.Int64Value
	}{
		{name: "none", give: ""},
		{name: "number", give: "1000", want: &runtimeapi.Int64Value{Value: 1000}},
		{name: "number and group", give: "1000:50", want: &runtimeapi.Int64Value{Value: 1000}},
		{name: "root", give: "0", want: &runtimeapi.Int64Value{}},
		{name: "name", give: "nobody", wantName: "nobody"},
		{name: "name and group", give: "nobody:50", wantName: "nobody"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store := imagestore.Open(t.TempDir())
			_, err := store.LoadLayout(imagetest.Layout(t, appImage(t, tt.give)), "app:v1")
			require.NoError(t, err)
			r := &Runtime{Params: Params{Images: store, Pulled: imagestore.Open(t.TempDir())}}
			resp, err := r.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: "app:v1"}, false)
			require.NoError(t, err)
			assert.Equal(t, tt.want, resp.Image.Uid)
			assert.Equal(t, tt.wantName, resp.Image.Username)
		})
	}
}

func TestPullImage_FromARegistryToTheNode(t *testing.T) {
	t.Parallel()
	handler := registry.New()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if user, password, _ := q.BasicAuth(); q.Method == http.MethodGet && user+password != "usersecret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, q)
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	to, err := name.ParseReference(host + "/fairlead/app:v1")
	require.NoError(t, err)
	require.NoError(t, remote.Write(to, appImage(t, "7"), remote.WithAuth(&authn.Basic{Username: "user", Password: "secret"})))

	r, _ := withImage(t, "app:v1")
	spec := &runtimeapi.ImageSpec{Image: host + "/fairlead/app:v1"}
	_, err = r.PullImage(t.Context(), spec, nil, nil)
	require.ErrorContains(t, err, "401 Unauthorized")
	id, err := r.PullImage(t.Context(), spec, &runtimeapi.AuthConfig{Username: "user", Password: "secret"}, nil)
	require.NoError(t, err)
	for _, ref := range []string{spec.Image, id} {
		resp, err := r.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: ref}, false)
		require.NoError(t, err)
		require.NotNil(t, resp.Image, ref)
		assert.Equal(t, []string{spec.Image}, resp.Image.RepoTags)
	}
	list, err := r.ListImages(t.Context(), nil)
	require.NoError(t, err)
	assert.Len(t, list, 2)
	_, err = r.Images.Resolve(spec.Image)
	require.ErrorIs(t, err, imagestore.ErrNotFound, "other clusters share that store")

	_, err = r.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: host + "/fairlead/app:v2"}, &runtimeapi.AuthConfig{Username: "user", Password: "secret"}, nil)
	assert.Equal(t, codes.NotFound, status.Code(err))
}

func TestImages_Missing(t *testing.T) {
	t.Parallel()
	r, _ := withImage(t, "app:v1")
	resp, err := r.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: "app:v2"}, false)
	require.NoError(t, err, "that is how the kubelet asks whether to pull")
	assert.Nil(t, resp.Image)
	_, err = r.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "app:v2"}, nil, nil)
	assert.Equal(t, codes.NotFound, status.Code(err))
	require.ErrorContains(t, err, "image not found: docker.io/library/app:v2")
}

func TestImages_WrongReferenceIsAnErrorOfItsOwn(t *testing.T) {
	t.Parallel()
	r, _ := withImage(t, "app:v1")
	_, err := r.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "A B"}, nil, nil)
	require.ErrorContains(t, err, "is not an image reference")
	assert.NotEqual(t, codes.NotFound, status.Code(err))
	_, err = r.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: "A B"}, false)
	require.ErrorContains(t, err, "is not an image reference")
}

func TestRemoveImage_LeavesTheStoreAlone(t *testing.T) {
	t.Parallel()
	r, img := withImage(t, "app:v1")
	require.NoError(t, r.RemoveImage(t.Context(), &runtimeapi.ImageSpec{Image: img.ID}))
	_, err := r.Images.Resolve("app:v1")
	require.NoError(t, err)
}

func TestImageFsInfo_NamesTheNodesDisk(t *testing.T) {
	t.Parallel()
	r, _ := withImage(t, "app:v1")
	info, err := r.ImageFsInfo(t.Context())
	require.NoError(t, err)
	require.Len(t, info.ImageFilesystems, 1)
	assert.Equal(t, r.Dir, info.ImageFilesystems[0].FsId.Mountpoint)
	assert.Equal(t, info.ImageFilesystems, info.ContainerFilesystems)
}
