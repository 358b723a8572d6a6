//go:build long

package flow

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/debugpage"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/externalscaler"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/metrics"
	"fairlead.dev/services/variant-autoscaler/internal/pass"
	"fairlead.dev/services/variant-autoscaler/internal/report"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	fleetVariants   = 10_000
	fleetNodes      = 2_000
	cardsOfNode     = 8
	variantsOfModel = 2
	// namespaceSize is the most variants of a namespace.
	namespaceSize = 1_000
	// mostMemory is the heap that all of it may take.
	mostMemory = 150e6
)

// declared is a VariantAutoscaling with a status as the program writes it.
const declared = `
apiVersion: llmd.ai/v1alpha1
kind: VariantAutoscaling
metadata: {name: NAME, namespace: models, uid: UID, resourceVersion: "VERSION", generation: 3, creationTimestamp: "2026-11-01T12:00:00Z"}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: NAME}, modelID: MODEL, accelerator: H100, acceleratorCount: 1, variantCost: "20.5", minReplicas: 1, maxReplicas: 20}
status:
  observedGeneration: 3
  startSeconds: 140
  decision: Optimal
  currentAlloc: {numReplicas: 2}
  predicted: {ttft: 812ms, itl: 24.1ms, utilization: 73%}
  actuation: {applied: true}
  desiredOptimizedAlloc: {accelerator: H100, numReplicas: 2, lastRunTime: "2026-11-01T12:00:00Z", lastUpdate: {updateTime: "2026-11-01T12:00:00Z", numReplicasChanged: 1, reason: Optimal}}
  conditions: [CONDITIONS]`

// fleet answers the watches of informers with the objects of a large cluster, and Prometheus with loads. It implements http.RoundTripper.
type fleet struct {
	templates map[string]string // JSON by resource
	counts    map[string]int
	settings  *settings.Settings
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	read := func(file string) string {
		text, err := os.ReadFile("../../internal/informers/testdata/" + file)
		require.NoError(t, err)
		return string(text)
	}
	var all []string
	for _, kind := range []string{"Ready", "Applied", "TargetResolved", "DeploymentTargetConflict", "MetricsAvailable", "OptimizationReady", "CapacityLimited", "BoundsBinding"} {
		all = append(all, fmt.Sprintf(`{type: %s, status: "True", reason: Reason%[1]s, message: "2 replicas are part of the cheapest plan that serves the demand", `+
			`observedGeneration: 3, lastTransitionTime: "2026-11-01T12:00:00Z"}`, kind))
	}
	f := &fleet{templates: map[string]string{}, counts: map[string]int{
		"variantautoscalings": fleetVariants, "deployments": fleetVariants, "nodes": fleetNodes, "pods": fleetNodes * cardsOfNode,
	}, settings: settings.NewBuilder(settings.Options{}).Settings()}
	for resource, text := range map[string]string{
		"variantautoscalings": strings.Replace(declared, "CONDITIONS", strings.Join(all, ", "), 1),
		"deployments":         read("deployment.yaml"), "nodes": read("node.yaml"), "pods": read("pod.yaml"),
	} {
		if resource != "nodes" { // pods of one card each
			text = strings.ReplaceAll(text, `nvidia.com/gpu: "8"`, `nvidia.com/gpu: "1"`)
		}
		object, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		f.templates[resource] = string(object)
	}
	return f
}

// ServerResourcesForGroupVersionWithContext says that the cluster has all kinds.
func (*fleet) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{}
	for _, resource := range []string{"variantautoscalings", "horizontalpodautoscalers", "deployments", "statefulsets", "pods", "namespaces", "nodes", "inferencepools"} {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource})
	}
	return list, nil
}

// RoundTrip answers a watch that begins with all objects.
func (f *fleet) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); q.Get("watch") != "true" || q.Get("sendInitialEvents") != "true" {
		return nil, fmt.Errorf("unexpected request: %s %s", r.Method, r.URL)
	}
	body, to := io.Pipe()
	go func() {
		w := bufio.NewWriter(to)
		resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		for n := range f.counts[resource] {
			_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", objectOf(resource, f.templates[resource], n))
		}
		_, _ = fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"99999","annotations":{%q:"true"}}}}`+"\n",
			metav1.InitialEventsAnnotationKey)
		_ = w.Flush()
		<-r.Context().Done()
		_ = to.Close()
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
}

// objectOf returns an object of the fleet. Pods are on all nodes, and belong to all variants.
func objectOf(resource, template string, n int) string {
	variant := n % fleetVariants
	owner := fmt.Sprintf("chat-%05d", variant)
	name := map[string]string{"pods": fmt.Sprintf("%s-7d9c5b6f88-%05d", owner, n), "nodes": fmt.Sprintf("node-%05d", n)}[resource]
	if name == "" {
		name = owner
	}
	return strings.NewReplacer(
		"OWNER", owner, "NAME", name, "UID", fmt.Sprintf("5a0c1c3e-6f0e-4f0b-9c3b-%012d", n), "VERSION", strconv.Itoa(n+1),
		"MODEL", fmt.Sprintf("meta/llama-%05d", variant/variantsOfModel), `"namespace":"models"`, fmt.Sprintf(`"namespace":"models-%02d"`, variant/namespaceSize),
		"10.0.12.34", fmt.Sprintf("node-%05d", n/cardsOfNode),
	).Replace(template)
}

func (f *fleet) Settings() *settings.Settings { return f.settings }

func (f *fleet) Collector(*settings.Settings) (pass.Collector, error) { return f, nil }

// Collect says that each replica serves some requests, and how fast.
func (*fleet) Collect(_ context.Context, now time.Time, groups []collect.Group) []collect.Result {
	all := make([]collect.Result, len(groups))
	for i := range groups {
		all[i].Load = snapshot.Load{State: snapshot.Found, Rate: int64(2e6 + i), Input: 1000, Output: 200}
		for range groups[i].Variants {
			all[i].Variants = append(all[i].Variants, collect.VariantResult{Sample: &snapshot.Sample{
				Time: now, Window: time.Minute, Replicas: 2, Rate: 1, Input: 1000, Output: 200, Running: float64(5 + i%7), Prefill: 90, TTFT: 100, ITL: 20, KVUsage: 0.3, KVTokens: 200_000,
			}})
		}
	}
	return all
}

func (*fleet) ObservePart(string, time.Duration) {}

func (*fleet) Event(*corev1.ObjectReference, string, string, string) {}

func (*fleet) Write(context.Context, *report.StatusInput) (report.WriteResult, error) {
	return report.Unchanged, nil
}

// start returns the informers when they have all objects, and the reader of queues.
func (f *fleet) start(t *testing.T) (*informers.Informers, *informers.QueueReader) {
	t.Helper()
	client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "http://api.test", QPS: -1}, &http.Client{Transport: f})
	require.NoError(t, err)
	i := informers.New(informers.Params{Params: kit.Params{Log: zap.NewNop(), Client: client, Discovery: f, Interval: time.Hour}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	i.WatchInventory()
	go func() {
		defer close(ended)
		i.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	require.Eventually(t, func() bool { return len(i.Unsynced()) == 0 }, kubetest.Patience, 50*time.Millisecond)
	return i, informers.NewQueueReader(client)
}

// TestMemoryOfAFleet: the program takes less than 150 MB for 10 000 variants with loads, and 2000 nodes with their pods.
func TestMemoryOfAFleet(t *testing.T) {
	before := heap()
	f := newFleet(t)
	i, queues := f.start(t)
	caches := heap()
	m := metrics.New(prometheus.NewRegistry(), "")
	table, page := externalscaler.NewTable(), debugpage.New(debugpage.Params{Log: zap.NewNop(), Clock: clock.RealClock{}})
	publisher := report.New(report.Params{
		Log: zap.NewNop(), Autoscalers: []report.Autoscaler{m, table}, Meter: m, Page: page, Record: func(*decision.Record) error { return nil }, WriteStatus: f.Write, Event: f.Event,
	})
	now := time.Now()
	passes := pass.New(pass.Params{
		Options: pass.Options{Settings: snapshot.Settings{Split: "observed", Percentile: 90, HeadroomPercent: 10, SavingPercent: 5}, Window: 5 * time.Minute, Rates: time.Minute, Limiter: true},
		Log:     zap.NewNop(), World: i.Caches, LocalQueues: queues.BeginPass, Configuration: f.Settings, Prometheus: f.Collector, Publisher: publisher, ObservePart: f.ObservePart, Now: func() time.Time { return now },
	})
	const rounds = 8 // the stabilization window, and more
	for range rounds {
		_, variants, err := passes.RunPass(t.Context())
		require.NoError(t, err)
		require.Equal(t, fleetVariants, variants)
		now = now.Add(time.Minute)
	}
	used := heap() - before
	t.Logf("%.1f MB: %.1f MB in caches, %.1f MB of decisions", float64(used)/1e6, float64(caches-before)/1e6, float64(used-(caches-before))/1e6)
	assert.Less(t, used, uint64(mostMemory))
	runtime.KeepAlive([]any{passes, publisher, table, page, m, i})
}

// heap returns the size of the live heap.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // of what finalizers and pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
