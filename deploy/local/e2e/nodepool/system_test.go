// Package nodepool_test tests the nodepool-ingress as its users meet it: installed by its chart in a cluster whose nodes have the labels of
// pools, with real Traefiks.
package nodepool_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

const (
	tag       = "race"
	operator  = "nodepool-ingress"
	namespace = "fairlead"
	examples  = "deploy/examples/nodepool-ingress"
	poolLabel = "apps.openyurt.io/nodepool"
	whoami    = "docker.io/traefik/whoami:v1.11"

	hangzhou = "hangzhou"
	shanghai = "shanghai"
	beijing  = "beijing"

	// host is that of the Ingresses of the examples. Each pool has an Ingress for it.
	host = "hello.example.com"

	tick = 250 * time.Millisecond
)

// ports are the node ports of pools, in the examples and here.
var ports = map[string]int{hangzhou: 30080, shanghai: 30081, beijing: 30082}

// system is a cluster with a node in each of three pools, and one in none.
type system struct {
	*cluster.Cluster

	t     *testing.T
	root  string
	known map[string]string // the entrance of each pool: it stays known without an API server
}

func newSystem(t *testing.T) *system {
	t.Helper()
	root, err := cluster.Repository()
	require.NoError(t, err)
	c := cluster.Start(t, func(c *clusterapi.Config) {
		c.Audit = true
		c.Nodes = []clusterapi.Node{{Name: "cloud"}}
		for _, pool := range []string{hangzhou, shanghai, beijing} {
			c.Nodes = append(c.Nodes, clusterapi.Node{Name: nodeOf(pool), Labels: map[string]string{poolLabel: pool}})
		}
	})
	s := &system{Cluster: c, t: t, root: root, known: map[string]string{}}
	for pool := range ports {
		s.known[pool] = s.entrance(pool, nodeOf(pool))
	}
	return s
}

// nodeOf returns the name of the node of a pool.
func nodeOf(pool string) string { return pool + "-1" }

// in returns the system for a subtest.
func (s *system) in(t *testing.T) *system {
	own := *s
	own.t = t
	return &own
}

// install installs the operator, or upgrades it, with helm values as name=value.
func (s *system) install(values ...string) {
	s.t.Helper()
	args := []string{"upgrade", "--install", operator, filepath.Join(s.root, "charts", operator), "--namespace", namespace, "--create-namespace"}
	for _, v := range append(values, "image.registry="+stack.Registry(), "image.repository="+operator, "image.tag="+tag, "rbac.aggregate=false",
		"cache.image.registry="+stack.Registry(), "cache.image.repository=edge-cache", "cache.image.tag="+tag, "resources.limits.memory=1Gi") {
		args = append(args, "--set", v)
	}
	_, err := s.Helm(s.t.Context(), args...)
	require.NoError(s.t, err)
	s.rolledOut(namespace, operator)
}

func (s *system) rolledOut(namespace, deployment string) {
	s.t.Helper()
	s.kubectl("--namespace", namespace, "rollout", "status", "deployment/"+deployment, stack.WaitTimeout)
}

func (s *system) kubectl(args ...string) string {
	s.t.Helper()
	out, err := s.Kubectl(s.t.Context(), args...)
	require.NoError(s.t, err)
	return out
}

// example reads a file of the examples, with the images of the tests.
func (s *system) example(name string) string {
	s.t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.root, examples, name))
	require.NoError(s.t, err)
	return strings.ReplaceAll(string(raw), whoami, stack.Registry()+"/echo:"+tag)
}

func (s *system) apply(text string) {
	s.t.Helper()
	require.NoError(s.t, s.Apply(s.t.Context(), text))
}

// awaitReady waits until the status says that all pools of a YurtIngress are ready, about its current spec.
func (s *system) awaitReady(name string) {
	s.t.Helper()
	generation := s.kubectl("get", "yurtingress", name, "-o", "jsonpath={.metadata.generation}")
	s.kubectl("wait", "yurtingress/"+name, "--for=jsonpath={.status.observedGeneration}="+generation, stack.WaitTimeout)
	s.kubectl("wait", "yurtingress/"+name, `--for=jsonpath={.status.objectConditions[?(@.type=="Ready")].status}=True`, stack.WaitTimeout)
}

// address returns the address of a node.
func (s *system) address(node string) string {
	s.t.Helper()
	n, err := s.Clientset().CoreV1().Nodes().Get(s.t.Context(), node, metav1.GetOptions{})
	require.NoError(s.t, err)
	for _, a := range n.Status.Addresses {
		if a.Type == "InternalIP" {
			return a.Address
		}
	}
	require.Fail(s.t, "no address", node)
	return ""
}

// attempt limits a request that is repeated until it is answered, or that must not be answered.
const attempt = 5 * time.Second

// client requests pages of one address in the cluster, whatever the URL says.
func (s *system) client(address string, timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return s.Dial(ctx, address)
	}}}
}

// answer is what a client got.
type answer struct {
	status int
	from   string // name of the echo server
}

// ask sends a request to the entrance of a pool.
func ask(ctx context.Context, client *http.Client, host string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/", nil)
	if err != nil {
		return answer{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return answer{status: response.StatusCode, from: response.Header.Get("X-Served-By")}, err
}

// entrance returns the address of the node port of a pool at a node.
func (s *system) entrance(pool, node string) string {
	s.t.Helper()
	return fmt.Sprintf("%s:%d", s.address(node), ports[pool])
}

// assertServes waits until a pool answers requests for a host from a server.
func (s *system) assertServes(pool, host, server string) {
	s.t.Helper()
	client := s.client(s.entrance(pool, nodeOf(pool)), attempt)
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		got, err := ask(s.t.Context(), client, host)
		require.NoError(c, err)
		require.Equal(c, answer{status: http.StatusOK, from: server}, got)
	}, kubetest.Patience, tick, "%s", pool)
}

// parallel runs functions at the same time.
func (s *system) parallel(functions ...func(*system)) {
	s.t.Helper()
	var group errgroup.Group
	for _, f := range functions {
		group.Go(func() error {
			f(s)
			return nil
		})
	}
	require.NoError(s.t, group.Wait())
}

func TestMain(m *testing.M) {
	if os.Getenv(cluster.KubeconfigEnv) != "" {
		fmt.Println("skipped: this test needs nodes with the labels of pools, and the audit log of the cluster, not the cluster of " + cluster.KubeconfigEnv)
		return
	}
	m.Run()
}
