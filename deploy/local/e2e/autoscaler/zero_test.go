package autoscaler_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
)

// Headings of the quick starts.
const (
	withoutAutoscaler = "## Zero without an autoscaler"
	withHPA           = "## Zero with a HorizontalPodAutoscaler"
)

// TestZeroWithoutAutoscaler is the quick start for zero without an autoscaler: requests wait for a model without replicas, which the program
// learns from the picker. It starts one, and, in the long form, removes it when there are no more requests.
func TestZeroWithoutAutoscaler(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		s := newSleeper(t, 5*time.Second, stack.Options{Picker: longWait})
		s.opens()
		w := s.send(crowd) // before there is an autoscaler
		s.quickStart(withoutAutoscaler)
		w.wakes()
		w.answered()
		return
	}
	s := newSleeper(t, 20*time.Second, stack.Options{Servers: 1})
	s.quickStart(withoutAutoscaler)
	s.sleeps()
	w := s.send(crowd)
	w.wakes()
	w.answered()
	s.sleeps()
}

// TestZeroWithHPA is the quick start for zero with a HorizontalPodAutoscaler, which goes to zero and back itself.
func TestZeroWithHPA(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long form: a HorizontalPodAutoscaler looks each 15 s, and TestZeroWithoutAutoscaler has the rest")
	}
	s := newSleeper(t, 20*time.Second, stack.Options{Servers: 1})
	s.apply("adapter.yaml", "RULES", s.rules(), "RELIST", "5s")
	s.rolledOut("prometheus-adapter")
	s.quickStart(withHPA)
	s.sleeps()
	w := s.send(crowd)
	w.wakes()
	w.answered()
	s.sleeps()
	require.False(t, s.mayWrite(), "the HorizontalPodAutoscaler alone writes")

	// One that was created again has forgotten who scaled the target to zero.
	_, err := s.Kubectl(t.Context(), "delete", "hpa", "qwen-h100")
	require.NoError(t, err)
	s.kubectl(s.commands(withHPA)[1:])
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		reason, err := s.Kubectl(t.Context(), "get", "hpa", "qwen-h100", "-o", `jsonpath={.status.conditions[?(@.type=="ScalingActive")].reason}`)
		require.NoError(collect, err)
		require.Equal(collect, "ScalingDisabled", reason)
	}, kubetest.Patience, tick)
	s.install(append(s.values, "wakeHPATargets=true")...)
	s.rolledOut(autoscaler)
	require.True(t, s.mayWrite())
	w = s.send(crowd)
	w.wakes()
	w.answered()
	s.sleeps()
}

// TestZeroBehindAuthentication has a picker that serves what waits over TLS, to clients with a token. The values of both charts suffice.
func TestZeroBehindAuthentication(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long form: TestZeroWithoutAutoscaler has the rest")
	}
	s := newSleeper(t, 5*time.Second, stack.Options{})
	s.opens()
	certificate, key, err := stack.SelfSigned(stack.Picker + ".default.svc")
	require.NoError(t, err)
	_, err = s.Clientset().CoreV1().Secrets(metav1.NamespaceDefault).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "picker-metrics"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key, "ca.crt": certificate},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, s.UpgradePicker(t.Context(), tag, "metrics.auth=true", "metrics.certificateSecret=picker-metrics"))
	s.quickStart(withoutAutoscaler, "holds.caSecret=picker-metrics", "holds.token=true")
	s.rolledOut(autoscaler)
	w := s.begin(crowd)
	w.wakes()
	w.answered()
}

// TestZeroOfASharedPool has two models in one InferencePool. Both wake, as the picker gives no request to wait while a server of either is ready.
func TestZeroOfASharedPool(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long form: models do not go to zero")
	}
	const other = "other"
	s := newSleeper(t, 5*time.Second, stack.Options{})
	s.copyServers(other)
	s.opens()
	s.quickStart(withoutAutoscaler)
	s.example("variantautoscaling.yaml", "llama-h100-decode", other, "llama-l40s-decode", "none", "llama-h100", other, "llama-l40s", "none",
		"namespace: models", "namespace: default", "meta/llama-3.1-8b", other, "minReplicas: 1", "minReplicas: 0")
	n, err := s.wanted(t.Context(), other)
	require.NoError(t, err)
	require.Zero(t, n)
	w := s.send(crowd)
	w.wakes()
	w.answered()
	s.rolledOut(other)
	require.Eventually(t, func() bool { return s.ask(other) == http.StatusOK }, kubetest.Patience, tick)
	require.Never(t, func() bool {
		a, errA := s.wanted(t.Context(), fast)
		b, errB := s.wanted(t.Context(), other)
		return errA == nil && errB == nil && (a == 0 || b == 0)
	}, stays, tick, "the server of the one model would refuse requests for the other one")
}

// ask sends a request for a model, and returns the status of the answer.
func (s *sleeper) ask(model string) int {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.Gateway()+"/v1/completions", strings.NewReader(`{"model": "`+model+`", "prompt": "a"}`))
	require.NoError(s.t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	require.NoError(s.t, response.Body.Close())
	return response.StatusCode
}

// copyServers makes a Deployment of the same servers in the same pool, with another model of the same name.
func (s *sleeper) copyServers(name string) {
	s.t.Helper()
	deployments := s.Clientset().AppsV1().Deployments(metav1.NamespaceDefault)
	d, err := deployments.Get(s.t.Context(), fast, metav1.GetOptions{})
	require.NoError(s.t, err)
	d.ObjectMeta = metav1.ObjectMeta{Name: name}
	d.Spec.Selector.MatchLabels["set"], d.Spec.Template.Labels["set"] = name, name
	d.Spec.Template.Spec.Containers[0].Args[0] = "--model=" + name
	_, err = deployments.Create(s.t.Context(), d, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

// mayWrite reports whether the program may write the scale of Deployments.
func (s *sleeper) mayWrite() bool {
	s.t.Helper()
	out, _ := s.Kubectl(s.t.Context(), "auth", "can-i", "update", "deployments.apps", "--subresource=scale", "--as=system:serviceaccount:default:"+autoscaler) // it fails with "no"
	return strings.TrimSpace(out) == "yes"
}
