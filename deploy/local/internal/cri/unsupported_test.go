package cri

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestUnsupported_SaysSo(t *testing.T) {
	t.Parallel()
	r, ctx := &Runtime{}, t.Context()
	tests := []struct {
		name string
		call func() error
		want string
	}{
		{name: "Attach", want: "attach", call: func() error { _, err := r.Attach(ctx, nil); return err }},
		{name: "CheckpointContainer", want: "checkpoints", call: func() error { return r.CheckpointContainer(ctx, nil) }},
		{name: "CheckpointPod", want: "checkpoints", call: func() error { return r.CheckpointPod(ctx, nil) }},
		{name: "RestorePod", want: "checkpoints", call: func() error { _, err := r.RestorePod(ctx, nil); return err }},
		{name: "GetContainerEvents", want: "container events", call: func() error { return r.GetContainerEvents(ctx, nil, nil) }},
		{name: "PodSandboxStats", want: "sandbox statistics", call: func() error { _, err := r.PodSandboxStats(ctx, "x"); return err }},
		{name: "ListPodSandboxStats", want: "sandbox statistics", call: func() error { _, err := r.ListPodSandboxStats(ctx, nil); return err }},
		{name: "ListMetricDescriptors", want: "runtime metrics", call: func() error { _, err := r.ListMetricDescriptors(ctx); return err }},
		{name: "ListPodSandboxMetrics", want: "runtime metrics", call: func() error { _, err := r.ListPodSandboxMetrics(ctx); return err }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.call()
			assert.Equal(t, codes.Unimplemented, status.Code(err))
			require.ErrorContains(t, err, "the embedded Kubernetes has no "+tt.want)
		})
	}
}

// The kubelet calls these whatever the pod says.
func TestUnsupported_WithoutLimitsThereIsNothingToUpdate(t *testing.T) {
	t.Parallel()
	r, ctx := &Runtime{}, t.Context()
	require.NoError(t, r.UpdateRuntimeConfig(ctx, nil))
	require.NoError(t, r.UpdateContainerResources(ctx, "x", nil))
	sandbox, err := r.UpdatePodSandboxResources(ctx, nil)
	require.NoError(t, err)
	assert.NotNil(t, sandbox)
	cfg, err := r.RuntimeConfig(ctx)
	require.NoError(t, err)
	assert.NotNil(t, cfg)
	require.NoError(t, r.Close(ctx))
}
