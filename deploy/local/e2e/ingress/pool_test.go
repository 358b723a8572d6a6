package ingress_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

const (
	modelHeader = "X-Gateway-Model-Name"
	// The domain of the examples.
	exampleDomain = "llm.example.com"
)

// TestInferencePool is the whole path of a completion on OME 1.3: InferenceService, HTTPRoute, the InferencePool that the
// ingress-reconciler creates, Envoy Gateway with Envoy AI Gateway, our endpoint picker, and model servers as the pods that OME
// runs. It installs the files of the example.
func TestInferencePool(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: it needs Envoy Gateway and Envoy AI Gateway")
	}
	takeTurn(t)
	s := newPoolSystem(t)
	chat := types.NamespacedName{Namespace: "models", Name: "chat"}
	t.Run("stock OME 1.3", func(t *testing.T) {
		require.NoError(t, stack.ApplyExample(t.Context(), s.Cluster, stack.IngressExamples, "service.yaml"))
		assert.Equal(t, "http://chat.models."+exampleDomain+"/", s.awaitExposed(t, chat, envoyRoute.at))
		s.awaitCompletion(t, s.completions(chat))
	})
	s.enablePools(t, chat)
	t.Run("streams", func(t *testing.T) { s.assertTokensAreStreamed(t, chat) })
	t.Run("a roll of the engine", func(t *testing.T) { s.assertRollLosesNothing(t, chat) })
	t.Run("leader and workers", func(t *testing.T) { s.assertLeadersServe(t) })
	t.Run("model header", func(t *testing.T) { s.assertModelHeader(t, chat) })
}

// newPoolSystem installs OME 1.3, the ingress-reconciler with the values of its example, and Envoy Gateway with Envoy AI Gateway.
// A token takes a twentieth of a second.
func newPoolSystem(t *testing.T) *system {
	t.Helper()
	c := cluster.Start(t, stack.PublishGateway("127.0.0.1:0"))
	g, gctx := errgroup.WithContext(t.Context())
	g.Go(func() error {
		return stack.InstallOME(gctx, c, stack.ModelOME(tag, "--step-base=50ms", "--step-per-seq=0s", "--drain-delay=3s", "--shutdown-timeout=20"))
	})
	g.Go(func() error { return upgrade(gctx, c, stack.CurrentRelease(tag)) })
	g.Go(func() error {
		if err := stack.InstallEnvoyAIGateway(gctx, c); err != nil {
			return err
		}
		return applyGateway(gctx, c)
	})
	require.NoError(t, g.Wait())
	return &system{Cluster: c, client: dynamic.NewForConfigOrDie(c.RESTConfig()), envoy: newWorld(c, c.Published[0])}
}

// enablePools installs the picker of a service, has the ingress-reconciler create pools, and waits until the picker chooses the
// pods for the service.
func (s *system) enablePools(t *testing.T, name types.NamespacedName) {
	t.Helper()
	s.installPicker(t, name, "--values", s.example(t, "picker-values.yaml"))
	require.NoError(t, upgrade(t.Context(), s.Cluster, stack.CurrentRelease(tag), "--values", s.example(t, "pool-values.yaml")))
	s.awaitPicked(t, name)
}

// installPicker installs the picker of a service.
func (s *system) installPicker(t *testing.T, service types.NamespacedName, args ...string) {
	t.Helper()
	name := types.NamespacedName{Namespace: service.Namespace, Name: service.Name + "-picker"}
	require.NoError(t, stack.InstallPoolPicker(t.Context(), s.Cluster, tag, name, args...))
}

// example returns the path of a file of the ingress-reconciler's example.
func (s *system) example(t *testing.T, name string) string {
	t.Helper()
	root, err := cluster.Repository()
	require.NoError(t, err)
	return filepath.Join(root, stack.IngressExamples, name)
}

// completions returns the options of requests for the host of a service, one at a time.
func (s *system) completions(service types.NamespacedName) chatload.Options {
	return s.completionsAt(service.Name + "." + service.Namespace + "." + exampleDomain)
}

func (s *system) completionsAt(host string) chatload.Options {
	return chatload.Options{
		BaseURL: "http://" + host, Model: stack.Model, Concurrency: 1, MaxTokens: 20, IgnoreEOS: true, KeepAlive: true, Timeout: kubetest.Patience,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.Published[0])
		},
		Prompts: chatload.Prompts{Groups: 8, SharedTokens: 64, Seed: 7},
	}
}

// awaitCompletion waits until a completion succeeds.
func (s *system) awaitCompletion(t *testing.T, o chatload.Options) {
	t.Helper()
	o.Requests, o.MaxTokens, o.Timeout = 1, 1, attempt
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		report, err := chatload.Run(t.Context(), o)
		require.NoError(collect, err)
		require.Zero(collect, report.Failed(), "%v", report.Examples)
	}, kubetest.Patience, tick)
}

// awaitPicked waits until a service is exposed by its pool and a picker chooses the pods.
func (s *system) awaitPicked(t *testing.T, service types.NamespacedName) {
	t.Helper()
	s.awaitExposed(t, service, envoyRoute.at)
	o := s.completions(service)
	o.RequirePicked = true
	s.awaitCompletion(t, o)
}

// assertTokensAreStreamed checks that the first token comes when the model server sends it, and not with the last, which it sends two seconds
// later. A slow machine may delay the first token of one answer, not of all.
func (s *system) assertTokensAreStreamed(t *testing.T, service types.NamespacedName) {
	o := s.completions(service)
	o.RequirePicked, o.Requests, o.MaxTokens = true, 5, 40
	var longest time.Duration // from the first token of an answer to its last
	o.OnResult = func(r chatload.Result) { longest = max(longest, r.Duration-r.TTFT) }
	report, err := chatload.Run(t.Context(), o)
	require.NoError(t, err)
	assert.Zero(t, report.Failed(), "%v %v", report.Failures, report.Examples)
	assert.Greater(t, longest, time.Second, "40 tokens, each a twentieth of a second")
}

// assertRollLosesNothing replaces all pods of an engine under load.
func (s *system) assertRollLosesNothing(t *testing.T, service types.NamespacedName) {
	s.patch(t, inferenceServices, service, fields{"spec": fields{"engine": fields{"minReplicas": 2}}})
	old := s.awaitEngine(t, service, 2, nil)
	stop, ended := make(chan struct{}), make(chan error, 1)
	o := s.completions(service)
	o.RequirePicked, o.Concurrency, o.Stop = true, 12, stop
	var report *chatload.Report
	var answered atomic.Int64
	o.OnResult = func(chatload.Result) { answered.Add(1) }
	awaitMore := func() { // until more are answered than there are at a time
		t.Helper()
		want := answered.Load() + 2*int64(o.Concurrency)
		require.Eventually(t, func() bool { return answered.Load() >= want }, kubetest.Patience, tick)
	}
	go func() {
		var err error
		report, err = chatload.Run(t.Context(), o)
		ended <- err
	}()
	awaitMore()
	s.patch(t, inferenceServices, service, fields{"spec": fields{"engine": fields{"labels": fields{"example.com/rolled": "once"}}}})
	s.awaitEngine(t, service, 2, old)
	awaitMore() // some reach the new pods only
	close(stop)
	require.NoError(t, <-ended)
	assert.Zero(t, report.Failed(), "%v %v", report.Failures, report.Examples)
	assert.Len(t, report.Servers, 4, "old and new pods")
	t.Logf("%d completions", report.Total.Requests)
}

// awaitEngine waits until the engine of a service has exactly the wanted number of pods, all ready and none of the old ones, and returns their
// names.
func (s *system) awaitEngine(t *testing.T, service types.NamespacedName, want int, old map[string]bool) (names map[string]bool) {
	t.Helper()
	selector := labels.Set{"ome.io/inferenceservice": service.Name, "component": "engine"}.String()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		pods, err := s.Clientset().CoreV1().Pods(service.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		require.NoError(collect, err)
		names = map[string]bool{}
		for _, p := range pods.Items {
			require.False(collect, old[p.Name], "%s", p.Name)
			require.True(collect, isReady(&p), "%s", p.Name)
			names[p.Name] = true
		}
		require.Len(collect, names, want)
	}, kubetest.Patience, tick)
	return names
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

// assertModelHeader enables one host for all models, and asks for a model by the header. Envoy AI Gateway runs the picker once for
// each route of the service then, and the last answer counts (envoyproxy/ai-gateway#2595): the endpoint that the first run reports
// need not be the one that serves.
func (s *system) assertModelHeader(t *testing.T, service types.NamespacedName) {
	require.NoError(t, upgrade(t.Context(), s.Cluster, stack.CurrentRelease(tag), "--values", s.example(t, "pool-values.yaml"),
		"--set=config.modelBasedRoutingHeaderName="+modelHeader))
	o := s.completionsAt("llm." + exampleDomain)
	o.Header = http.Header{modelHeader: {service.Name}}
	s.awaitCompletion(t, o)
	for _, header := range []http.Header{nil, {modelHeader: {"unknown"}}} {
		o.Header, o.Requests = header, 1
		o.OnResult = func(r chatload.Result) { assert.Equal(t, http.StatusNotFound, r.Status, "%v", header) }
		_, err := chatload.Run(t.Context(), o)
		require.NoError(t, err)
	}
}

// assertLeadersServe exposes an engine of a leader and two workers. The pool selects the leader's pod, and only this pod answers.
func (s *system) assertLeadersServe(t *testing.T) {
	service := types.NamespacedName{Namespace: "models", Name: "large"}
	s.installPicker(t, service, "--set", "fullnameOverride=large-picker", "--set", "pool.name=large-fairlead", "--set", "gateway.reportEndpoint=true")
	runner := fields{"runner": fields{"name": "server"}}
	worker := fields{"runner": fields{"name": "server"}, "size": 2}
	require.NoError(t, s.create(t.Context(), service, nil, fields{"engine": fields{"minReplicas": 1, "leader": runner, "worker": worker}}))
	s.awaitEngine(t, service, 3, nil)
	s.awaitPicked(t, service)

	pool, err := s.client.Resource(inferencePools).Namespace(service.Namespace).Get(t.Context(), "large-fairlead", metav1.GetOptions{})
	require.NoError(t, err)
	selected, found, err := unstructured.NestedStringMap(pool.Object, "spec", "selector", "matchLabels")
	require.NoError(t, err)
	require.True(t, found, "%v", pool.Object)
	pods, err := s.Clientset().CoreV1().Pods(service.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: labels.Set(selected).String()})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1, "%v", selected)
	leader := pods.Items[0]
	assert.Equal(t, "leader", leader.Labels["ome.io/runner"])

	o := s.completions(service)
	o.RequirePicked, o.Concurrency, o.Requests, o.MaxTokens = true, 4, 20, 2
	report, err := chatload.Run(t.Context(), o)
	require.NoError(t, err)
	assert.Zero(t, report.Failed(), "%v %v", report.Failures, report.Examples)
	require.Len(t, report.Servers, 1)
	assert.Equal(t, leader.Name, report.Servers[0].Server)
}
