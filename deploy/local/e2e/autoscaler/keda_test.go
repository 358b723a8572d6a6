package autoscaler_test

import (
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
)

// Names in the quick start for zero with KEDA, and in its examples.
const (
	withKEDA = "## Zero with KEDA"

	scaledObject = "qwen-h100"
	// second is the ScaledObject of the other servers of the model, which cost more.
	second = scaledObject + "-odd"

	scalerService = autoscaler + "-scaler"
	scalerSecret  = autoscaler + "-scaler"
	clientsSecret = autoscaler + "-scaler-clients"
	kedaSecret    = autoscaler + "-client"
)

// longWait are values of a picker whose requests wait longer than by default: what a test installs meanwhile takes most of that time.
var longWait = []string{ //nolint:gochecknoglobals // constant
	"config.apiVersion=inference.networking.x-k8s.io/v1alpha1", "config.kind=EndpointPickerConfig", "config.flowControl.noEndpointRequestTTL=110s",
}

// TestZeroWithKEDA is the quick start for zero with KEDA, beside its operator: by the external scaler and by Prometheus, through zero and back,
// while parts of the system are away, and while the ScaledObject of the cheapest variant is paused.
func TestZeroWithKEDA(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long form: KEDA's images take minutes to build")
	}
	s := newSleeper(t, 20*time.Second, stack.Options{Servers: 1, Odd: []string{"--speed=0.5"}, Picker: longWait})
	require.NoError(t, stack.InstallKEDA(t.Context(), s.Cluster))
	s.makeScalerSecrets()
	s.quickStart(withKEDA)
	s.kedaExample("keda-prometheus-annotated.yaml", second, slow, `"20.0"`, `"30.0"`)
	s.sleeps()

	t.Log("By the external scaler, which pushes: KEDA itself asks once an hour.")
	s.mustKubectl("delete", "scaledobject", scaledObject)
	before := s.asked(t)
	s.kedaExample("keda-external-annotated.yaml", scaledObject, fast, "pollingInterval: 5", "pollingInterval: 3600")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.Greater(collect, s.asked(collect), before, "it asks once")
	}, kubetest.Patience, tick)
	s.wakesAlone(s.send(crowd))
	s.kedaExample("keda-external-annotated.yaml", scaledObject, fast)
	s.sleeps()

	t.Log("Requests wait while KEDA's operator is away, and the leader of the autoscaler dies.")
	s.runKEDA(0)
	w := s.send(crowd)
	s.deletePod(s.holder(), 0)
	s.runKEDA(1)
	s.wakesAlone(w)
	s.sleeps()

	t.Log("The ScaledObject of the cheapest variant is paused at no replicas: the other variant wakes.")
	s.mustKubectl("annotate", "scaledobject", scaledObject, "autoscaling.keda.sh/paused-replicas=0")
	s.mustKubectl("wait", "--for=condition=Paused", "scaledobject/"+scaledObject, stack.WaitTimeout)
	s.first = slow
	s.wakesAlone(s.send(crowd))
	s.mustKubectl("annotate", "scaledobject", scaledObject, "autoscaling.keda.sh/paused-replicas-")
	s.first = fast
	s.sleeps()

	t.Log("By Prometheus. While it is away, the model stays asleep.")
	s.mustKubectl("delete", "scaledobject", second) // of the two, the one that is known to serve the load would wake
	s.kedaExample("keda-prometheus-annotated.yaml", scaledObject, fast)
	s.staysAsleepWithoutPrometheus()
	s.wakesAlone(s.send(crowd))
	s.sleeps()
}

// wakesAlone waits until requests are answered by one replica.
func (s *sleeper) wakesAlone(w *waiting) {
	s.t.Helper()
	w.wakes()
	w.answered()
	n, err := s.replicas(s.t.Context())
	require.NoError(s.t, err)
	require.Equal(s.t, 1, n, "the cheapest variant that KEDA may scale")
}

// asked returns how often the leader has told KEDA whether a ScaledObject is active.
func (s *sleeper) asked(t require.TestingT) float64 {
	pod, err := s.Clientset().CoreV1().Pods(metav1.NamespaceDefault).Get(s.t.Context(), s.holder(), metav1.GetOptions{})
	require.NoError(t, err)
	page, err := stack.Fetch(s.t.Context(), s.Cluster, net.JoinHostPort(pod.Status.PodIP, "9090"), "/metrics")
	require.NoError(t, err)
	return stack.Sum(page, `fairlead_autoscaler_scaler_requests_total{code="OK",method="IsActive"}`)
}

// makeScalerSecrets makes the Secrets that the quick start asks for.
func (s *sleeper) makeScalerSecrets() {
	s.t.Helper()
	server, serverKey, err := stack.SelfSigned(scalerService + "." + metav1.NamespaceDefault + ".svc")
	require.NoError(s.t, err)
	client, clientKey, err := stack.SelfSigned(stack.KEDAOperator)
	require.NoError(s.t, err)
	s.secret(metav1.NamespaceDefault, scalerSecret, "kubernetes.io/tls", map[string][]byte{"tls.crt": server, "tls.key": serverKey})
	s.secret(metav1.NamespaceDefault, clientsSecret, "Opaque", map[string][]byte{"ca.crt": client})
	s.secret(stack.KEDANamespace, kedaSecret, "Opaque", map[string][]byte{"ca.crt": server, "tls.crt": client, "tls.key": clientKey})
}

func (s *sleeper) secret(namespace, name, kind string, data map[string][]byte) {
	s.t.Helper()
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": map[string]string{"name": name, "namespace": namespace}, "data": data,
	})
	require.NoError(s.t, err)
	require.NoError(s.t, s.Apply(s.t.Context(), string(text)))
}

// kedaExample applies an example for KEDA, with another name, for a Deployment of the model.
func (s *sleeper) kedaExample(file, name, deployment string, replace ...string) {
	s.t.Helper()
	s.example(file, append(replace, "name: "+scaledObject+"-decode", "name: "+deployment, `variant_name="`+scaledObject, `variant_name="`+name, "name: "+scaledObject, "name: "+name,
		"qwen/qwen3-32b", stack.Model, "namespace: models", "namespace: default", `namespace="models"`, `namespace="default"`,
		"prometheus-operated.monitoring", "prometheus.default", scalerService+".fairlead", scalerService+".default")...)
}

func (s *sleeper) mustKubectl(args ...string) {
	s.t.Helper()
	_, err := s.Kubectl(s.t.Context(), args...)
	require.NoError(s.t, err)
}

// runKEDA sets the replicas of KEDA's operator, and waits until the others are gone.
func (s *sleeper) runKEDA(replicas int) {
	s.t.Helper()
	s.mustKubectl("-n", stack.KEDANamespace, "scale", "deployment/"+stack.KEDAOperator, fmt.Sprintf("--replicas=%d", replicas))
	if replicas == 0 {
		s.mustKubectl("-n", stack.KEDANamespace, "wait", "--for=delete", "pod", "-l", "app="+stack.KEDAOperator, stack.WaitTimeout)
	}
}

// staysAsleepWithoutPrometheus proves that no replica starts while Prometheus is away, and KEDA asks it again and again.
func (s *sleeper) staysAsleepWithoutPrometheus() {
	s.t.Helper()
	const times = 10 // each ScaledObject fails five times
	errors := func() (total float64) {
		page, err := stack.Fetch(s.t.Context(), s.Cluster, stack.KEDAOperator+"."+stack.KEDANamespace+":metrics", "/metrics")
		require.NoError(s.t, err)
		return stack.Sum(page, "keda_scaled_object_errors_total")
	}
	s.scale("prometheus", 0)
	before := errors()
	require.EventuallyWithT(s.t, func(collect *assert.CollectT) {
		require.GreaterOrEqual(collect, errors(), before+times)
	}, kubetest.Patience, tick)
	n, err := s.replicas(s.t.Context())
	require.NoError(s.t, err)
	require.Zero(s.t, n)
	s.scale("prometheus", 1)
}
