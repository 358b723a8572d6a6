// Package syncer_test tests the backendset-syncer as its users meet it: installed by its chart beside model servers, in front of which
// an emulated OCI Load Balancer forwards requests.
package syncer_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"embed"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

const (
	tag     = "race"
	nextTag = "race-next"

	loadBalancer = "ocid1.loadbalancer.oc1.iad.e2e"
	syncer       = "backendset-syncer"
	servers      = 3

	// Indexes of published listeners.
	traffic, gatedTraffic = 0, 1

	usualWork = `{"latency": "1s", "latencyTail": "3s"}` // of work requests

	tick = 250 * time.Millisecond
	// outage is how long the API server is paused.
	outage = 10 * time.Second
)

//go:embed testdata
var testdata embed.FS

// system is a cluster with the emulator, and what a test installs beside it.
type system struct {
	*cluster.Cluster

	t    *testing.T
	root string
}

func file(t *testing.T, name string) string {
	t.Helper()
	text, err := testdata.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return string(text)
}

// startSystem starts a cluster with the emulator, which has no load balancer.
func startSystem(t *testing.T) *system {
	t.Helper()
	root, err := cluster.Repository()
	require.NoError(t, err)
	c := cluster.Start(t, cluster.Nodes(2), func(c *clusterapi.Config) {
		for _, listener := range []string{traffic: "traffic", gatedTraffic: "gated"} {
			c.Publish = append(c.Publish, clusterapi.Publish{Host: "127.0.0.1:0", Target: "ocilb.default:" + listener})
		}
	})
	s := &system{Cluster: c, t: t, root: root}
	s.writeKeys()
	require.NoError(t, c.Apply(t.Context(), strings.ReplaceAll(file(t, "oci.yaml"), "IMAGE", stack.Registry()+"/ocilb:"+tag)))
	s.rolledOut(metav1.NamespaceDefault, "ocilb")
	return s
}

// newSystem starts a cluster with model servers, the emulator and the syncer.
func newSystem(t *testing.T) *system {
	t.Helper()
	s := startSystem(t)
	s.serve(metav1.NamespaceDefault, tag)
	s.change("modes", usualWork)
	s.change("loadBalancers/"+loadBalancer, file(s.t, "loadbalancer.json")) // as Terraform would
	s.install()
	require.NoError(t, s.Apply(t.Context(), file(t, "binding.yaml")))
	return s
}

// writeKeys writes the API key of the syncer, and its public half for the emulator.
func (s *system) writeKeys() {
	s.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(s.t, err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(s.t, err)
	for name, data := range map[string]map[string]string{
		"ocilb-key": {"public.pem": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))},
		"oci-api-key": {
			"tenancy": "ocid1.tenancy.oc1..e2e", "user": "ocid1.user.oc1..e2e", "region": "us-ashburn-1", "fingerprint": "00:11",
			"key.pem": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		},
	} {
		_, err := s.Clientset().CoreV1().Secrets(metav1.NamespaceDefault).Create(s.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}, metav1.CreateOptions{})
		require.NoError(s.t, err)
	}
}

// serve rolls the model servers of a namespace to a tag, and does not wait. Their hook outlasts the propagation to the load balancer and the
// streams, and they keep idle connections for longer than the load balancer does.
func (s *system) serve(namespace, tag string, values ...string) {
	s.t.Helper()
	args := []string{
		"upgrade", "--install", "models", filepath.Join(s.root, "deploy", "examples", "inference", "model-servers"), "--namespace", namespace,
		"--set", fmt.Sprintf("replicas=%d", servers), "--set", "model=" + stack.Model, "--set", "drain.preStopSeconds=25", "--set", "drain.shutdownTimeoutSeconds=0",
		"--set", "args={--step-base=50ms,--step-per-seq=0s,--keep-alive-timeout=310s}",
		"--set", "image.registry=" + stack.Registry(), "--set", "image.repository=modelserver", "--set", "image.tag=" + tag,
	}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	_, err := s.Helm(s.t.Context(), args...)
	require.NoError(s.t, err)
}

func (s *system) install(values ...string) {
	s.t.Helper()
	args := []string{
		"upgrade", "--install", syncer, filepath.Join(s.root, "charts", "backendset-syncer"), "--set", "oci.auth=api-key", "--set", "oci.apiKeySecret=oci-api-key",
		"--set", "oci.endpoint=http://ocilb:8080", "--set", "config.loadBalancers[0].id=" + loadBalancer,
		"--set", "image.registry=" + stack.Registry(), "--set", "image.repository=" + syncer, "--set", "image.tag=" + tag,
	}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	_, err := s.Helm(s.t.Context(), args...)
	require.NoError(s.t, err)
	s.rolledOut(metav1.NamespaceDefault, syncer)
}

func (s *system) rolledOut(namespace, deployment string) {
	s.t.Helper()
	_, err := s.Kubectl(s.t.Context(), "--namespace", namespace, "rollout", "status", "deployment/"+deployment, stack.WaitTimeout)
	require.NoError(s.t, err)
}

// change changes the emulator.
func (s *system) change(path, body string) {
	s.t.Helper()
	status, text := s.askEmulator(http.MethodPut, path, body)
	require.Equal(s.t, http.StatusOK, status, text)
}

// askEmulator sends a request to the emulator that is not one of OCI's API.
func (s *system) askEmulator(method, path, body string) (status int, text string) {
	s.t.Helper()
	client := &http.Client{Timeout: kubetest.Patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return s.Dial(ctx, "ocilb.default:api")
	}}}
	request, err := http.NewRequestWithContext(s.t.Context(), method, "http://ocilb/_emu/"+path, strings.NewReader(body))
	require.NoError(s.t, err)
	response, err := client.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return response.StatusCode, string(answer)
}

// backends are the addresses of the backends of a set.
type backends struct{ active, draining []string }

// backends returns the addresses of the backends of a set.
func (s *system) backends(set string) (active, draining []string) {
	s.t.Helper()
	b := s.backendSets()[set]
	return b.active, b.draining
}

// backendSets reads the backend sets of the load balancer.
func (s *system) backendSets() map[string]backends {
	s.t.Helper()
	text, err := stack.Fetch(s.t.Context(), s.Cluster, "ocilb.default:api", "/_emu/loadBalancers/"+loadBalancer)
	require.NoError(s.t, err)
	var lb struct {
		BackendSets map[string]struct {
			Backends []struct {
				Name  string `json:"name"`
				Drain bool   `json:"drain"`
			} `json:"backends"`
		} `json:"backendSets"`
	}
	require.NoError(s.t, json.Unmarshal([]byte(text), &lb))
	all := map[string]backends{}
	for name, set := range lb.BackendSets {
		var out backends
		for _, b := range set.Backends {
			if b.Drain {
				out.draining = append(out.draining, b.Name)
			} else {
				out.active = append(out.active, b.Name)
			}
		}
		all[name] = out
	}
	return all
}

// addresses returns the addresses of the pods with labels and an image that are not being deleted, at a port.
func (s *system) addresses(labels, tag, port string) []string {
	s.t.Helper()
	pods, err := s.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(s.t.Context(), metav1.ListOptions{LabelSelector: labels})
	require.NoError(s.t, err)
	var all []string
	for i := range pods.Items {
		p := &pods.Items[i]
		if strings.HasSuffix(p.Spec.Containers[0].Image, ":"+tag) && p.DeletionTimestamp == nil && p.Status.PodIP != "" {
			all = append(all, net.JoinHostPort(p.Status.PodIP, port))
		}
	}
	return all
}

// synced waits until the set has exactly the model servers with an image, and the condition of the binding is True.
func (s *system) synced(tag string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		want := s.addresses("app=models", tag, "8000")
		require.Len(c, want, servers)
		active, draining := s.backends("models")
		require.ElementsMatch(c, want, active)
		require.Empty(c, draining)
		out, err := s.Kubectl(s.t.Context(), "get", "bsb", "models", "-o", `jsonpath={.status.conditions[?(@.type=="Synced")].status} {.status.backends.active}`)
		require.NoError(c, err)
		require.Equal(c, fmt.Sprintf("True %d", servers), strings.TrimSpace(out))
	}, kubetest.Patience, tick)
}

// load sends streams of a number of tokens to a listener without a pause, until stop is called.
func (s *system) load(listener, tokens int) (stop func() (failed []chatload.Result, requests int)) {
	s.t.Helper()
	load := stack.StartLoad(s.t.Context(), chatload.Options{
		BaseURL: "http://" + s.Published[listener], Model: stack.Model, Concurrency: 8, MaxTokens: tokens, IgnoreEOS: true, KeepAlive: true, Timeout: kubetest.Patience,
		Prompts: chatload.Prompts{Groups: 2, SharedTokens: 32, Seed: 1},
	})
	return func() ([]chatload.Result, int) {
		s.t.Helper()
		report, results, err := load.Finish()
		require.NoError(s.t, err)
		return slices.DeleteFunc(results, func(r chatload.Result) bool { return r.Class == chatload.ClassNone }), report.Total.Requests
	}
}

// TestSyncer runs its tests in one cluster, one after the other.
func TestSyncer(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	t.Run("BackendSets", func(t *testing.T) { s.in(t).testBackendSets() })
	t.Run("ReadinessGate", func(t *testing.T) {
		if testing.Short() {
			t.Skip("long form: a roll-out at the pace of work requests")
		}
		s.in(t).testReadinessGate()
	})
}

// in returns the system for a subtest.
func (s *system) in(t *testing.T) *system {
	own := *s
	own.t = t
	return &own
}

// testBackendSets sends streams through the load balancer without a pause, while the model servers are replaced, the syncer is
// restarted, and, in the long form, the API server does not answer. No request fails.
func (s *system) testBackendSets() {
	s.synced(tag)
	stop := s.load(traffic, 40)
	s.serve(metav1.NamespaceDefault, nextTag)
	s.rolledOut(metav1.NamespaceDefault, "models")
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		_, draining := s.backends("models")
		require.NotEmpty(c, draining, "the old servers finish their streams")
	}, kubetest.Patience, tick)
	s.restart()
	if !testing.Short() {
		s.pauseAPIServer()
	}
	s.synced(nextTag)

	failed, requests := stop()
	assert.Empty(s.t, failed)
	assert.Greater(s.t, requests, 50)
	s.assertLeastPrivilege()
}

// restart deletes the pods of the syncer.
func (s *system) restart() {
	s.t.Helper()
	_, err := s.Kubectl(s.t.Context(), "delete", "pods", "-l", "app.kubernetes.io/name="+syncer, "--wait=false")
	require.NoError(s.t, err)
	s.rolledOut(metav1.NamespaceDefault, syncer)
}

// pauseAPIServer lets the API server answer nothing for a while. The load balancer keeps its backends.
func (s *system) pauseAPIServer() {
	s.t.Helper()
	before, _ := s.backends("models")
	require.NoError(s.t, s.Component(s.t.Context(), clusterapi.APIServer, clusterapi.ActionPause))
	time.Sleep(outage) // of load, in which no request may fail
	require.NoError(s.t, s.Component(s.t.Context(), clusterapi.APIServer, clusterapi.ActionResume))
	after, _ := s.backends("models")
	assert.GreaterOrEqual(s.t, len(after), len(before))
}

// assertLeastPrivilege checks that the API server refused nothing.
func (s *system) assertLeastPrivilege() {
	s.t.Helper()
	out, err := s.Kubectl(s.t.Context(), "logs", "-l", "app.kubernetes.io/name="+syncer, "--tail=-1")
	require.NoError(s.t, err)
	assert.NotContains(s.t, out, "forbidden")
}

func TestMain(m *testing.M) {
	if os.Getenv(cluster.KubeconfigEnv) != "" {
		fmt.Println("skipped: this test pauses the API server, which is not ours in the cluster of " + cluster.KubeconfigEnv)
		return
	}
	m.Run()
}
