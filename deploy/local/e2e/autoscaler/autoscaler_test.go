// Package autoscaler_test tests the variant-autoscaler as its users meet it: installed by its chart beside model servers, a picker and an
// Envoy. A real Prometheus scrapes them, and HorizontalPodAutoscalers of Kubernetes follow the metric, from prometheus-adapter, with the
// files of deploy/examples/variant-autoscaler.
package autoscaler_test

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

const (
	tag        = "race"
	autoscaler = "variant-autoscaler"
	prometheus = "prometheus.default:http"

	// The Deployments of the model servers, each of them a variant.
	fast = stack.Pool
	slow = stack.Pool + "-odd"

	tick = time.Second
)

//go:embed testdata
var testdata embed.FS

// system is a cluster with everything.
type system struct {
	*cluster.Cluster
	*stack.Stack

	t    testing.TB
	root string
	tag  string // of the images
}

func newSystem(t testing.TB, o stack.Options) *system {
	t.Helper()
	root, err := cluster.Repository()
	require.NoError(t, err)
	c := cluster.Start(t, stack.Publish("127.0.0.1:0"))
	s, err := stack.Install(t.Context(), c, o)
	require.NoError(t, err)
	if o.Servers > 0 {
		require.NoError(t, s.WaitGateway(t.Context()))
	}
	return &system{Cluster: c, Stack: s, t: t, root: root, tag: o.Tag}
}

func (s *system) apply(name string, replace ...string) {
	s.t.Helper()
	text, err := testdata.ReadFile("testdata/" + name)
	require.NoError(s.t, err)
	require.NoError(s.t, s.Apply(s.t.Context(), strings.NewReplacer(replace...).Replace(string(text))))
}

// example applies a file of the examples with other names.
func (s *system) example(name string, replace ...string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.root, "deploy", "examples", "variant-autoscaler", name))
	require.NoError(s.t, err)
	require.NoError(s.t, s.Apply(s.t.Context(), strings.NewReplacer(replace...).Replace(string(text))))
}

// rules returns the configuration that the chart of prometheus-adapter makes from the values among the examples.
func (s *system) rules() string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.root, "deploy", "examples", "variant-autoscaler", "prometheus-adapter-values.yaml"))
	require.NoError(s.t, err)
	var values struct {
		Rules struct {
			External []any `json:"external"`
		} `json:"rules"`
	}
	require.NoError(s.t, yaml.Unmarshal(text, &values))
	config, err := json.Marshal(map[string]any{"externalRules": values.Rules.External})
	require.NoError(s.t, err)
	return string(config)
}

// install installs the autoscaler with helm values, as name=value, and does not wait.
func (s *system) install(values ...string) {
	s.t.Helper()
	args := []string{"upgrade", "--install", autoscaler, filepath.Join(s.root, "charts", autoscaler)}
	for _, v := range append(values, "prometheus.url=http://prometheus.default.svc:9090", "prometheus.allowHTTP=true",
		"image.registry="+stack.Registry(), "image.repository="+autoscaler, "image.tag="+s.tag) {
		args = append(args, "--set", v)
	}
	_, err := s.Helm(s.t.Context(), args...)
	require.NoError(s.t, err)
}

func (s *system) rolledOut(deployment string) {
	s.t.Helper()
	_, err := s.Kubectl(s.t.Context(), "rollout", "status", "deployment/"+deployment, stack.WaitTimeout)
	require.NoError(s.t, err)
}

// query returns the value of an expression in Prometheus, and whether it has one.
func (s *system) query(ctx context.Context, expr string) (float64, bool, error) {
	text, err := stack.Fetch(ctx, s.Cluster, prometheus, "/api/v1/query?query="+url.QueryEscape(expr))
	if err != nil {
		return 0, false, err
	}
	var answer struct {
		Data struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Data.Result) == 0 {
		return 0, false, err
	}
	value, err := strconv.ParseFloat(fmt.Sprint(answer.Data.Result[0].Value[1]), 64)
	return value, true, err
}

// replicas returns the replicas that the specs of the variants ask for, together.
func (s *system) replicas(ctx context.Context) (int, error) {
	total := 0
	for _, name := range []string{fast, slow} {
		scale, err := s.Clientset().AppsV1().Deployments(metav1.NamespaceDefault).GetScale(ctx, name, metav1.GetOptions{})
		if err != nil {
			return 0, err
		}
		total += int(scale.Spec.Replicas)
	}
	return total, nil
}

// conditions returns the reasons of the conditions of the VariantAutoscaling.
func (s *system) conditions(ctx context.Context) (string, error) {
	return s.Kubectl(ctx, "get", "variantautoscaling", fast, "-o", `jsonpath={range .status.conditions[*]}{.type}={.status},{.reason} {end}`)
}

// TestReplicasFollowTheLoad: requests come, HorizontalPodAutoscalers add replicas, and, in the long form, the leader dies, the requests end, and
// the replicas go.
func TestReplicasFollowTheLoad(t *testing.T) {
	t.Parallel()
	few := []string{"--max-num-seqs=4", "--step-base=20ms"} // a replica is full with four requests
	s := newSystem(t, stack.Options{Tag: tag, Servers: 1, Model: few, Odd: []string{"--speed=0.5"}})
	s.install("prometheus.metricsWindow=15s", "optimization.interval=10s", "plan.stabilizationWindow=20s")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		out, err := s.Kubectl(t.Context(), "get", "pods", "-l", "app.kubernetes.io/name="+autoscaler, "-o", "jsonpath={.items[*].status.containerStatuses[*].state.running.startedAt}")
		require.NoError(collect, err)
		require.Len(collect, strings.Fields(out), 2, "they run without a Prometheus")
	}, kubetest.Patience, tick)
	s.apply("prometheus.yaml", "SCRAPE", "2s")
	s.apply("adapter.yaml", "RULES", s.rules(), "RELIST", "5s")
	s.example("variantautoscaling.yaml", "llama-h100-decode", fast, "llama-l40s-decode", "does-not-exist", "llama-h100", fast, "namespace: models", "namespace: default",
		"meta/llama-3.1-8b", stack.Model)
	s.example("hpa-variant.yaml", "llama-h100-decode", fast, "llama-h100", fast, "namespace: models", "namespace: default")
	s.example("hpa-annotated.yaml", "qwen-h100-decode", slow, "qwen-h100", slow, "namespace: models", "namespace: default", "qwen/qwen3-32b", stack.Model)
	s.rolledOut(autoscaler) // Prometheus has answered
	s.rolledOut("prometheus-adapter")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		text, err := s.conditions(t.Context())
		require.NoError(collect, err)
		require.Contains(collect, text, "TargetResolved=True,TargetFound")
		require.Contains(collect, text, "MetricsAvailable=True,MetricsFound")
		missing, err := s.Kubectl(t.Context(), "get", "variantautoscaling", "llama-l40s", "-o", "jsonpath={.status.decision}")
		require.NoError(collect, err)
		require.Equal(collect, "TargetNotFound", missing)
	}, kubetest.Patience, tick)

	stop := s.load(chatload.Options{Concurrency: 16, MaxTokens: 100, Prompts: chatload.Prompts{Groups: 64, SharedTokens: 64, Seed: 4}})
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		n, err := s.replicas(t.Context())
		require.NoError(collect, err)
		require.GreaterOrEqual(collect, n, 4, "16 requests at a time, and four in a replica")
	}, kubetest.Patience, tick)
	require.EventuallyWithT(t, func(collect *assert.CollectT) { // a pass may have seen no sample of a busy server
		text, err := s.conditions(t.Context())
		require.NoError(collect, err)
		require.Contains(collect, text, "Ready=True")
	}, kubetest.Patience, tick)

	if !testing.Short() {
		s.killLeader()
	}
	report := stop()
	assert.Zero(t, report.Failed(), "%v %v", report.Failures, report.Examples)
	if testing.Short() {
		return
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		n, err := s.replicas(t.Context())
		require.NoError(collect, err)
		require.Equal(collect, 2, n, "one of each variant: its minimum")
	}, 2*kubetest.Patience, tick) // a HorizontalPodAutoscaler removes replicas step by step
}

// load sends requests until the returned function is called.
func (s *system) load(o chatload.Options) func() *chatload.Report {
	s.t.Helper()
	stop, ended := make(chan struct{}), make(chan error, 1)
	o.BaseURL, o.Model, o.IgnoreEOS, o.KeepAlive, o.Timeout, o.Stop = s.Gateway(), stack.Model, true, true, kubetest.Patience, stop
	var report *chatload.Report
	go func() {
		var err error
		report, err = chatload.Run(s.t.Context(), o)
		ended <- err
	}()
	return func() *chatload.Report {
		s.t.Helper()
		close(stop)
		require.NoError(s.t, <-ended)
		return report
	}
}

// killLeader kills the leader. Its successor publishes neither a zero nor a second series, and does not remove replicas.
func (s *system) killLeader() {
	s.t.Helper()
	const series = `wva_desired_replicas{variant_name="` + fast + `"}`
	before, found, err := s.query(s.t.Context(), series)
	require.NoError(s.t, err)
	require.True(s.t, found)
	holder := s.holder()
	_, err = s.Kubectl(s.t.Context(), "delete", "pod", holder, "--grace-period=0", "--force")
	require.NoError(s.t, err)
	require.EventuallyWithT(s.t, func(collect *assert.CollectT) {
		require.NotEqual(collect, holder, s.holder())
		n, found, err := s.query(s.t.Context(), "count("+series+` and on(pod) up{pod!="`+holder+`"})`)
		require.NoError(collect, err)
		require.True(collect, found)
		require.InDelta(collect, 1, n, 0)
	}, kubetest.Patience, tick)
	least, _, err := s.query(s.t.Context(), "min_over_time(max("+series+")[1m:1s])")
	require.NoError(s.t, err)
	assert.GreaterOrEqual(s.t, least, min(before, 1), "no zero")
}

// holder returns the name of the pod that leads.
func (s *system) holder() string {
	s.t.Helper()
	text, err := s.Kubectl(s.t.Context(), "get", "lease", "fairlead-"+autoscaler, "-o", "jsonpath={.spec.holderIdentity}")
	require.NoError(s.t, err)
	name, _, _ := strings.Cut(text, "_")
	return name
}

// TestPredictions compares the figures that a plan predicts with those that servers of unlike speed show behind the picker. Nothing tells
// the autoscaler what they serve. The replicas stay as they are: no autoscaler follows.
func TestPredictions(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long form: figures need minutes of load")
	}
	s := newSystem(t, stack.Options{Tag: tag, Servers: 2, Odd: []string{"--speed=0.5"}})
	s.install("prometheus.metricsWindow=1m", "optimization.interval=10s", "plan.ttftPercentile=0")
	s.apply("prometheus.yaml", "SCRAPE", "5s")
	s.apply("variants.yaml", "MODEL", stack.Model, "FAST", fast, "SLOW", slow)
	s.rolledOut(autoscaler)
	stop := s.load(chatload.Options{Rate: 8, MaxTokens: 150, Prompts: chatload.Prompts{OwnTokens: 1000, Seed: 9}})
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		for _, variant := range []string{fast, slow} {
			for _, f := range figures {
				_, _ = s.compare(collect, variant, f)
			}
		}
	}, kubetest.Patience, tick)
	const times = 12 // a window is a minute
	agreed := map[string]int{}
	for range times {
		time.Sleep(10 * time.Second) // a window of load: figures of the next pass
		for _, variant := range []string{fast, slow} {
			for _, f := range figures {
				predicted, measured := s.compare(t, variant, f)
				t.Logf("%s %s: predicted %.1f ms, measured %.1f ms", variant, f.predicted, 1e3*predicted, 1e3*measured)
				if math.Abs(predicted/measured-1) <= statedError {
					agreed[variant+" "+f.predicted]++
				}
			}
		}
	}
	for _, variant := range []string{fast, slow} {
		for _, f := range figures {
			assert.GreaterOrEqual(t, agreed[variant+" "+f.predicted], times-2, "%s %s", variant, f.predicted)
		}
	}
	report := stop()
	assert.Zero(t, report.Failed(), "%v %v", report.Failures, report.Examples)
}

// statedError is how far predictions of measured capacities may be from what servers show: docs/services/variant-autoscaler-measured.md.
const statedError = 0.25

// figure is a series that a plan predicts, and the histogram of the servers that has what they show.
type figure struct{ predicted, measured string }

var figures = []figure{ //nolint:gochecknoglobals // constant
	{"wva_predicted_ttft_seconds", "vllm:time_to_first_token_seconds"},
	{"wva_predicted_itl_seconds", "vllm:inter_token_latency_seconds"},
}

// compare returns a figure of a variant in seconds: predicted, and the mean of the last minute.
func (s *system) compare(t require.TestingT, variant string, f figure) (predicted, measured float64) {
	value := func(expr string) float64 {
		value, found, err := s.query(s.t.Context(), expr)
		require.NoError(t, err)
		require.True(t, found, expr)
		return value
	}
	pods := `{pod=~"` + variant + `-[0-9a-f]+-[a-z0-9]+"}[1m]`
	return value(f.predicted + `{variant_name="` + variant + `"}`),
		value("sum(rate(" + f.measured + "_sum" + pods + "))/sum(rate(" + f.measured + "_count" + pods + "))")
}
