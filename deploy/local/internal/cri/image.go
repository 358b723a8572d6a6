package cri

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/deploy/local/internal/imagestore"
)

// imageError adds the code that the kubelet shows as ErrImagePull or InvalidImageName.
func imageError(err error) error {
	if errors.Is(err, imagestore.ErrNotFound) {
		return status.Error(codes.NotFound, err.Error())
	}
	return err
}

// resolve finds an image in the store that clusters share, or among the node's pulled ones.
func (r *Runtime) resolve(ref string) (*imagestore.Image, error) {
	img, err := r.Images.Resolve(ref)
	if errors.Is(err, imagestore.ErrNotFound) {
		return r.Pulled.Resolve(ref)
	}
	return img, err
}

func describe(i *imagestore.Image) *runtimeapi.Image {
	out := &runtimeapi.Image{Id: i.ID, Size: uint64(i.Size), RepoDigests: i.Digests, Pinned: true}
	for _, r := range i.Refs {
		out.RepoTags = append(out.RepoTags, r.String())
	}
	// As in containerd. An image without a user has neither: the kubelet assumes root.
	user, _, _ := strings.Cut(i.Config.User, ":")
	if uid, err := strconv.ParseInt(user, 10, 64); err == nil {
		out.Uid = &runtimeapi.Int64Value{Value: uid}
	} else {
		out.Username = user
	}
	return out
}

// ListImages lists both stores.
func (r *Runtime) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	var out []*runtimeapi.Image
	for _, store := range []*imagestore.Store{r.Images, r.Pulled} {
		images, err := store.List()
		if err != nil {
			return nil, err
		}
		for _, img := range images {
			out = append(out, describe(img))
		}
	}
	return out, nil
}

// ImageStatus describes one image; for a missing one it returns nothing, without an error.
func (r *Runtime) ImageStatus(_ context.Context, s *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	img, err := r.resolve(s.Image)
	if errors.Is(err, imagestore.ErrNotFound) {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ImageStatusResponse{Image: describe(img)}, nil
}

// PullImage returns an image of the store that clusters share, or pulls it from the registry in its reference.
func (r *Runtime) PullImage(ctx context.Context, s *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
	_ *runtimeapi.PodSandboxConfig) (string, error) {
	img, err := r.Images.Resolve(s.Image)
	if errors.Is(err, imagestore.ErrNotFound) {
		img, err = r.Pulled.Pull(ctx, s.Image, imagestore.PullOptions{Insecure: r.InsecureRegistries, Auth: credentials(auth)})
	}
	if err != nil {
		return "", imageError(err)
	}
	return img.ID, nil
}

func credentials(auth *runtimeapi.AuthConfig) authn.AuthConfig {
	return authn.AuthConfig{Username: auth.GetUsername(), Password: auth.GetPassword(), Auth: auth.GetAuth(),
		IdentityToken: auth.GetIdentityToken(), RegistryToken: auth.GetRegistryToken()}
}

// RemoveImage keeps images: the shared store does not belong to the node, and pulled images end with the node's disk.
func (r *Runtime) RemoveImage(context.Context, *runtimeapi.ImageSpec) error { return nil }

// ImageFsInfo reports that images use no space on the node.
func (r *Runtime) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	u := []*runtimeapi.FilesystemUsage{{Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: r.Dir},
		UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{}}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: u, ContainerFilesystems: u}, nil
}
