package syncer_test

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/kubetest"
)

const (
	gated = "gated" // a namespace, and a backend set
	apart = "apart" // a namespace without bindings

	// shortHook is the hook of the server that is replaced. The work request that adds the new server takes longer: without the gate, the old
	// one would end before the load balancer has another one. The work request that drains the old server is quick.
	shortHook = "drain.preStopSeconds=4"
	slowWork  = `{"latency": "6s", "latencyTail": "6s"}`
	quickWork = `{"latency": "1s", "latencyTail": "1s"}`

	// unboundDelay is the time after which the gate of a pod without a binding opens.
	unboundDelay = 10 * time.Second
)

// testReadinessGate replaces a model server of one replica. Requests fail unless the roll-out waits for the load balancer.
func (s *system) testReadinessGate() {
	s.install("readinessGates.enabled=true", "readinessGates.webhook.enabled=true")
	require.NoError(s.t, s.Apply(s.t.Context(), file(s.t, "gated.yaml")))
	s.assertInjection()
	unbound := s.createPod(apart, "unbound", true)
	s.serve(gated, tag, "replicas=1", shortHook)
	s.rolledOut(gated, "models")

	stop := s.load(gatedTraffic, 8) // the load balancer has the server
	s.change("modes", slowWork)
	s.serve(gated, nextTag, "replicas=1", shortHook)
	s.followRollOut()
	failed, requests := stop()
	assert.Empty(s.t, failed)
	assert.Greater(s.t, requests, 50)

	s.awaitReady(unbound)
	waited := transition(unbound, v1alpha1.ReadinessGate).Sub(transition(unbound, corev1.ContainersReady))
	assert.Equal(s.t, "NoBinding", conditionOf(unbound, v1alpha1.ReadinessGate).Reason)
	assert.GreaterOrEqual(s.t, waited, unboundDelay)
	s.assertLeastPrivilege()

	s.stopSyncer()
	late := s.createPod(gated, "late", true)
	assert.False(s.t, hasGate(late), "without the webhook, pods start without the gate")
	s.awaitReady(late)
}

// stopSyncer deletes all pods of the syncer.
func (s *system) stopSyncer() {
	s.t.Helper()
	_, err := s.Kubectl(s.t.Context(), "scale", "deployment/"+syncer, "--replicas=0")
	require.NoError(s.t, err)
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		pods, err := s.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + syncer})
		require.NoError(c, err)
		require.Empty(c, pods.Items)
	}, kubetest.Patience, tick)
}

// assertInjection waits until the webhook works, and checks for which pods it does.
func (s *system) assertInjection() {
	s.t.Helper()
	injected := func(t require.TestingT, namespace string, labeled bool) bool {
		p, err := s.Clientset().CoreV1().Pods(namespace).Create(s.t.Context(), podOf("dry", labeled), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err) // the ServiceAccount of a new namespace takes a moment, and so does the webhook
		return hasGate(p)
	}
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		require.True(c, injected(c, gated, false), "the namespace has the label")
		require.True(c, injected(c, apart, true), "the pod has the label")
	}, kubetest.Patience, tick)
	assert.True(s.t, injected(s.t, gated, true))
	assert.False(s.t, injected(s.t, apart, false))
	assert.False(s.t, injected(s.t, metav1.NamespaceDefault, true), "the namespace of the release")
}

// podOf returns a pod whose container is ready when it runs.
func podOf(name string, labeled bool) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "echo"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "echo", Image: stack.Registry() + "/echo:" + tag, ImagePullPolicy: corev1.PullIfNotPresent}}},
	}
	if labeled {
		p.Labels[v1alpha1.LabelInjectGate] = "enabled"
	}
	return p
}

func (s *system) createPod(namespace, name string, labeled bool) *corev1.Pod {
	s.t.Helper()
	p, err := s.Clientset().CoreV1().Pods(namespace).Create(s.t.Context(), podOf(name, labeled), metav1.CreateOptions{})
	require.NoError(s.t, err)
	return p
}

// awaitReady waits until a pod is ready, and reads it.
func (s *system) awaitReady(p *corev1.Pod) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		got, err := s.Clientset().CoreV1().Pods(p.Namespace).Get(s.t.Context(), p.Name, metav1.GetOptions{})
		require.NoError(c, err)
		require.Equal(c, corev1.ConditionTrue, conditionOf(got, corev1.PodReady).Status)
		*p = *got
	}, kubetest.Patience, tick)
}

func hasGate(p *corev1.Pod) bool {
	return slices.Contains(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: v1alpha1.ReadinessGate})
}

// conditionOf returns a condition of a pod, empty if it has none.
func conditionOf(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func isTrue(p *corev1.Pod, kind corev1.PodConditionType) bool {
	return conditionOf(p, kind).Status == corev1.ConditionTrue
}

func transition(p *corev1.Pod, kind corev1.PodConditionType) time.Time {
	return conditionOf(p, kind).LastTransitionTime.Time
}

// followRollOut checks what happens in the roll-out, until the old server is gone. It reads the pods before the load balancer, which cannot be
// behind them. After the slow work request of the new server, others are quick.
func (s *system) followRollOut() {
	s.t.Helper()
	sawWaiting := false
	bounded, cancel := context.WithTimeout(s.t.Context(), kubetest.Patience)
	defer cancel()
	for ; ; time.Sleep(tick) {
		require.NoError(s.t, bounded.Err(), "the old server is not gone")
		old, current := s.gatedServer(tag), s.gatedServer(nextTag)
		active, _ := s.backends(gated)
		if current == nil {
			require.True(s.t, old != nil && old.DeletionTimestamp == nil, "the new server comes first")
			continue
		}
		require.True(s.t, hasGate(current))
		inSet := slices.Contains(active, net.JoinHostPort(current.Status.PodIP, "8000"))
		if !sawWaiting && !inSet && conditionOf(current, v1alpha1.ReadinessGate).Reason == "WaitingForLoadBalancer" && s.isBusy() {
			sawWaiting = true
			s.change("modes", quickWork)
		}
		if isTrue(current, corev1.PodReady) {
			require.True(s.t, inSet, "the load balancer sends requests before the pod is ready")
			require.Positive(s.t, s.answered(current))
		} else {
			require.True(s.t, old != nil && old.DeletionTimestamp == nil, "the roll-out waits for the new server")
		}
		if old == nil {
			break
		}
	}
	assert.True(s.t, sawWaiting, "the new server waits for the work request")
}

// isBusy reports whether a work request is in progress.
func (s *system) isBusy() bool {
	s.t.Helper()
	status, _ := s.askEmulator(http.MethodGet, "idle", "")
	return status == http.StatusConflict
}

// gatedServer returns the server with an image, nil if there is none.
func (s *system) gatedServer(tag string) *corev1.Pod {
	s.t.Helper()
	pods, err := s.Clientset().CoreV1().Pods(gated).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=models"})
	require.NoError(s.t, err)
	i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return strings.HasSuffix(p.Spec.Containers[0].Image, ":"+tag) })
	if i < 0 {
		return nil
	}
	return &pods.Items[i]
}

// answered returns the number of requests that a server has answered.
func (s *system) answered(p *corev1.Pod) int {
	s.t.Helper()
	page, err := stack.Fetch(s.t.Context(), s.Cluster, net.JoinHostPort(p.Status.PodIP, "8000"), "/metrics")
	require.NoError(s.t, err)
	return int(stack.Sum(page, "vllm:request_success_total"))
}
