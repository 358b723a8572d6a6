package autoscaler_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
)

const (
	// document has the quick starts.
	document = "docs/services/variant-autoscaler-zero.md"
	// retention is how long a model of these tests keeps a replica after its last request, in place of the ten minutes of the quick starts.
	retention = "20s"
	// attempt is how long a test waits for the pages of servers, some of which may not answer yet.
	attempt = 10 * time.Second
	// crowd is how many requests wait for a model that has no replicas.
	crowd = 200
)

// inPlace are names of the examples, and those of the model servers in their place.
var inPlace = strings.NewReplacer( //nolint:gochecknoglobals // constant
	"llama-h100-decode", fast, "qwen-h100-decode", fast, "llama-l40s-decode", slow, "meta/llama-3.1-8b", stack.Model, "qwen/qwen3-32b", stack.Model,
	"namespace: models", "namespace: default", "-n models", "-n default", ".fairlead.svc", ".default.svc",
)

// sleeper is a model behind a picker and an Envoy that can have no replicas. Who scales it is up to the test.
type sleeper struct {
	*system

	values []string // of the chart, as the commands of the quick start set them
	first  string   // the Deployment that wakes the model
}

// newSleeper returns a model whose servers take some time to start, and a Prometheus. Without servers, it sleeps from the beginning.
func newSleeper(t *testing.T, start time.Duration, o stack.Options) *sleeper {
	t.Helper()
	o.Tag, o.Model = tag, append([]string{"--startup-delay=" + start.String()}, o.Model...)
	s := &sleeper{system: newSystem(t, o), first: fast}
	s.apply("prometheus.yaml", "SCRAPE", "2s")
	s.rolledOut("prometheus")
	return s
}

// quickStart runs the commands below a heading of the document, with other names, periods of seconds, and further values of the chart.
func (s *sleeper) quickStart(heading string, values ...string) {
	s.t.Helper()
	commands := s.commands(heading)
	words := strings.Fields(commands[0])
	require.Equal(s.t, "helm", words[0])
	s.values = append(values,
		"scaleToZero.__defaults__.retentionPeriod="+retention, "optimization.interval=10s", "plan.stabilizationWindow=20s", "prometheus.metricsWindow=15s")
	for i, word := range words {
		if word == "--set" {
			s.values = append(s.values, words[i+1])
		}
	}
	s.install(s.values...)
	s.kubectl(commands[1:])
}

// kubectl runs commands of the document.
func (s *sleeper) kubectl(commands []string) {
	s.t.Helper()
	for _, line := range commands {
		words := strings.Fields(inPlace.Replace(strings.ReplaceAll(line, "'", "")))
		require.Equal(s.t, "kubectl", words[0])
		if words[1] != "apply" {
			_, err := s.Kubectl(s.t.Context(), words[1:]...)
			require.NoError(s.t, err)
			continue
		}
		text, err := os.ReadFile(filepath.Join(s.root, words[len(words)-1]))
		require.NoError(s.t, err)
		require.NoError(s.t, s.Apply(s.t.Context(), inPlace.Replace(string(text))))
	}
}

// commands returns the commands of the first block below a heading.
func (s *sleeper) commands(heading string) []string {
	s.t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.root, document))
	require.NoError(s.t, err)
	_, text, found := strings.Cut(string(raw), "\n"+heading+"\n")
	require.True(s.t, found, "%s has no heading %q", document, heading)
	_, text, _ = strings.Cut(text, "```sh\n")
	text, _, found = strings.Cut(text, "\n```")
	require.True(s.t, found, "%q has no commands", heading)
	return strings.Split(strings.ReplaceAll(text, "\\\n", " "), "\n")
}

// await waits for the sum of a metric of all pickers.
func (s *sleeper) await(metric string, want float64) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(collect *assert.CollectT) {
		sum, err := stack.SumPickers(s.t.Context(), s.Cluster, metric)
		require.NoError(collect, err)
		require.InDelta(collect, want, sum, 0, metric)
	}, kubetest.Patience, tick/4)
}

// sleeps waits until the model has no replicas, and the picker no server.
func (s *sleeper) sleeps() {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(collect *assert.CollectT) {
		n, err := s.wanted(s.t.Context(), fast)
		require.NoError(collect, err)
		require.Zero(collect, n)
	}, 2*kubetest.Patience, tick)
	s.await("fairlead_picker_endpoints_ready", 0)
}

// wanted returns the replicas that the spec of a Deployment asks for.
func (s *sleeper) wanted(ctx context.Context, deployment string) (int32, error) {
	scale, err := s.Clientset().AppsV1().Deployments(metav1.NamespaceDefault).GetScale(ctx, deployment, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	return scale.Spec.Replicas, nil
}

// opens waits until a request that comes in by Envoy waits in a picker. It names no model, and wakes none.
func (s *sleeper) opens() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Gateway()+"/v1/models", http.NoBody)
			if err != nil {
				return
			}
			if response, err := http.DefaultClient.Do(request); err == nil {
				_ = response.Body.Close()
			}
		}
	}()
	s.await(waitingRequests, 1)
	cancel()
	s.await(waitingRequests, 0)
}

// waitingRequests are those of a model that wait in a picker.
const waitingRequests = "fairlead_picker_waiting_requests"

// waiting is requests for a model that has no replicas.
type waiting struct {
	*sleeper

	number int
	began  time.Time
	load   *stack.Load
	woke   types.UID // the pod that woke the model
}

// send sends requests, and returns when all of them wait.
func (s *sleeper) send(number int) *waiting {
	s.t.Helper()
	w := s.begin(number)
	s.await(waitingRequests, float64(number))
	s.t.Logf("%d requests wait after %v", number, time.Since(w.began).Round(time.Millisecond))
	return w
}

// begin begins to send requests.
func (s *sleeper) begin(number int) *waiting {
	s.t.Helper()
	return &waiting{sleeper: s, number: number, began: time.Now(), load: stack.StartLoad(s.t.Context(), chatload.Options{
		BaseURL: s.Gateway(), Model: stack.Model, Concurrency: number, Requests: number, MaxTokens: 4, IgnoreEOS: true, KeepAlive: true,
		RequirePicked: true, Timeout: kubetest.Patience, Prompts: chatload.Prompts{Groups: 8, SharedTokens: 64, Seed: 1},
	})}
}

// wakes waits until the model has one replica.
func (w *waiting) wakes() {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(collect *assert.CollectT) {
		n, err := w.wanted(w.t.Context(), w.first)
		require.NoError(collect, err)
		require.EqualValues(collect, 1, n)
	}, kubetest.Patience, tick/10)
	w.t.Logf("a replica was asked for %v after the first request", time.Since(w.began).Round(time.Millisecond))
	require.Eventually(w.t, func() bool { return len(w.pods()) > 0 }, kubetest.Patience, tick/10)
	w.woke = w.pods()[0].UID
}

// answered waits until all requests are answered, each by one server.
func (w *waiting) answered() {
	w.t.Helper()
	report, results, err := w.load.Finish()
	require.NoError(w.t, err)
	require.Len(w.t, results, w.number)
	require.Zero(w.t, report.Failed(), "%v %v", report.Failures, report.Examples)
	first := results[0].Start.Add(results[0].TTFT)
	for i := range results {
		if at := results[i].Start.Add(results[i].TTFT); at.Before(first) {
			first = at
		}
	}
	w.t.Logf("the first token came %v after the first request, the last answer after %v", first.Sub(w.began).Round(time.Millisecond),
		time.Since(w.began).Round(time.Millisecond))
	ctx, cancel := context.WithTimeout(w.t.Context(), attempt)
	defer cancel()
	served, stays := 0.0, false
	for _, pod := range w.pods() {
		stays = stays || pod.UID == w.woke
		if page, err := stack.Fetch(ctx, w.Cluster, net.JoinHostPort(pod.Status.PodIP, "8000"), "/metrics"); err == nil { // others start
			served += stack.Sum(page, "vllm:request_success_total")
		}
	}
	assert.InDelta(w.t, w.number, served, 0, "servers answer each once")
	assert.True(w.t, stays, "the pod that woke the model was replaced")
}

// pods returns the servers of the Deployment that wakes the model. They do not end.
func (s *sleeper) pods() (all []corev1.Pod) {
	s.t.Helper()
	pods, err := s.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(s.t.Context(), metav1.ListOptions{LabelSelector: "set=" + s.first})
	require.NoError(s.t, err)
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			all = append(all, pod)
		}
	}
	return all
}
