package cluster_test

import (
	"encoding/json"
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

// probeImage contains a program that does what its arguments say; see deploy/local/internal/nstest/probe.
const probeImage = "fairlead/probe:dev"

// probePod is a pod of the probe; fields of its spec and of its container are added as YAML in braces.
const probePod = `
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  %s
  containers:
  - name: probe
    image: ` + probeImage + `
    imagePullPolicy: IfNotPresent
    args: %s
    %s
`

// probeParams describe a pod of the probe.
type probeParams struct {
	name            string
	args            []string
	spec, container string // further fields
}

// runProbe makes a pod and waits until it is ready or has ended.
func runProbe(t *testing.T, c *cluster.Cluster, p probeParams) *corev1.Pod {
	t.Helper()
	args, err := json.Marshal(p.args)
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(probePod, p.name, p.name, p.spec, args, p.container)))
	var pod *corev1.Pod
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		var err error
		pod, err = c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), p.name, metav1.GetOptions{})
		require.NoError(collect, err)
		require.True(collect, isReady(pod) || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed, "%s", pod.Status)
	}, kubetest.Patience, tick)
	return pod
}

// inPod does something in a running pod of the probe and returns what it printed.
func inPod(t *testing.T, c *cluster.Cluster, pod string, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), append([]string{"exec", pod, "--", "/probe"}, args...)...)
	require.NoError(t, err)
	return strings.TrimSpace(out)
}

// logs returns what the pod printed.
func logs(t *testing.T, c *cluster.Cluster, pod string) []string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), "logs", pod)
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(out), "\n")
}
