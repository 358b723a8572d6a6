package cri

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The rest of the CRI: calls without meaning without cgroups succeed, others that users may need return an error.

func errUnimplemented(what string) error {
	return status.Errorf(codes.Unimplemented, "the embedded Kubernetes has no %s", what)
}

// UpdateRuntimeConfig succeeds: pod ranges are fixed.
func (r *Runtime) UpdateRuntimeConfig(context.Context, *runtimeapi.RuntimeConfig) error { return nil }

// Close does nothing.
func (r *Runtime) Close(context.Context) error { return nil }

// RuntimeConfig returns no configuration.
func (r *Runtime) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{}, nil
}

// UpdateContainerResources succeeds: there are no limits.
func (r *Runtime) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}

// UpdatePodSandboxResources succeeds: there are no limits.
func (r *Runtime) UpdatePodSandboxResources(context.Context,
	*runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// Attach is not supported.
func (r *Runtime) Attach(context.Context, *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return nil, errUnimplemented("attach")
}

// CheckpointContainer is not supported.
func (r *Runtime) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error {
	return errUnimplemented("checkpoints")
}

// CheckpointPod is not supported.
func (r *Runtime) CheckpointPod(context.Context, *runtimeapi.CheckpointPodRequest) error {
	return errUnimplemented("checkpoints")
}

// RestorePod is not supported.
func (r *Runtime) RestorePod(context.Context, *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return nil, errUnimplemented("checkpoints")
}

// GetContainerEvents is not supported; the kubelet lists once per second instead.
func (r *Runtime) GetContainerEvents(context.Context, chan *runtimeapi.ContainerEventResponse,
	func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	return errUnimplemented("container events")
}

// PodSandboxStats is not supported; the kubelet sums the containers.
func (r *Runtime) PodSandboxStats(context.Context, string) (*runtimeapi.PodSandboxStats, error) {
	return nil, errUnimplemented("sandbox statistics")
}

// ListPodSandboxStats is not supported; the kubelet sums the containers.
func (r *Runtime) ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return nil, errUnimplemented("sandbox statistics")
}

// ListMetricDescriptors is not supported.
func (r *Runtime) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return nil, errUnimplemented("runtime metrics")
}

// ListPodSandboxMetrics is not supported.
func (r *Runtime) ListPodSandboxMetrics(context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return nil, errUnimplemented("runtime metrics")
}
