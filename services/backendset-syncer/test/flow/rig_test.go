//go:build system

package flow

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	clientset "fairlead.dev/pkg/client/clientset/versioned"
	"fairlead.dev/pkg/configmap"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
	"fairlead.dev/services/backendset-syncer/internal/app"
	"fairlead.dev/services/backendset-syncer/internal/config"
)

const (
	tick = 50 * time.Millisecond
	// staleness is the age of what reads of load balancers return.
	staleness = 50 * time.Millisecond
	// crd is the CRD of the chart.
	crd = "../../../../charts/backendset-syncer/crds/fairlead.dev_backendsetbindings.yaml"

	tenancy     = "ocid1.tenancy.oc1..test"
	user        = "ocid1.user.oc1..test"
	fingerprint = "20:3b:97:13:55:1c:5b:0d:d3:37:d8:50:4e:c5:3a:34"
)

// rig is a cluster with an emulator and, after start, the program.
type rig struct {
	t        *testing.T
	cluster  *cluster.Cluster
	kube     kubernetes.Interface
	client   *clientset.Clientset
	emulator *ocilb.Emulator
	endpoint string
	keys     string // directory of the API key
	private  string // the key, as text
	logs     *buffer
}

// buffer collects the log.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// newRig returns a rig with a shared cluster, or with a cluster of its own if its configuration differs.
func newRig(t *testing.T, changes ...func(*clusterapi.Config)) *rig {
	t.Helper()
	r := &rig{t: t, logs: &buffer{}}
	if len(changes) == 0 {
		r.cluster = shared.BorrowCluster(t)
	} else {
		r.cluster = cluster.Start(t, append(changes, cluster.ControlPlaneOnly)...)
	}
	r.kube = r.cluster.Clientset()
	client, err := clientset.NewForConfig(r.cluster.RESTConfig())
	require.NoError(t, err)
	r.client = client
	manifest, err := os.ReadFile(crd)
	require.NoError(t, err)
	r.apply(string(manifest))
	r.apply(namespace("fairlead") + namespace("models") + namespace("others"))
	r.startEmulator()
	return r
}

func namespace(name string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", name)
}

// startEmulator starts an emulator with quick work requests and verified signatures, and writes the key.
func (r *rig) startEmulator() { r.startEmulatorWith(func(*ocilb.Options) {}) }

func (r *rig) startEmulatorWith(change func(o *ocilb.Options)) {
	r.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(r.t, err)
	r.private = string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	r.keys = r.t.TempDir()
	for name, text := range map[string]string{
		"tenancy": tenancy, "user": user, "region": "us-ashburn-1", "fingerprint": fingerprint, "key.pem": r.private,
	} {
		require.NoError(r.t, os.WriteFile(filepath.Join(r.keys, name), []byte(text), 0o600))
	}
	o := ocilb.DefaultOptions()
	o.Modes.Latency, o.Modes.LatencyTail, o.Modes.Stale = ocilb.Duration(100*time.Millisecond), ocilb.Duration(300*time.Millisecond),
		ocilb.Duration(staleness)
	o.Keys = map[string]*rsa.PublicKey{tenancy + "/" + user + "/" + fingerprint: &key.PublicKey}
	o.Plane.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, http.ErrServerClosed }
	change(&o)
	r.emulator = ocilb.New(o)
	server := httptest.NewServer(r.emulator)
	r.endpoint = server.URL
	r.t.Cleanup(func() {
		r.emulator.Close()
		server.Close()
	})
}

// edit changes a load balancer as another client does. It returns when reads show the change: until then, nobody can know it.
func (r *rig) edit(id string, change func(lb *ocilb.LoadBalancer) *ocilb.Error) {
	r.t.Helper()
	require.Nil(r.t, r.emulator.Edit(id, change))
	time.Sleep(staleness)
}

// balancer creates a load balancer with backend sets that no listener uses.
func (r *rig) balancer(name string, sets ...string) (id string) {
	r.t.Helper()
	id = "ocid1.loadbalancer.oc1.iad." + name
	r.emulator.Create(id, "ocid1.compartment.oc1..test", name)
	r.edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
		for _, s := range sets {
			lb.BackendSets[s] = &ocilb.BackendSet{Name: s, Policy: "ROUND_ROBIN", Backends: []ocilb.Backend{},
				HealthChecker: ocilb.HealthChecker{
					Protocol: "TCP", ReturnCode: 200, Retries: 3, TimeoutInMillis: 3000, IntervalInMillis: 10_000, ResponseBodyRegex: ".*",
				}}
		}
		return nil
	})
	return id
}

// configure writes the ConfigMap of the administrator.
func (r *rig) configure(text string) {
	r.t.Helper()
	r.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: syncer, namespace: fairlead}\ndata:\n  config: |\n    " +
		strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n")
}

func (r *rig) apply(manifest string) {
	r.t.Helper()
	require.NoError(r.t, r.cluster.Apply(r.t.Context(), manifest))
}

// options returns the flags of the program.
func (r *rig) options() *config.Config {
	c := config.Default()
	c.Kube.Kubeconfig = r.cluster.Kubeconfig
	c.HTTP.MetricsAddress, c.HTTP.HealthAddress = "127.0.0.1:0", "127.0.0.1:0"
	c.Leader.Elect = false
	c.ConfigMap = configmap.Name{Namespace: "fairlead", Name: "syncer"}
	c.OCI.Auth, c.OCI.KeyDirectory, c.OCI.Endpoint, c.OCI.Rate = "api-key", r.keys, r.endpoint, 1000
	c.Verify = 10 * time.Second
	return c
}

// start runs the program.
func (r *rig) start(changes ...func(*config.Config)) (stop func()) {
	r.t.Helper()
	c := r.options()
	for _, change := range changes {
		change(c)
	}
	require.NoError(r.t, c.Validate())
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(r.logs), zap.DebugLevel))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, c, log) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(r.t, <-ended)
	})
	r.t.Cleanup(stop)
	return stop
}

// service writes a Service with EndpointSlices of pods: "1 2:finishing 3:notready".
func (r *rig) service(ns, name, pods string) {
	r.t.Helper()
	r.apply(fmt.Sprintf(
		"apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s}\nspec: {ports: [{name: http, port: 80, targetPort: 8000}]}\n",
		name, ns) + slice(ns, name, pods))
}

// slice is the EndpointSlice of a Service.
func slice(ns, service, pods string) string {
	text := fmt.Sprintf("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %[2]s-1, namespace: %[1]s, labels: "+
		"{kubernetes.io/service-name: %[2]s}}\n"+
		"addressType: IPv4\nports: [{name: http, port: 8000, protocol: TCP}]\nendpoints:\n", ns, service)
	if pods == "" {
		text = strings.Replace(text, "endpoints:\n", "endpoints: []\n", 1)
	}
	for _, f := range strings.Fields(pods) {
		n, state, _ := strings.Cut(f, ":")
		conditions := map[string]string{
			"": "ready: true, serving: true, terminating: false", "finishing": "ready: false, serving: true, terminating: true",
			"notready": "ready: false, serving: false, terminating: false",
		}[state]
		text += fmt.Sprintf("- {addresses: [10.0.0.%s], conditions: {%s}, targetRef: {kind: Pod, namespace: %s, name: %s-%s}}\n", n,
			conditions, ns, service, n)
	}
	return text
}

// gatedPod creates a pod of namespace models with the readiness gate.
func (r *rig) gatedPod(name string) *corev1.Pod {
	r.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "models"}, Spec: corev1.PodSpec{
		Containers:     []corev1.Container{{Name: "c", Image: "none"}},
		ReadinessGates: []corev1.PodReadinessGate{{ConditionType: v1alpha1.ReadinessGate}},
	}}
	p, err := r.kube.CoreV1().Pods("models").Create(r.t.Context(), p, metav1.CreateOptions{})
	require.NoError(r.t, err)
	return p
}

// containersReady does what the kubelet does when the containers of a pod have become ready. Its slice does not change.
func (r *rig) containersReady(p *corev1.Pod) {
	r.t.Helper()
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now(), Reason: "ReadinessGatesNotReady"},
	}
	_, err := r.kube.CoreV1().Pods(p.Namespace).UpdateStatus(r.t.Context(), p, metav1.UpdateOptions{})
	require.NoError(r.t, err)
}

// sliceOf is the EndpointSlice of a Service with one pod, such as "1:notready".
func sliceOf(pod *corev1.Pod, service, endpoint string) string {
	n, _, _ := strings.Cut(endpoint, ":")
	text := slice(pod.Namespace, service, endpoint)
	return strings.Replace(text, fmt.Sprintf("name: %s-%s}}", service, n), fmt.Sprintf("name: %s, uid: %s}}", pod.Name, pod.UID), 1)
}

// gate waits until the readiness gate of a pod has a status and reason.
func (r *rig) gate(pod, want string) {
	r.t.Helper()
	now := func() string {
		p, err := r.kube.CoreV1().Pods("models").Get(r.t.Context(), pod, metav1.GetOptions{})
		require.NoError(r.t, err)
		for _, c := range p.Status.Conditions {
			if c.Type == v1alpha1.ReadinessGate {
				return string(c.Status) + " " + c.Reason
			}
		}
		return ""
	}
	require.Eventually(r.t, func() bool { return now() == want }, kubetest.Patience, tick, "%s",
		lazy(func() string { return now() + "\n" + r.logs.String() }))
}

// bind creates a binding of port http of a Service of the same name.
func (r *rig) bind(ns, name, balancer, set string, changes ...func(*v1alpha1.BackendSetBinding)) {
	r.t.Helper()
	b := &v1alpha1.BackendSetBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       v1alpha1.BackendSetBindingSpec{LoadBalancerID: balancer, BackendSetName: set},
	}
	b.Spec.ServiceRef.Name = name
	b.Spec.ServiceRef.Port.StrVal, b.Spec.ServiceRef.Port.Type = "http", 1
	for _, change := range changes {
		change(b)
	}
	_, err := r.client.FairleadV1alpha1().BackendSetBindings(ns).Create(r.t.Context(), b, metav1.CreateOptions{})
	require.NoError(r.t, err)
}

// has returns the backends of a set: "1 2:drain", sorted.
func (r *rig) has(id, set string) string {
	var all []string
	for _, b := range r.emulator.Current(id).BackendSets[set].Backends {
		text := strings.TrimPrefix(b.IPAddress, "10.0.0.")
		if b.Port != 8000 {
			text += fmt.Sprintf("@%d", b.Port)
		}
		if b.Drain {
			text += ":drain"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// backends waits until a set has backends.
func (r *rig) backends(id, set, want string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.has(id, set) == want }, kubetest.Patience, tick, "%s", lazy(func() string {
		return fmt.Sprintf("set %s has %q, and not %q; log:\n%s", set, r.has(id, set), want, r.logs)
	}))
}

type lazy func() string

// String calls the function when a test has failed.
func (l lazy) String() string { return l() }

// reason waits until the condition of a binding has a reason, for its current generation.
func (r *rig) reason(ns, name, want string) *metav1.Condition {
	r.t.Helper()
	var c *metav1.Condition
	require.Eventually(r.t, func() bool {
		b, err := r.client.FairleadV1alpha1().BackendSetBindings(ns).Get(r.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		c = meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSynced)
		return c != nil && c.Reason == want && c.ObservedGeneration == b.Generation && b.Status.ObservedGeneration == b.Generation
	}, kubetest.Patience, tick, "%s", lazy(func() string { return fmt.Sprintf("condition %+v, and not %s; log:\n%s", c, want, r.logs) }))
	return c
}
