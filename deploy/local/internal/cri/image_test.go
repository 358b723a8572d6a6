package cri

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/deploy/local/internal/imagestore"
)

// withImage is a runtime whose store has one image.
func withImage(t *testing.T, ref string) (*Runtime, *imagestore.Image) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "app")
	require.NoError(t, os.WriteFile(file, []byte("program"), 0o755))
	store := imagestore.Open(t.TempDir())
	img, err := store.Add(ref, []imagestore.File{{Source: file, Target: "/app"}}, imagestore.Config{Entrypoint: []string{"/app"}})
	require.NoError(t, err)
	return &Runtime{Params: Params{Images: store, Dir: t.TempDir()}}, img
}

func TestImages_AreTheStores(t *testing.T) {
	t.Parallel()
	r, img := withImage(t, "app:v1")
	require.NoError(t, r.Images.Tag("app:v1", "app:v2"))
	want := &runtimeapi.Image{Id: img.Digest, Size: 7, Uid: &runtimeapi.Int64Value{Value: 65532}, Pinned: true, RepoTags: []string{"app:v1", "app:v2"}}
	list, err := r.ListImages(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, []*runtimeapi.Image{want}, list)

	want.RepoTags = []string{"app:v2"}
	resp, err := r.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: "registry.example/app:v2"}, false)
	require.NoError(t, err)
	assert.Equal(t, want, resp.Image)

	digest, err := r.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "registry.example/app:v1"}, nil, nil)
	require.NoError(t, err)
	assert.Equal(t, img.Digest, digest)
}

func TestImages_Missing(t *testing.T) {
	t.Parallel()
	r, _ := withImage(t, "app:v1")
	resp, err := r.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: "app:v2"}, false)
	require.NoError(t, err, "that is how the kubelet asks whether to pull")
	assert.Nil(t, resp.Image)
	_, err = r.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "app:v2"}, nil, nil)
	assert.Equal(t, codes.NotFound, status.Code(err))
	require.ErrorContains(t, err, "image not found: app:v2")
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
	require.NoError(t, r.RemoveImage(t.Context(), &runtimeapi.ImageSpec{Image: img.Digest}))
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
