package edge_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

const (
	// staticLabel keeps the DaemonSet away from a node whose kubelet has no cache of its pods.
	staticLabel = "example.com/static-pods"
	// yurthubPort is that of Yurthub's proxy with TLS, to which it sends pods.
	yurthubPort = "10268"
	// settled is longer than the rounds after which a probed address stays (liveaddress, five rounds of 2 s and a scan of the range). After the
	// reconnection, a pod that is no static one starts with the same port before the cache is online.
	settled = 25 * time.Second
	// tokenSeconds outlives the test.
	tokenSeconds = int64(24 * 60 * 60)
)

// TestReboot cuts the nodes of both pools off, and reboots them: their pods get other addresses, and no API server says which.
//
//	edge-a  the kubelet works with Yurthub, which keeps its pods. Traefik and the cache come from the chart, and the container runtime knows the addresses
//	edge-b  the kubelet works without. Only static pods start before the API server answers: Traefik with the cache, and the backend, are such pods. The cache
//	        probes for the addresses
//
//	online   both pools answer
//	cut      both pools answer, from their own pods
//	reboot   until the pods run and requests are answered: the log says how long after each other
//	offline  both pools answer from the same pods, at their new addresses
//	healed   the API server learns the addresses; no request fails, and the caches show what it says
func TestReboot(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: it needs OpenYurt's Yurthub; TestOutage restarts the containers of a node that is cut off")
	}
	s, entrances := newRebootSystem(t)
	timeline := newTimeline(entrances)
	t.Cleanup(func() { t.Log("\n" + timeline.String()) })
	before := map[string]view{}
	for pool, e := range entrances {
		s.awaitAnswer(e, host)
		before[pool] = s.view(t, e)
		require.Equal(t, s.live(t, pool), before[pool].address)
	}
	require.NotEmpty(t, find(t, "--name=managed"))
	s.requireEnvironment()
	timeline.start(t.Context(), "online")
	time.Sleep(window)

	for _, pool := range pools {
		require.NoError(t, s.Cut(t.Context(), nodeOf(pool), clusterapi.CutBoth))
	}
	timeline.phase("cut")
	time.Sleep(window)
	timeline.phase("reboot")
	for _, pool := range pools {
		require.NoError(t, s.Node(t.Context(), nodeOf(pool), clusterapi.ActionRestart))
	}
	s.awaitRecovery(entrances)
	timeline.phase("offline")
	time.Sleep(settled)

	for pool, e := range entrances {
		now := s.view(t, e)
		assert.Equal(t, s.live(t, pool), now.address, "the pool %s answers from its pod", pool)
		assert.NotEqual(t, before[pool].address, now.address, "the pod of %s has another address", pool)
		assert.Greater(t, now.version, before[pool].version, "watches must see the change")
		assert.InDelta(t, 1, s.replaced(t, e), 0, "one address of %s", pool)
	}
	assert.Empty(t, find(t, "--name=managed"), "a kubelet without a cache starts no pod of the API server")
	s.requireCut()
	for _, pool := range pools {
		require.NoError(t, s.Node(t.Context(), nodeOf(pool), clusterapi.ActionHeal))
	}
	timeline.phase("healed")
	s.awaitHealed(entrances)
	time.Sleep(window)
	timeline.stop()
	for pool := range entrances {
		for phase, counts := range timeline.counts(pool) {
			assert.Positive(t, counts.sent, phase)
			if phase != "reboot" {
				assert.Zero(t, counts.failed, "failed requests to %s while %s, of %d: %v", pool, phase, counts.sent, counts.errors)
			}
		}
	}
}

// newRebootSystem starts the cluster and the ingresses of both pools.
func newRebootSystem(t *testing.T) (*system, map[string]*entrance) {
	t.Helper()
	hub, plain := poolNode(pools[0]), poolNode(pools[1])
	hub.Yurthub = yurthub(t)
	plain.Labels[staticLabel] = "true"
	s := newSystem(t, hub, plain)
	s.apply(strings.ReplaceAll(lateIngress, "POOL", hub.Labels[poolLabel]))
	s.install(hub.Labels[poolLabel])
	s.apply(s.manifest("pool.yaml", plain.Labels[poolLabel]))
	s.apply(s.manifest("apps.yaml", plain.Labels[poolLabel]))
	s.apply(s.manifest("environment.yaml", hub.Labels[poolLabel]))
	s.writePodRange(plain.Name)
	s.writeStaticPods(plain)
	s.rolledOut("edge-" + hub.Labels[poolLabel])
	s.rolledOut("managed")
	s.rolledOut("environment")
	entrances := map[string]*entrance{}
	for _, pool := range pools {
		s.awaitProcesses(pool)
		entrances[pool] = s.entrance(pool)
	}
	return s, entrances
}

// yurthub returns the program that `make yurthub` builds.
func yurthub(t *testing.T) string {
	t.Helper()
	s := &system{t: t}
	path := filepath.Join(s.repository(), "bin", "yurthub")
	require.FileExists(t, path, "run: make yurthub")
	return path
}

// install installs the chart of the edge-cache for a pool.
func (s *system) install(pool string) {
	s.t.Helper()
	values := filepath.Join(s.t.TempDir(), "values.yaml")
	require.NoError(s.t, os.WriteFile(values, []byte(s.manifest("values.yaml", pool)), 0o600))
	_, err := s.Helm(s.t.Context(), "install", "edge", filepath.Join(s.repository(), "charts/edge-cache"), "--values", values)
	require.NoError(s.t, err)
}

// writePodRange gives a Node the range of its pods, as the controller manager does in clusters whose network plugin asks for it.
func (s *system) writePodRange(name string) {
	s.t.Helper()
	status, err := s.Status(s.t.Context())
	require.NoError(s.t, err)
	for _, n := range status.Nodes {
		if n.Name == name {
			patch := fmt.Sprintf(`{"spec":{"podCIDR":%q,"podCIDRs":[%q]}}`, n.PodCIDR, n.PodCIDR)
			_, err = s.Clientset().CoreV1().Nodes().Patch(s.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
			require.NoError(s.t, err)
		}
	}
}

// writeStaticPods writes the manifests of a node, and what the cache needs of the API server.
func (s *system) writeStaticPods(node clusterapi.Node) {
	s.t.Helper()
	pool, upstream := node.Labels[poolLabel], filepath.Join(s.Dir, "upstream")
	token, err := s.Clientset().CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(s.t.Context(), pool,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(tokenSeconds)}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	authority, err := s.Clientset().CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(s.t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
	require.NoError(s.t, err)
	require.NoError(s.t, os.MkdirAll(upstream, 0o755))
	for file, content := range map[string]string{
		filepath.Join(upstream, "token"): token.Status.Token, filepath.Join(upstream, "ca.crt"): authority.Data["ca.crt"],
		filepath.Join(upstream, "namespace"): metav1.NamespaceDefault,
	} {
		require.NoError(s.t, os.WriteFile(file, []byte(content), 0o644)) // a pod with another user reads it
	}
	for _, name := range []string{"static-hello.yaml", "static-ingress.yaml"} {
		text := strings.ReplaceAll(s.manifest(name, pool), "UPSTREAM", upstream)
		require.NoError(s.t, os.WriteFile(filepath.Join(clusterapi.StaticPodsDir(s.Dir, node.Name), name), []byte(text), 0o600))
	}
}

// requireEnvironment checks what Yurthub makes of the variables with the address of the cache: it rewrites those in env, and none in envFrom.
func (s *system) requireEnvironment() {
	s.t.Helper()
	for argument, port := range map[string]string{"--name=with-variables": yurthubPort, "--name=with-configmap": "16443"} {
		ids := find(s.t, argument)
		require.Len(s.t, ids, 1, argument)
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", ids[0]))
		require.NoError(s.t, err)
		require.Contains(s.t, strings.Split(string(raw), "\x00"), "KUBERNETES_SERVICE_PORT="+port, argument)
	}
}

// running returns whether all pods of a pool run: Traefik with its cache, and the backend.
func (s *system) running(pool string) bool {
	for _, argument := range []string{"--pool=" + pool, "--providers.kubernetesingress.ingressclass=" + pool, "--name=" + nodeOf(pool)} {
		if len(find(s.t, argument)) == 0 {
			return false
		}
	}
	return true
}

func (s *system) awaitProcesses(pool string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.running(pool) }, kubetest.Patience, tick, pool)
}

// recovery is when the pods of a pool ran again, and when they answered.
type recovery struct{ ran, answered time.Time }

// awaitRecovery waits until the pods of all pools run, and then until requests are answered.
func (s *system) awaitRecovery(entrances map[string]*entrance) {
	s.t.Helper()
	recovered := map[string]*recovery{}
	for pool := range entrances {
		recovered[pool] = &recovery{}
	}
	bounded, cancel := context.WithTimeout(s.t.Context(), kubetest.Patience)
	defer cancel()
	for left := len(entrances); left > 0; time.Sleep(tick) {
		require.NoError(s.t, bounded.Err(), "all pools answer after the reboot")
		for pool, e := range entrances {
			r := recovered[pool]
			switch {
			case r.ran.IsZero() && s.running(pool):
				r.ran = time.Now()
				e.enter(s.t)
			case !r.ran.IsZero() && r.answered.IsZero() && e.answers(bounded, host) == nil:
				r.answered = time.Now()
				left--
			}
		}
	}
	for pool, r := range recovered {
		s.t.Logf("%s answered %s after its pods ran", pool, r.answered.Sub(r.ran).Round(time.Millisecond))
	}
}

// requireCut checks that the control plane still hears of none of the nodes.
func (s *system) requireCut() {
	s.t.Helper()
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

// awaitHealed waits until the API server has the live addresses, and the caches replace nothing any more.
func (s *system) awaitHealed(entrances map[string]*entrance) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		list, err := s.Clientset().DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(s.t.Context(),
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=hello"})
		require.NoError(c, err)
		ready := map[string]string{}
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				if *e.Conditions.Ready {
					ready[*e.NodeName] = e.Addresses[0]
				}
			}
		}
		for pool, e := range entrances {
			require.Equal(c, s.live(c, pool), ready[nodeOf(pool)], pool)
			require.Equal(c, s.live(c, pool), s.view(c, e).address, pool)
			require.Zero(c, s.replaced(c, e), pool)
		}
	}, kubetest.Patience, tick)
}

// live returns the address of the backend of a pool, from inside its pod.
func (s *system) live(t require.TestingT, pool string) string {
	ids := find(t, "--name="+nodeOf(pool))
	require.Len(t, ids, 1, pool)
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", ids[0]))
	require.NoError(t, err)
	defer network.Close()
	var addresses []net.Addr
	inside(network, func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		addresses, err = link.Addrs()
		return err
	}, &err)
	require.NoError(t, err)
	for _, a := range addresses {
		if ip := a.(*net.IPNet).IP.To4(); ip != nil {
			return ip.String()
		}
	}
	require.Fail(t, "the backend has no address", "%s: %v", pool, addresses)
	return ""
}

// view is what the cache of a pool shows of the Service.
type view struct {
	address string // of the only endpoint
	version int64
}

// view lists the slices of the Service as Traefik does: with the credentials in its container.
func (s *system) view(t require.TestingT, e *entrance) view {
	ids := find(t, "--providers.kubernetesingress.ingressclass="+e.pool)
	require.Len(t, ids, 1, e.pool)
	folder := fmt.Sprintf("/proc/%d/root/var/run/secrets/kubernetes.io/serviceaccount", ids[0])
	token, err := os.ReadFile(filepath.Join(folder, "token"))
	require.NoError(t, err)
	authority, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority))
	client := &http.Client{Timeout: attempt, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return e.dial(ctx, address) }}}
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet,
		"https://127.0.0.1:16443/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3Dhello", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+string(token))
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	var list discoveryv1.EndpointSliceList
	require.NoError(t, json.NewDecoder(response.Body).Decode(&list))
	require.Len(t, list.Items, 1, e.pool)
	require.Len(t, list.Items[0].Endpoints, 1, e.pool)
	version, err := strconv.ParseInt(list.Items[0].ResourceVersion, 10, 64)
	require.NoError(t, err)
	return view{address: list.Items[0].Endpoints[0].Addresses[0], version: version}
}

// replaced returns the number of addresses that the cache of a pool replaces now.
func (s *system) replaced(t require.TestingT, e *entrance) float64 {
	client := &http.Client{Timeout: attempt, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return e.dial(ctx, address) }}}
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://127.0.0.1:9090/metrics", nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Contains(t, string(page), "fairlead_edgecache_replaced_addresses")
	return stack.Sum(string(page), "fairlead_edgecache_replaced_addresses")
}
