package autoscaler_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
)

// The published episode of llm-d: its rates, objectives and bounds, as in services/variant-autoscaler/test/episode.
const (
	ttft = 3 * time.Second
	tpot = 100 * time.Millisecond

	minReplicas = 3
)

type phase struct {
	duration time.Duration
	rate     float64
}

func published() []phase {
	const step = 360 * time.Second
	return []phase{{330 * time.Second, 2}, {step, 4}, {step, 6}, {step, 8}, {step, 10}, {step, 4}, {300 * time.Second, 1}}
}

// qwen32 are the flags of a model server that resembles Qwen3-32B in FP8 on two H100. The package episode of the autoscaler says where the
// numbers come from. A client gets ten tokens at a time, as the machine of the benchmark also has to be the cluster.
func qwen32() []string {
	return []string{
		"--startup-delay=100s", "--step-base=7100us", "--step-per-seq=150us", "--prefill-per-token=55us", "--step-per-context-token=39ns",
		"--prefill-per-megapair=1770us", "--step-noise=0.05", "--cuda-graphs", "--max-num-seqs=256", "--max-num-batched-tokens=8192",
		"--num-gpu-blocks=26875", "--stream-interval=10",
	}
}

// BenchmarkEpisode plays the published episode in the local cluster, in real time: 41 minutes. It reports the part of the requests within
// both objectives and the average number of replicas, from the creation of a pod until it is gone.
func BenchmarkEpisode(b *testing.B) {
	s := newSystem(b, stack.Options{Tag: "dev", Servers: minReplicas, Model: qwen32()})
	s.apply("prometheus.yaml", "SCRAPE", "15s")
	s.apply("adapter.yaml", "RULES", s.rules(), "RELIST", "1m")
	s.install("serviceClasses.default\\.yaml.data[0].model=default/default", "serviceClasses.default\\.yaml.data[0].slo-ttft=3000",
		"serviceClasses.default\\.yaml.data[0].slo-tpot=100")
	s.example("hpa-annotated.yaml", "qwen-h100-decode", fast, "qwen-h100", fast, "namespace: models", "namespace: default",
		"qwen/qwen3-32b", stack.Model, "minReplicas: 1", "minReplicas: 3", "maxReplicas: 40", "maxReplicas: 8")
	s.rolledOut(autoscaler)
	s.rolledOut("prometheus-adapter")
	require.EventuallyWithT(b, func(collect *assert.CollectT) {
		text, err := s.Kubectl(b.Context(), "get", "hpa", fast, "-o", `jsonpath={.status.conditions[?(@.type=="ScalingActive")].reason}`)
		require.NoError(collect, err)
		require.Equal(collect, "ValidMetricFound", text)
	}, 2*kubetest.Patience, tick) // the adapter lists its metrics once a minute
	for b.Loop() {
		e := s.play(published())
		within, replicas := e.within()
		b.ReportMetric(100*within, "%within")
		b.ReportMetric(replicas, "replicas")
		b.ReportMetric(float64(e.failed), "failed")
		b.ReportMetric(float64(e.tokens)/float64(len(e.results)), "prompt-tokens/request")
	}
}

// episode is what was seen in one.
type episode struct {
	mu      sync.Mutex
	results []chatload.Result
	pods    []int // in equal intervals
	failed  int
	tokens  int
}

// play sends the requests of the phases, and returns when all are answered.
func (s *system) play(phases []phase) *episode {
	s.t.Helper()
	e := &episode{}
	counted, end := context.WithCancel(s.t.Context())
	defer end()
	var counting, load sync.WaitGroup
	counting.Go(func() { e.count(counted, s) })
	for i, p := range phases {
		load.Go(func() {
			_, err := chatload.Run(s.t.Context(), chatload.Options{
				BaseURL: s.Gateway(), Model: stack.Model, Rate: p.rate, Duration: p.duration, MaxTokens: 1000, IgnoreEOS: true, KeepAlive: true,
				Prompts: chatload.Prompts{OwnTokens: 4500, Seed: uint64(i)}, OnResult: e.add,
			})
			assert.NoError(s.t, err)
		})
		time.Sleep(p.duration) // a benchmark: the load is what it is in real time
		s.t.Logf("after %v at %v requests/s: %v", p.duration, p.rate, e)
	}
	end()
	counting.Wait()
	load.Wait()
	return e
}

// count counts pods until the episode ends.
func (e *episode) count(ctx context.Context, s *system) {
	const interval = 5 * time.Second
	for ctx.Err() == nil {
		if pods, err := s.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "set=" + fast}); err == nil {
			e.mu.Lock()
			e.pods = append(e.pods, len(pods.Items))
			e.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}

func (e *episode) add(r chatload.Result) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.results = append(e.results, r)
	e.tokens += r.PromptTokens
	if r.Err != nil {
		e.failed++
	}
}

// within returns the part of the requests within both objectives, and replicas the average number of pods.
func (e *episode) within() (within, replicas float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.results {
		r := &e.results[i]
		if r.Err == nil && r.TTFT <= ttft && (r.Duration-r.TTFT)/time.Duration(max(r.Tokens-1, 1)) <= tpot {
			within++
		}
	}
	for _, n := range e.pods {
		replicas += float64(n)
	}
	return within / float64(max(len(e.results), 1)), replicas / float64(max(len(e.pods), 1))
}

func (e *episode) String() string {
	within, replicas := e.within()
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Sprintf("%d answered, %.1f %% within both, %d failed, %.2f pods: %v", len(e.results), 100*within, e.failed, replicas, e.pods)
}
