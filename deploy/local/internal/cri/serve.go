package cri

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// socketMode is that of containerd's socket: for root and its group.
const socketMode = 0o660

// Serve serves the CRI's questions about sandboxes and containers at a Unix socket, until ctx ends: for programs of the node beside its
// kubelet. Nothing can be changed through it.
func (r *Runtime) Serve(ctx context.Context, socket string) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o711); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("open socket of container runtime: %w", err)
	}
	if err := os.Chmod(socket, socketMode); err != nil {
		listener.Close()
		return err
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, questions{r: r})
	go func() { _ = server.Serve(listener) }() // ends by Stop
	context.AfterFunc(ctx, server.Stop)
	return nil
}

// questions are the calls without an effect.
type questions struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	r *Runtime
}

// Version answers with the version of the CRI.
func (q questions) Version(ctx context.Context, m *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return q.r.Version(ctx, m.Version)
}

// Status answers whether the runtime works.
func (q questions) Status(ctx context.Context, m *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return q.r.Status(ctx, m.Verbose)
}

// ListPodSandbox lists pods.
func (q questions) ListPodSandbox(ctx context.Context, m *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	items, err := q.r.ListPodSandbox(ctx, m.Filter)
	return &runtimeapi.ListPodSandboxResponse{Items: items}, err
}

// PodSandboxStatus describes one pod.
func (q questions) PodSandboxStatus(ctx context.Context,
	m *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return q.r.PodSandboxStatus(ctx, m.PodSandboxId, m.Verbose)
}

// ListContainers lists containers.
func (q questions) ListContainers(ctx context.Context, m *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	items, err := q.r.ListContainers(ctx, m.Filter)
	return &runtimeapi.ListContainersResponse{Containers: items}, err
}

// ContainerStatus describes one container.
func (q questions) ContainerStatus(ctx context.Context, m *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return q.r.ContainerStatus(ctx, m.ContainerId, m.Verbose)
}
