package gateways

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/informers"
)

// gatedPod writes a pod of namespace models with the readiness gate, whose containers are ready, and its EndpointSlice.
func (w *world) gatedPod(service string, number int) {
	w.t.Helper()
	w.serve(fmt.Sprintf("10.0.0.%d:8000", number), service)
	w.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s-%[2]d, namespace: models, labels: {app: %[1]s}}
spec: {readinessGates: [{conditionType: fairlead.dev/oci-lb-ready}]}
status:
  podIP: 10.0.0.%[2]d
  conditions: [{type: ContainersReady, status: 'True'}, {type: Ready, status: 'False', reason: ReadinessGatesNotReady}]
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: models}
spec: {ports: [{name: http, port: 80, targetPort: 8000}]}
`, service, number))
	pod := informers.FindObject[corev1.Pod](w.caches.Load().Pods,
		cache.ObjectName{Namespace: "models", Name: fmt.Sprintf("%s-%d", service, number)})
	w.apply(fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: models, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: 8000, protocol: TCP}]
endpoints: [{addresses: [10.0.0.%[2]d], conditions: {ready: false, serving: false}, targetRef: {kind: Pod, namespace: models,
  name: %[1]s-%[2]d, uid: %[3]s}}]
`, service, number, pod.UID))
}

// serves returns the backend sets of a pod, each with whether the load balancer sends requests to the pod, and whether all sets are known.
func (w *world) serves(pod string) (sets []string, known bool) {
	w.t.Helper()
	p := informers.FindObject[corev1.Pod](w.caches.Load().Pods, cache.ObjectName{Namespace: "models", Name: pod})
	require.NotNil(w.t, p)
	all, known := w.reconciler.SetsOf(p)
	for _, s := range all {
		report := w.reconciler.p.Actors.BackendSetReport(actor.Key{LoadBalancer: s.LoadBalancer, Set: s.Set})
		for _, a := range s.Addresses {
			sets = append(sets, fmt.Sprintf("%s %s %t", s.Set[:strings.LastIndex(s.Set, "-")], a, report != nil && report.Serving[a]))
		}
	}
	return sets, known
}

// TestReadinessGates has pods with the readiness gate behind routes only: behind a Service, and in a pool that fails open.
func TestReadinessGates(t *testing.T) {
	t.Parallel()
	inWorld(t, nil, func(w *world) {
		w.gateway("web", `drainMaximumSeconds: "1"`, webListener)
		w.gatedPod("chat", 1)
		w.gatedPod("pool", 2)
		w.gatedPod("alone", 3)
		w.settle()
		sets, known := w.serves("chat-1")
		assert.True(t, known)
		assert.Empty(t, sets, "no route has the Service")
		require.NotContains(t, w.woken, "alone-3")

		w.apply("apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {name: pool, namespace: models}\n" +
			"spec: {selector: {matchLabels: {app: pool}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: picker, port: " +
			"{number: " +
			"9002}, failureMode: FailOpen}}\n")
		w.route("models", "pool",
			"hostnames: [pool.example.com], rules: [{backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, "+
				"name: pool}]}]")
		w.route("models", "chat", toChat)
		w.mu.Lock()
		w.woken = map[string]bool{}
		w.mu.Unlock()
		w.settle()
		for pod, want := range map[string]string{
			"chat-1": "models-chat-80 10.0.0.1:8000 true", "pool-2": "models-pool-0 10.0.0.2:8000 true",
		} {
			sets, known = w.serves(pod)
			assert.True(t, known)
			assert.Equal(t, []string{want}, sets)
			assert.True(t, w.woken[pod], "the gate of %s is looked at again", pod)
		}
		assert.False(t, w.woken["alone-3"])

		w.stop()
		w.start() // another leader
		_, known = w.serves("chat-1")
		assert.False(t, known, "a term begins without knowledge")
		w.changed()
		time.Sleep(time.Minute)
		sets, known = w.serves("chat-1")
		assert.True(t, known)
		assert.Equal(t, []string{"models-chat-80 10.0.0.1:8000 true"}, sets)

		w.remove("HTTPRoute", "models", "chat")
		w.settle()
		sets, _ = w.serves("chat-1")
		assert.Empty(t, sets, "a set that drains does not count")
	})
}
