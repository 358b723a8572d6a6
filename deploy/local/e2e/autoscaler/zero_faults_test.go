package autoscaler_test

import (
	"context"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
)

// stays is for how long a test looks that a model does not go to zero: twice as long as it would take.
const stays = 90 * time.Second

// TestZeroFaults has a model that wakes while parts of the system fail.
func TestZeroFaults(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long form: a model goes to zero several times")
	}
	s := newSleeper(t, 20*time.Second, stack.Options{Servers: 1, Picker: []string{"replicas=2"}})
	s.quickStart(withoutAutoscaler)
	s.sleeps()
	for _, wave := range []struct {
		name string
		run  func()
	}{
		{"no leader when the requests come", s.withoutLeader},
		{"a picker is replaced, and then the leader is killed, while they wait", s.whileTheyWait},
		{"no Prometheus", s.withoutPrometheus},
		{"a Prometheus that does not answer", s.suspendedPrometheus},
		{"the clients leave just after the wake", s.clientsLeave},
		{"the server is ready and answers 500", s.brokenServer},
		{"the readiness of the server flaps", s.flappingServer},
	} {
		t.Log(wave.name)
		wave.run()
		s.sleeps()
	}
}

func (s *sleeper) withoutLeader() {
	s.deletePod(s.holder(), 0)
	w := s.send(crowd)
	w.wakes()
	w.answered()
}

func (s *sleeper) whileTheyWait() {
	w := s.send(crowd)
	pods, err := s.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(s.t.Context(), metav1.ListOptions{LabelSelector: stack.PickerPods})
	require.NoError(s.t, err)
	require.Len(s.t, pods.Items, 2)
	s.deletePod(pods.Items[0].Name, -1)
	w.wakes()
	s.deletePod(s.holder(), 0)
	w.answered()
}

func (s *sleeper) withoutPrometheus() {
	s.scale("prometheus", 0)
	w := s.send(crowd)
	w.wakes()
	w.answered()
	require.Never(s.t, func() bool {
		n, err := s.wanted(s.t.Context(), fast)
		return err == nil && n != 1
	}, stays, tick, "nothing says that there are no requests")
	s.scale("prometheus", 1)
}

func (s *sleeper) suspendedPrometheus() {
	pods, err := s.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=prometheus"})
	require.NoError(s.t, err)
	require.Len(s.t, pods.Items, 1)
	resume := s.suspend(pods.Items[0].Name)
	w := s.send(crowd)
	w.wakes()
	w.answered()
	resume()
}

// suspend stops the process of a pod until the returned function is called.
func (s *sleeper) suspend(pod string) (resume func()) {
	s.t.Helper()
	s.NeedsOwn(s.t, "suspends processes of pods")
	pid, err := stack.ProcessOf(pod)
	require.NoError(s.t, err)
	require.NoError(s.t, syscall.Kill(pid, syscall.SIGSTOP))
	resume = func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	s.t.Cleanup(resume)
	return resume
}

// clientsLeave has a request whose client leaves when the model wakes: its first replica starts, serves nothing, and goes.
func (s *sleeper) clientsLeave() {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Gateway()+"/v1/completions", strings.NewReader(`{"model": "`+stack.Model+`", "prompt": "a"}`))
	require.NoError(s.t, err)
	request.Header.Set("Content-Type", "application/json")
	go func() {
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	require.EventuallyWithT(s.t, func(collect *assert.CollectT) {
		n, err := s.wanted(s.t.Context(), fast)
		require.NoError(collect, err)
		require.EqualValues(collect, 1, n)
	}, kubetest.Patience, tick/20)
	cancel()
	s.await("fairlead_picker_endpoints_ready", 2) // one server, in each of two pickers
}

// brokenServer has a server that fails. The model has a replica for as long as there are requests, and no more than one.
func (s *sleeper) brokenServer() {
	patch := func(args string) {
		_, err := s.Kubectl(s.t.Context(), "patch", "deployment", fast, "--type=json", "--patch", args)
		require.NoError(s.t, err)
	}
	patch(`[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--fault=500"}]`)
	w := s.send(crowd)
	w.wakes()
	report, results, err := w.load.Finish()
	require.NoError(s.t, err)
	require.Len(s.t, results, crowd)
	assert.Equal(s.t, map[chatload.Class]int{chatload.ClassStatus: crowd}, report.Failures, "the clients get what the server says")
	assert.Len(s.t, s.pods(), 1)
	patch(`[{"op": "test", "path": "/spec/template/spec/containers/0/args/5", "value": "--fault=500"}, {"op": "remove", "path": "/spec/template/spec/containers/0/args/5"}]`)
}

// flappingServer suspends the server several times while it serves: it is not ready then. Requests that come meanwhile wait.
func (s *sleeper) flappingServer() {
	w := s.send(crowd)
	w.wakes()
	w.answered()
	pod := s.pods()[0]
	for range 3 {
		resume := s.suspend(pod.Name)
		s.await("fairlead_picker_endpoints_ready", 0)
		w := s.send(crowd / 10)
		resume()
		report, results, err := w.load.Finish()
		require.NoError(s.t, err)
		require.Len(s.t, results, crowd/10)
		assert.Zero(s.t, report.Failed(), "%v %v", report.Failures, report.Examples)
	}
	assert.Equal(s.t, pod.UID, s.pods()[0].UID, "the server goes on")
}

// deletePod deletes a pod, with a grace period of some seconds if it is not negative.
func (s *sleeper) deletePod(name string, grace int64) {
	s.t.Helper()
	var options metav1.DeleteOptions
	if grace >= 0 {
		options.GracePeriodSeconds = &grace
	}
	require.NoError(s.t, s.Clientset().CoreV1().Pods(metav1.NamespaceDefault).Delete(s.t.Context(), name, options))
}

// scale sets the replicas of a Deployment, and waits for them.
func (s *sleeper) scale(deployment string, replicas int32) {
	s.t.Helper()
	scales := s.Clientset().AppsV1().Deployments(metav1.NamespaceDefault)
	scale, err := scales.GetScale(s.t.Context(), deployment, metav1.GetOptions{})
	require.NoError(s.t, err)
	scale.Spec.Replicas = replicas
	_, err = scales.UpdateScale(s.t.Context(), deployment, scale, metav1.UpdateOptions{})
	require.NoError(s.t, err)
	require.EventuallyWithT(s.t, func(collect *assert.CollectT) {
		pods, err := s.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=" + deployment})
		require.NoError(collect, err)
		ready := 0
		for i := range pods.Items {
			for _, c := range pods.Items[i].Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		require.EqualValues(collect, replicas, ready)
		require.Len(collect, pods.Items, int(replicas))
	}, kubetest.Patience, tick/4)
}
