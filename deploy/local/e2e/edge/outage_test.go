// Package edge_test tests the edge-cache beside real Traefiks, on nodes that lose their link to the cloud.
package edge_test

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

//go:embed testdata
var testdata embed.FS

const (
	tag       = "race"
	poolLabel = "apps.openyurt.io/nodepool"
	host      = "hello.example.com"
	lateHost  = "late.example.com"
	tick      = 250 * time.Millisecond
	window    = 3 * time.Second // of load, in which no request may fail
)

var pools = []string{"edge-a", "edge-b"}

// nodeOf returns the name of the node of a pool.
func nodeOf(pool string) string { return pool + "-1" }

// system is a cluster with a node in each of two pools, and one in the cloud.
type system struct {
	*cluster.Cluster

	t *testing.T
}

// newSystem starts a cluster with these nodes, and one in the cloud, and installs the roles of the edge-cache and a backend for each node.
func newSystem(t *testing.T, nodes ...clusterapi.Node) *system {
	t.Helper()
	c := cluster.Start(t, cluster.FastTimings, func(c *clusterapi.Config) {
		c.Nodes = append([]clusterapi.Node{{Name: "cloud"}}, nodes...)
	})
	s := &system{Cluster: c, t: t}
	roles, err := os.ReadFile(filepath.Join(s.repository(), "deploy/examples/edge-cache/rbac.yaml"))
	require.NoError(t, err)
	_, err = c.Kubectl(t.Context(), "create", "namespace", "ingress")
	require.NoError(t, err)
	s.apply(string(roles))
	s.apply(s.manifest("hello.yaml", ""))
	return s
}

// poolNode returns the node of a pool.
func poolNode(pool string) clusterapi.Node {
	return clusterapi.Node{Name: nodeOf(pool), Labels: map[string]string{poolLabel: pool}}
}

func (s *system) repository() string {
	s.t.Helper()
	root, err := cluster.Repository()
	require.NoError(s.t, err)
	return root
}

// rolledOut waits for a Deployment.
func (s *system) rolledOut(name string) {
	s.t.Helper()
	_, err := s.Kubectl(s.t.Context(), "rollout", "status", "deployment/"+name, stack.WaitTimeout)
	require.NoError(s.t, err)
}

// manifest returns a file with the images of the tests.
func (s *system) manifest(name, pool string) string {
	s.t.Helper()
	raw, err := testdata.ReadFile("testdata/" + name)
	require.NoError(s.t, err)
	return strings.NewReplacer("POOL", pool, "EDGE_CACHE", stack.Registry()+"/edge-cache:"+tag, "ECHO", stack.Registry()+"/echo:"+tag,
		"TRAEFIK", s.traefikImage(), "REGISTRY", stack.Registry(), "TAG", tag).Replace(string(raw))
}

// traefikImage returns the image that `make traefik` makes.
func (s *system) traefikImage() string {
	s.t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.repository(), "deploy/local/images/traefik/go.mod"))
	require.NoError(s.t, err)
	version := regexp.MustCompile(`(?m)^require github.com/traefik/traefik/v3 (v\S+)`).FindSubmatch(raw)
	require.NotNil(s.t, version)
	return "docker.io/traefik:" + string(version[1])
}

func (s *system) apply(text string) {
	s.t.Helper()
	require.NoError(s.t, s.Apply(s.t.Context(), text))
}

// TestOutage cuts the nodes of both pools off. One pool's Traefik and cache are killed meanwhile, and the control plane gives up on the nodes.
//
//	online     both pools answer
//	cut        both pools answer, from their own pods
//	restarted  the pool whose containers were killed answers again
//	brown-out  the control plane has marked all pods of both pools unready
//	healed     both pools answer; what was created meanwhile is served
func TestOutage(t *testing.T) {
	s := newSystem(t, poolNode(pools[0]), poolNode(pools[1]))
	for _, pool := range pools {
		s.apply(s.manifest("pool.yaml", pool))
		s.apply(s.manifest("deployment.yaml", pool))
	}
	entrances := map[string]*entrance{}
	for _, pool := range pools {
		s.rolledOut(pool)
		entrances[pool] = s.entrance(pool)
		s.awaitAnswer(entrances[pool], host)
	}
	timeline := newTimeline(entrances)
	t.Cleanup(func() { t.Log("\n" + timeline.String()) })
	timeline.start(t.Context(), "online")
	time.Sleep(window)

	for _, pool := range pools {
		require.NoError(t, s.Cut(t.Context(), nodeOf(pool), clusterapi.CutBoth))
	}
	timeline.phase("cut")
	// Shorter than a connection needs to count as dead (10 s): after the cut, all that the control plane wrote meanwhile arrives at once. The control plane of a real
	// cluster gives up on a node after 40 s, this one after a few.
	time.Sleep(5 * time.Second)
	restarted, steady := entrances[pools[0]], entrances[pools[1]]
	timeline.phase("restart")
	kill(t, restarted.arguments()...)
	s.awaitAnswer(restarted, host)
	timeline.phase("offline")

	for _, pool := range pools {
		s.apply(strings.NewReplacer("metadata: {name: POOL}", "metadata: {name: late-"+pool+"}", "hello.example.com", lateHost, "POOL", pool).Replace(lateIngress))
	}
	s.awaitUnready()
	timeline.phase("brown-out")
	time.Sleep(window)
	for _, pool := range pools {
		require.NoError(t, s.Node(t.Context(), nodeOf(pool), clusterapi.ActionHeal))
	}
	timeline.phase("healed")
	for _, pool := range pools {
		s.awaitAnswer(entrances[pool], lateHost) // its cache is connected again
	}
	s.awaitReady()
	time.Sleep(window)
	timeline.stop()

	for phase, counts := range timeline.counts(steady.pool) {
		assert.Zero(t, counts.failed, "failed requests to %s while %s, of %d: %v", steady.pool, phase, counts.sent, counts.errors)
		assert.Positive(t, counts.sent, phase)
	}
	for phase, counts := range timeline.counts(restarted.pool) {
		if phase != "restart" {
			assert.Zero(t, counts.failed, "failed requests to %s while %s, of %d: %v", restarted.pool, phase, counts.sent, counts.errors)
		}
	}
}

const lateIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: POOL}
spec:
  ingressClassName: POOL
  rules:
  - host: hello.example.com
    http:
      paths: [{path: /, pathType: Prefix, backend: {service: {name: hello, port: {name: http}}}}]
`

// awaitAnswer waits until a pool answers from its own pod.
func (s *system) awaitAnswer(e *entrance, host string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		require.NoError(c, e.answers(s.t.Context(), host))
	}, kubetest.Patience, tick, e.pool)
}

// awaitReady waits until the control plane shows every endpoint of the Service as ready: the kubelets repair the readiness of their pods.
func (s *system) awaitReady() {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		list, err := s.Clientset().DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(s.t.Context(),
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=hello"})
		require.NoError(c, err)
		ready := 0
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				require.True(c, ptr.Deref(e.Conditions.Ready, false), "%v", e.Addresses)
				ready++
			}
		}
		require.Equal(c, len(pools), ready)
	}, kubetest.Patience, tick)
}

// awaitUnready waits until the control plane shows no ready endpoint of the Service.
func (s *system) awaitUnready() {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		list, err := s.Clientset().DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(s.t.Context(),
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=hello"})
		require.NoError(c, err)
		require.NotEmpty(c, list.Items)
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				require.NotNil(c, e.Conditions.Ready)
				require.False(c, *e.Conditions.Ready, "%v", e.Addresses)
			}
		}
	}, kubetest.Patience, tick)
	for _, pool := range pools {
		node, err := s.Clientset().CoreV1().Nodes().Get(s.t.Context(), nodeOf(pool), metav1.GetOptions{})
		require.NoError(s.t, err)
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				require.Equal(s.t, corev1.ConditionUnknown, condition.Status, pool)
			}
		}
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(cluster.KubeconfigEnv) != "" {
		fmt.Println("skipped: this test cuts nodes off, which the cluster of " + cluster.KubeconfigEnv + " does not allow")
		return
	}
	os.Exit(m.Run())
}
