package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/kubetest/cluster"
)

func TestImages_ByNameAndTagWhateverTheRegistryAndDigest(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t)
	digest := "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	deploy(t, c, 1, "registry.example:5000/"+workloadImage+digest)
	stop := probe(t, c)

	// The same program under another tag is another image to Kubernetes: a roll.
	require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(workload, 1, "docker.io/fairlead/modelserver:dev")))
	_, err := c.Kubectl(t.Context(), "rollout", "status", "deployment/web", "--timeout=2m")
	require.NoError(t, err)
	list, err := pods(t.Context(), c.Clientset())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, "docker.io/fairlead/modelserver:dev", list[0].Spec.Containers[0].Image)
	asked, failed := stop()
	assert.Empty(t, failed, "of %d", asked)
}

func TestImages_UnknownTagCannotBePulled(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t)
	require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(workload, 1, "fairlead/modelserver:no-such-tag")))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		list, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		require.NoError(collect, err)
		require.Len(collect, list.Items, 1)
		require.Len(collect, list.Items[0].Status.ContainerStatuses, 1)
		waiting := list.Items[0].Status.ContainerStatuses[0].State.Waiting
		require.NotNil(collect, waiting)
		require.Contains(collect, []string{"ErrImagePull", "ImagePullBackOff"}, waiting.Reason) // they alternate
		require.Contains(collect, waiting.Message, "image not found: fairlead/modelserver:no-such-tag")
	}, settle, 50*time.Millisecond)
}
