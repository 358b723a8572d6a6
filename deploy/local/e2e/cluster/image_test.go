package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

// rootImage has no user of its own.
const rootImage = "envoyproxy/envoy:v1.40.0"

// simplePod is a pod of an image; %s are its name, its image and its securityContext.
const simplePod = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  automountServiceAccountToken: false
  restartPolicy: Never
  containers:
  - name: main
    image: %s
    imagePullPolicy: IfNotPresent
    args: [--version]
    securityContext: {%s}
`

func TestImages_TheDefaultRegistryNeedNotBeNamedAndADigestDecides(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t)
	deploy(t, c, 1, "docker.io/"+workloadImage)
	stop := probe(t, c)
	list, err := pods(t.Context(), c.Clientset())
	require.NoError(t, err)
	require.Len(t, list, 1)
	imageID := list[0].Status.ContainerStatuses[0].ImageID
	require.Contains(t, imageID, "@sha256:")

	// The same program under another reference is another image to Kubernetes: a roll.
	require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(workload, 1, "fairlead/modelserver:no-such-tag"+imageID[strings.Index(imageID, "@"):])))
	_, err = c.Kubectl(t.Context(), "rollout", "status", "deployment/web", "--timeout="+kubetest.Patience.String())
	require.NoError(t, err)
	asked, failed := stop()
	assert.Empty(t, failed, "of %d", asked)
}

func TestImages_ThatAreNotThere(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t)
	tests := []struct{ name, image, want string }{
		{name: "tag", image: "fairlead/modelserver:no-such-tag", want: "image not found: docker.io/fairlead/modelserver:no-such-tag"},
		{name: "registry", image: "registry.invalid:5000/" + workloadImage, want: "pull registry.invalid:5000/" + workloadImage},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(simplePod, tt.name, tt.image, "")))
			assert.Contains(t, failedPull(t, c, tt.name), tt.want)
		})
	}
}

// failedPull waits for the event that says why an image cannot be pulled. The status of the pod alternates between two reasons.
func failedPull(t *testing.T, c *cluster.Cluster, pod string) string {
	t.Helper()
	var message string
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		list, err := c.Clientset().CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Failed,involvedObject.name=" + pod})
		require.NoError(collect, err)
		require.NotEmpty(collect, list.Items)
		message = list.Items[0].Message
	}, kubetest.Patience, tick)
	return message
}

func TestImages_UserIsTheImagesOwn(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t)
	tests := []struct{ name, image, security, want string }{
		{name: "root-refused", image: rootImage, security: "runAsNonRoot: true", want: "CreateContainerConfigError: container has runAsNonRoot and image will run as root"},
		{name: "root-allowed", image: rootImage, want: "Completed"},
		{name: "root-replaced", image: rootImage, security: "runAsNonRoot: true, runAsUser: 101", want: "Completed"},
		{name: "nonroot", image: workloadImage, security: "runAsNonRoot: true", want: "Completed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(simplePod, tt.name, tt.image, tt.security)))
			require.EventuallyWithT(t, func(collect *assert.CollectT) {
				state, err := mainState(t.Context(), c, tt.name)
				require.NoError(collect, err)
				assert.True(collect, strings.HasPrefix(describeState(state), tt.want), describeState(state))
			}, kubetest.Patience, tick)
		})
	}
}

// mainState returns the state of the one container of a pod.
func mainState(ctx context.Context, c *cluster.Cluster, pod string) (corev1.ContainerState, error) {
	p, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return corev1.ContainerState{}, err
	}
	if len(p.Status.ContainerStatuses) == 0 {
		return corev1.ContainerState{}, fmt.Errorf("pod %s has no status yet", pod)
	}
	return p.Status.ContainerStatuses[0].State, nil
}

func describeState(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return s.Waiting.Reason + ": " + s.Waiting.Message
	case s.Terminated != nil:
		return s.Terminated.Reason + ": " + s.Terminated.Message
	default:
		return "running"
	}
}
