package cri

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestServe_AnswersQuestionsAndChangesNothing(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p := n.runPod(t, "web")
		socket := filepath.Join(t.TempDir(), "containerd", "containerd.sock")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		require.NoError(t, n.Serve(ctx, socket))
		info, err := os.Stat(socket)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o660), info.Mode().Perm())

		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		defer conn.Close()
		client := runtimeapi.NewRuntimeServiceClient(conn)
		ready := &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}}
		list, err := client.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: ready})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
		assert.Equal(t, p.config.Metadata.Uid, list.Items[0].Metadata.Uid)
		answer, err := client.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
		require.NoError(t, err)
		assert.Equal(t, "10.244.1.2", answer.Status.Network.Ip)
		_, err = client.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "absent"})
		assert.Equal(t, codes.NotFound, status.Code(err))
		containers, err := client.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		require.NoError(t, err)
		assert.Empty(t, containers.Containers)
		version, err := client.Version(t.Context(), &runtimeapi.VersionRequest{})
		require.NoError(t, err)
		assert.Equal(t, "v1", version.RuntimeApiVersion)

		_, err = client.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
		assert.Equal(t, codes.Unimplemented, status.Code(err))
		require.ErrorContains(t, n.Serve(ctx, socket), "address already in use")
	})
}
