//go:build system

package flow

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// Sizes of the benchmark.
const (
	benchServices = 2000
	benchElse     = 10 // services with another Gateway
	benchWorkers  = 4
)

var services = schema.GroupVersionResource{Version: "v1", Resource: "services"}

// BenchmarkServices starts the program with 2 000 services without routes, and waits until the program has written all routes and
// conditions. It reports these metrics:
//
//	cold-s             time to write all routes and conditions
//	cold-ratio         cold-s, divided by the time of a bare client for the same writes
//	settled-writes     writes of the program in three seconds, after a pause of three seconds
//	event-ms           median time from a change of a Service's port to the change of its route
//	gateway-reconciles reconciles after a change of a Gateway that ten services use
//	cpu-s              CPU time of the program
//	rss-MB, peak-MB    resident memory of the program at the end, and its peak
//
// The program and the bare client have the same rate limit. The API server can sustain the rate in benchmark limited. The limit in
// benchmark unlimited has no effect, so the program, the API server and etcd compete for the CPU.
func BenchmarkServices(b *testing.B) {
	for name, qps := range map[string]int{"limited": 200, "unlimited": 5000} {
		b.Run(name, func(b *testing.B) { benchmarkServices(b, qps) })
	}
}

func benchmarkServices(b *testing.B, qps int) {
	r := newBenchRig(b, qps)
	before := r.writeBare()
	program := r.startProgram()
	cold := r.untilWritten(program)
	resume := program.pause() // exclude its work for the other services
	after := r.writeBare()
	resume()
	b.ReportMetric(2*cold.Seconds()/(before+after).Seconds(), "cold-ratio")
	b.ReportMetric(cold.Seconds(), "cold-s")

	b.Log("results of reconciles:", program.lines("fairlead_controller_reconcile_duration_seconds_count"),
		program.lines("fairlead_ingress_writes_total"))
	time.Sleep(3 * time.Second)
	count := program.metric("fairlead_ingress_writes_total")
	time.Sleep(3 * time.Second)
	b.ReportMetric(program.metric("fairlead_ingress_writes_total")-count, "settled-writes")
	b.ReportMetric(float64(r.medianOfEvents().Microseconds())/1000, "event-ms")

	const reconciles = "fairlead_controller_reconcile_duration_seconds_count"
	count = program.metric(reconciles)
	r.must(r.client.Resource(gateways).Namespace("gateways").Patch(b.Context(), "other", types.MergePatchType,
		[]byte(`{"spec":{"listeners":[{"name":"http","port":8080,"protocol":"HTTP","allowedRoutes":{"namespaces":{"from":"All"}}}]}}`),
		metav1.PatchOptions{}))
	time.Sleep(2 * time.Second)
	b.ReportMetric(program.metric(reconciles)-count, "gateway-reconciles")
	b.ReportMetric(program.metric("process_cpu_seconds_total"), "cpu-s")
	rss, peak := program.memory()
	b.ReportMetric(rss, "rss-MB")
	b.ReportMetric(peak, "peak-MB")
	b.ReportMetric(0, "ns/op")
}

var gateways = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}

// benchRig is an API server with many services.
type benchRig struct {
	*rig

	b    *testing.B
	qps  int
	bare dynamic.Interface // a client with the rate limits of the program
}

func newBenchRig(b *testing.B, qps int) *benchRig {
	b.Helper()
	r := &benchRig{
		b: b, qps: qps,
		rig: newPlainRig(b, benchCluster(b), ome.Release12,
			gatewayAPI+"overrides: [{selector: {matchLabels: {by: other}}, omeIngressGateway: gateways/other}]\n"),
	}
	config := rest.CopyConfig(r.cluster.RESTConfig())
	config.QPS, config.Burst = float32(qps), qps
	r.bare = dynamic.NewForConfigOrDie(config)
	config.QPS = -1 // no limit during the setup
	r.client = dynamic.NewForConfigOrDie(config)
	r.apply(gateway + "\n---\n" + strings.Replace(gateway[strings.Index(gateway, "---\n")+4:], "name: public", "name: other", 1))
	r.each(func(i int) {
		labels := map[string]any{}
		if i < benchElse {
			labels["by"] = "other"
		}
		u := r.create(ns, i, labels)
		u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "EngineReady", "status": "True"}}}
		r.must(r.client.Resource(isvc.Resource).Namespace(ns).UpdateStatus(b.Context(), u, metav1.UpdateOptions{}))
		r.must(r.client.Resource(services).Namespace(ns).Create(b.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Service",
			"metadata": map[string]any{
				"name": benchName(i) + "-engine", "namespace": ns,
				"labels": map[string]any{ome.LabelService: benchName(i), ome.LabelComponent: "engine"},
				"ownerReferences": []any{map[string]any{
					"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "name": benchName(i), "uid": string(u.GetUID()),
					"controller": true,
				}},
			},
			"spec": map[string]any{"ports": []any{map[string]any{"name": "http1", "port": int64(8080)}}},
		}}, metav1.CreateOptions{}))
	})
	return r
}

// benchCluster returns a cluster that no test has used.
func benchCluster(b *testing.B) *cluster.Cluster {
	b.Helper()
	c := cluster.Start(b, cluster.ControlPlaneOnly)
	prepare(b, c)
	return c
}

// create creates an InferenceService.
func (r *benchRig) create(namespace string, i int, labels map[string]any) *unstructured.Unstructured {
	return r.must(r.client.Resource(isvc.Resource).Namespace(namespace).Create(r.b.Context(), &unstructured.Unstructured{
		Object: map[string]any{
			"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "spec": map[string]any{"engine": map[string]any{}},
			"metadata": map[string]any{"name": benchName(i), "namespace": namespace, "labels": labels},
		},
	}, metav1.CreateOptions{}))
}

func benchName(i int) string { return fmt.Sprintf("chat-%04d", i) }

func (r *benchRig) must(u *unstructured.Unstructured, err error) *unstructured.Unstructured {
	require.NoError(r.b, err)
	return u
}

// each calls do for each service, with the same number of workers as the program.
func (r *benchRig) each(do func(i int)) {
	var workers sync.WaitGroup
	next := make(chan int)
	for range benchWorkers {
		workers.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range benchServices {
		next <- i
	}
	close(next)
	workers.Wait()
}

// writeBare returns the time that a bare client needs for the same writes, for services in another namespace.
func (r *benchRig) writeBare() time.Duration {
	route := unstructured.Unstructured{}
	require.NoError(r.b, route.UnmarshalJSON([]byte(benchRoute)))
	r.each(func(i int) { r.create("others", i, nil) })
	began := time.Now()
	r.each(func(i int) {
		u := route.DeepCopy()
		u.SetName(benchName(i))
		r.must(r.bare.Resource(render.HTTPRoutes).Namespace("others").Create(r.b.Context(), u, metav1.CreateOptions{}))
		r.must(r.bare.Resource(isvc.Resource).Namespace("others").Patch(r.b.Context(), benchName(i), types.JSONPatchType,
			[]byte(benchPatch), metav1.PatchOptions{}, "status"))
	})
	took := time.Since(began)
	for _, resource := range []schema.GroupVersionResource{render.HTTPRoutes, isvc.Resource} {
		require.NoError(r.b,
			r.client.Resource(resource).Namespace("others").DeleteCollection(r.b.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	}
	return took
}

const benchPatch = `[{"op":"add","path":"/status","value":{"conditions":[{"type":"fairlead.dev/Exposed","status":"Unknown","severity":` +
	`"Info","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"ParentStatusNotAvailable","message":"http://chat-0000.models.example.` +
	`com/; Gateway gateways/public: ParentStatusNotAvailable: no controller has looked at it yet"}]}}]`

const benchRoute = `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"x","namespace":"others",
  "annotations":{"fairlead.dev/applied":"AAAAAAAAAAAAAAAAAAAA"},
	"labels":{"fairlead.dev/component":"engine","fairlead.dev/inferenceservice":"chat-0000","fairlead.dev/slot":"entry"}},
	"spec":{"hostnames":["chat-0000.models.example.com"],"parentRefs":[{"group":"gateway.networking.k8s.io","kind":"Gateway",
	"namespace":"gateways","name":"public"}],
	"rules":[{"matches":[{"path":{"type":"PathPrefix","value":"/"}}],"filters":[{"type":"RequestHeaderModifier",
	"requestHeaderModifier":{"set":[{"name":"OMe-Isvc-Name","value":"chat-0000"},{"name":"OME-Isvc-Namespace","value":"models"}]}}],
	"backendRefs":[{"group":"","kind":"Service","name":"chat-0000-engine","port":8080}],"timeouts":{"request":"0s"}}]}}`

// program is the reconciler in a separate process.
type program struct {
	b       *testing.B
	pid     int
	metrics string
	began   time.Time
}

var listening = regexp.MustCompile(`"Started listening".*"flag":"metrics-bind-address","address":"([^"]*)"|"address":"([^"]*)","flag":` +
	`"metrics-bind-address"`)

func (r *benchRig) startProgram() *program {
	binary := filepath.Join(r.b.TempDir(), "ingress-reconciler")
	out, err := exec.CommandContext(r.b.Context(), "go", "build", "-ldflags", "-s -w", "-o", binary, "../..").CombinedOutput()
	require.NoError(r.b, err, string(out))
	p := &program{b: r.b, began: time.Now()}
	cmd := exec.Command(binary, "--kubeconfig", r.cluster.Kubeconfig, "--config-map", "fairlead/ours", "--leader-elect=false",
		"--metrics-bind-address", "127.0.0.1:0", "--health-probe-bind-address", "127.0.0.1:0", "--log-level", "info", "--enable-pprof",
		"--kube-api-qps", strconv.Itoa(r.qps), "--kube-api-burst", strconv.Itoa(r.qps), "--workers", strconv.Itoa(benchWorkers))
	stderr, err := cmd.StderrPipe()
	require.NoError(r.b, err)
	require.NoError(r.b, cmd.Start())
	p.pid = cmd.Process.Pid
	address := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				select {
				case address <- m[1] + m[2]:
				default:
				}
			}
		}
	}()
	r.b.Cleanup(func() {
		require.NoError(r.b, cmd.Process.Signal(os.Interrupt))
		<-ended
		require.NoError(r.b, cmd.Wait())
	})
	p.metrics = <-address
	return p
}

// pause suspends the program until resume is called.
func (p *program) pause() (resume func()) {
	require.NoError(p.b, syscall.Kill(p.pid, syscall.SIGSTOP))
	return func() { require.NoError(p.b, syscall.Kill(p.pid, syscall.SIGCONT)) }
}

// page returns the page with the metrics of the program.
func (p *program) page() string {
	request, err := http.NewRequestWithContext(p.b.Context(), http.MethodGet, "http://"+p.metrics+"/metrics", nil)
	require.NoError(p.b, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(p.b, err)
	defer func() { require.NoError(p.b, response.Body.Close()) }()
	text, err := io.ReadAll(response.Body)
	require.NoError(p.b, err)
	return string(text)
}

// metric returns the sum of the series of a metric whose labels match.
func (p *program) metric(name string, labels ...string) float64 {
	text := p.page()
	sum := 0.0
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(text, -1) {
		if len(labels) > 0 && !regexp.MustCompile(labels[0]).MatchString(m[1]) {
			continue
		}
		v, err := strconv.ParseFloat(m[2], 64)
		require.NoError(p.b, err)
		sum += v
	}
	return sum
}

// lines returns the series of a metric.
func (p *program) lines(name string) []string {
	return regexp.MustCompile(`(?m)^`+name+`.*$`).FindAllString(p.page(), -1)
}

// memory returns the current and the peak resident memory, in MB.
func (p *program) memory() (rss, peak float64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	require.NoError(p.b, err)
	value := func(name string) float64 {
		m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindStringSubmatch(string(text))
		require.NotNil(p.b, m)
		kb, err := strconv.ParseFloat(m[1], 64)
		require.NoError(p.b, err)
		return kb / 1000
	}
	return value("VmRSS"), value("VmHWM")
}

// untilWritten waits until the program has written a route and a condition for every service, and returns the time since its first
// write.
func (r *benchRig) untilWritten(p *program) time.Duration {
	var first time.Time
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		n := p.metric("fairlead_ingress_writes_total", `result="(created|updated)"`)
		if n > 0 && first.IsZero() {
			first = time.Now()
		}
		if n >= 2*benchServices { // a route and a condition for each service
			return time.Since(first)
		}
	}
	require.Fail(r.b, "the routes and conditions were not written in time")
	return 0
}

// medianOfEvents changes the ports of Services, one at a time, and returns the median time until the route changes.
func (r *benchRig) medianOfEvents() time.Duration {
	watch, err := r.client.Resource(render.HTTPRoutes).Namespace(ns).Watch(r.b.Context(),
		metav1.ListOptions{LabelSelector: render.LabelManagedBy})
	require.NoError(r.b, err)
	defer watch.Stop()
	var took []time.Duration
	for i := range 101 {
		name := benchName(100 + i)
		began := time.Now()
		_, err := r.client.Resource(services).Namespace(ns).Patch(r.b.Context(), name+"-engine", types.JSONPatchType,
			[]byte(`[{"op":"replace","path":"/spec/ports/0/port","value":9090}]`), metav1.PatchOptions{})
		require.NoError(r.b, err)
		ctx, cancel := context.WithTimeout(r.b.Context(), kubetest.Patience)
		for found := false; !found; {
			select {
			case e := <-watch.ResultChan():
				u, ok := e.Object.(*unstructured.Unstructured)
				found = ok && e.Type == "MODIFIED" && u.GetLabels()[render.LabelService] == name
			case <-ctx.Done():
				require.Fail(r.b, "no route was changed")
			}
		}
		cancel()
		took = append(took, time.Since(began))
		time.Sleep(5 * time.Millisecond)
	}
	slices.Sort(took)
	return took[len(took)/2]
}
