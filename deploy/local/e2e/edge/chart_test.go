package edge_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// TestTraefikChart runs what Traefik's own chart renders with the documented values: it answers, also when both containers restart without the cloud, and no
// container but the cache has a token of the API server, although the chart turns automountServiceAccountToken on.
func TestTraefikChart(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: TestOutage has other manifests of the same containers, and deploy/charts/edgecache renders Traefik's chart")
	}
	const pool = "chart"
	s := newSystem(t, poolNode(pool))
	s.apply(s.rendered(pool))
	s.apply(strings.ReplaceAll(lateIngress, "POOL", pool))
	_, err := s.Kubectl(t.Context(), "--namespace=ingress", "rollout", "status", "deployment/"+pool+"-traefik", stack.WaitTimeout)
	require.NoError(t, err)
	e := &entrance{pool: pool}
	e.client = e.newClient()
	cache, traefik := "--pool="+pool, "--providers.kubernetesingress.ingressClass="+pool
	caches := find(t, cache)
	require.Len(t, caches, 1)
	e.network, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", caches[0]))
	require.NoError(t, err)
	t.Cleanup(func() { e.network.Close() })
	s.awaitAnswer(e, host)

	pods, err := s.Clientset().CoreV1().Pods("ingress").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	for _, volume := range pods.Items[0].Spec.Volumes {
		assert.NotContains(t, volume.Name, "kube-api-access", "Kubernetes mounted a token")
	}
	require.Len(t, find(t, traefik), 1)
	const token = "/root/var/run/secrets/kubernetes.io/serviceaccount/token"
	given, err := os.ReadFile(fmt.Sprintf("/proc/%d%s", find(t, traefik)[0], token))
	require.NoError(t, err)
	assert.NotContains(t, string(given), ".", "a token of the API server has three parts")

	require.NoError(t, s.Cut(t.Context(), nodeOf(pool), clusterapi.CutBoth))
	kill(t, cache, traefik)
	s.awaitAnswer(e, host)
}

// rendered returns the output of Traefik's chart, with the images and the API server of this cluster.
func (s *system) rendered(pool string) string {
	s.t.Helper()
	raw, err := testdata.ReadFile("testdata/traefik-chart.yaml")
	require.NoError(s.t, err)
	return strings.NewReplacer("docker.io/traefik:v3.7.11", s.traefikImage(), "ghcr.io/fairlead/edge-cache:v0.1.0", stack.Registry()+"/edge-cache:"+tag,
		"https://api.example:6443", "https://10.96.0.1:443", "memory: 320Mi", "memory: 1Gi", "hangzhou", pool).Replace(string(raw))
}
