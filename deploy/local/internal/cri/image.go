package cri

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/deploy/local/internal/imagestore"
)

// imageError gives the kubelet the code that it shows as ErrImagePull or InvalidImageName.
func imageError(err error) error {
	if errors.Is(err, imagestore.ErrNotFound) {
		return status.Error(codes.NotFound, err.Error())
	}
	return err
}

func describe(i *imagestore.Image) *runtimeapi.Image {
	out := &runtimeapi.Image{Id: i.Digest, Size: uint64(i.Size), Uid: &runtimeapi.Int64Value{Value: int64(i.UserID())}, Pinned: true}
	for _, r := range i.Refs {
		out.RepoTags = append(out.RepoTags, r.String())
	}
	return out
}

// ListImages lists the store.
func (r *Runtime) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	images, err := r.Images.List()
	if err != nil {
		return nil, err
	}
	out := make([]*runtimeapi.Image, len(images))
	for i, img := range images {
		out[i] = describe(img)
	}
	return out, nil
}

// ImageStatus describes one image; a missing one is no error but nothing.
func (r *Runtime) ImageStatus(_ context.Context, s *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	img, err := r.Images.Resolve(s.Image)
	if errors.Is(err, imagestore.ErrNotFound) {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ImageStatusResponse{Image: describe(img)}, nil
}

// PullImage only looks: the store is on this machine.
func (r *Runtime) PullImage(_ context.Context, s *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	img, err := r.Images.Resolve(s.Image)
	if err != nil {
		return "", imageError(err)
	}
	return img.Digest, nil
}

// RemoveImage leaves the store alone: it is not the node's.
func (r *Runtime) RemoveImage(context.Context, *runtimeapi.ImageSpec) error { return nil }

// ImageFsInfo reports that images take no room on the node.
func (r *Runtime) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	u := []*runtimeapi.FilesystemUsage{{Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: r.Dir},
		UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{}}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: u, ContainerFilesystems: u}, nil
}
