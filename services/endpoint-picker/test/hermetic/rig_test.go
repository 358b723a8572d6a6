//go:build system

package hermetic

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/endpoint-picker/internal/app"
	"fairlead.dev/services/endpoint-picker/internal/config"
)

const tick = 5 * time.Millisecond

// TestMain has more tests run side by side than there are processors: they wait for scrapes, most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(8, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// mode is where a picker has its endpoints from.
type mode string

const (
	byPool     mode = "pool"     // an InferencePool
	bySelector mode = "selector" // pods of a cluster without its CRD
	byFile     mode = "file"     // no cluster
)

var modes = []mode{byPool, bySelector, byFile}

// world is what a picker finds when it starts. The zero value is an InferencePool without a pod.
type world struct {
	mode   mode
	pages  []string            // of one model server each
	labels []map[string]string // of their pods, as far as they have any
	config string              // an EndpointPickerConfig
	flags  []string

	onePort bool // metrics are at the port of requests, whatever the engine's default is

	configFile string                       // the path of one, instead of config
	objects    map[string]map[string]object // by path and name
	absent     bool                         // the InferencePool
}

// rig is a picker that runs, and what it runs against.
type rig struct {
	t       testing.TB
	api     *apiServer // nil with a file
	servers []*modelServer
	file    string
	flags   []string
	logs    *zaptest.ObservedLogs
	gateway extprocv3.ExternalProcessorClient
	stop    context.CancelFunc
	stopped chan struct{} // closed when the picker has ended
}

// start runs a picker until the test ends, when nothing may be counted any more.
func start(t testing.TB, w world) *rig {
	t.Helper()
	r := build(t, w)
	r.await(func() bool { return r.get(r.health(), "/readyz") == "ok\n" }, "ready")
	r.scraped()
	t.Cleanup(r.settle)
	return r
}

// build runs a picker that may never be ready.
func build(t testing.TB, w world) *rig {
	t.Helper()
	r := &rig{t: t, servers: newModelServers(t, w.pages...)}
	r.flags = append([]string{
		"--grpc-port=0", "--grpc-health-port=0", "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0",
		"--secure-serving=false", "--drain-delay=0s", "--drain-timeout=20s",
		"--refresh-metrics-interval=20ms", "--refresh-metrics-idle-interval=50ms", configFlag(w),
	}, append(r.populate(w), w.flags...)...)
	if w.onePort {
		r.flags = append(r.flags, fmt.Sprintf("--model-server-metrics-port=%d", r.servers[0].address.Port()))
	}
	r.launch()
	return r
}

func configFlag(w world) string {
	if w.configFile != "" {
		return "--config-file=" + w.configFile
	}
	return "--config-text=" + w.config
}

// replica runs another picker in the same world.
func (r *rig) replica() *rig {
	r.t.Helper()
	other := &rig{t: r.t, api: r.api, servers: r.servers, file: r.file, flags: r.flags}
	other.launch()
	return other
}

// launch runs a picker as its command does.
func (r *rig) launch() {
	r.t.Helper()
	cfg, flags := config.Default(), pflag.NewFlagSet("endpoint-picker", pflag.ContinueOnError)
	cfg.AddFlags(flags)
	require.NoError(r.t, flags.Parse(config.DoubleDashes(flags, r.flags)))
	require.NoError(r.t, cfg.Complete(flags))
	core, logs := zaptest.New(zap.InfoLevel)
	r.logs, r.stopped = logs, make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() {
		defer close(r.stopped)
		assert.NoError(r.t, app.Run(ctx, cfg, zap.New(core)))
	}()
	r.t.Cleanup(func() {
		stop()
		<-r.stopped
	})
	listeners := 4 // those of every picker
	for _, enabled := range []bool{cfg.Replicas.IsEnabled(), cfg.Decision.IsEnabled(), cfg.Proxy.Address != ""} {
		if enabled {
			listeners++
		}
	}
	r.await(func() bool { return logs.FilterMessage("Started listening").Len() == listeners }, "started")
	r.gateway = extprocv3.NewExternalProcessorClient(r.dial("grpc-port"))
}

// populate makes the world, and returns the flags that name it.
func (r *rig) populate(w world) []string {
	t := r.t
	t.Helper()
	if w.mode == byFile {
		r.file = filepath.Join(t.TempDir(), "endpoints.json")
		r.writeFile(w.labels)
		return []string{"--endpoints-file=" + r.file}
	}
	r.api = newAPIServer(t)
	var port uint16 = 8000
	for i, s := range r.servers {
		port = s.address.Port()
		r.api.put(t, pathPods, podName(i), podObject(s.address.Addr().String(), true, labelsOf(w, i)))
	}
	flags := []string{"--kubeconfig=" + r.kubeconfig(), "--pool-namespace=ns", "--metrics-endpoint-auth=false"}
	if w.mode == bySelector {
		return append(flags, "--endpoint-selector=app=model", fmt.Sprintf("--endpoint-target-ports=%d", port))
	}
	if !w.absent {
		r.api.put(t, pathPools, "pool", poolObject(port))
	}
	for path, byName := range w.objects {
		for name, o := range byName {
			r.api.put(t, path, name, o)
		}
	}
	return append(flags, "--pool-name=pool")
}

func podName(i int) string { return fmt.Sprintf("model-%d", i) }

func labelsOf(w world, i int) map[string]string {
	if i < len(w.labels) {
		return w.labels[i]
	}
	return nil
}

// writeFile writes the servers to the file of endpoints.
func (r *rig) writeFile(labels []map[string]string) {
	endpoints := []object{}
	for i, s := range r.servers {
		endpoints = append(endpoints, object{
			"name": podName(i), "namespace": "ns", "address": s.address.Addr().String(), "port": s.address.Port(),
			"labels": labelsOf(world{labels: labels}, i),
		})
	}
	text, err := json.Marshal(object{"endpoints": endpoints})
	require.NoError(r.t, err)
	require.NoError(r.t, os.WriteFile(r.file, text, 0o600))
}

func (r *rig) kubeconfig() string {
	path := filepath.Join(r.t.TempDir(), "kubeconfig")
	require.NoError(r.t, os.WriteFile(path, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}]}`, r.api.url), 0o600))
	return path
}

// await waits for a condition. In contrast to require.Eventually it starts no goroutine, and looks at once.
func (r *rig) await(condition func() bool, what string, args ...any) {
	r.t.Helper()
	for deadline := time.Now().Add(kubetest.Patience); !condition(); time.Sleep(tick) {
		if time.Now().After(deadline) {
			r.t.Fatalf("never: "+what, args...)
		}
	}
}

// address returns where the picker listens for what a flag says.
func (r *rig) address(flag string) string {
	r.t.Helper()
	listening := r.logs.FilterMessage("Started listening").FilterField(zap.String("flag", flag))
	require.Equal(r.t, 1, listening.Len())
	_, port, err := net.SplitHostPort(listening.All()[0].ContextMap()["address"].(string))
	require.NoError(r.t, err)
	return "127.0.0.1:" + port
}

func (r *rig) health() string { return r.address("health-probe-bind-address") }

func (r *rig) dial(flag string, options ...grpc.DialOption) *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient("passthrough:"+r.address(flag), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, conn.Close()) })
	return conn
}

// from returns the rig with another gateway, which has its own address on the loopback network.
func (r *rig) from(address string, options ...grpc.DialOption) *rig {
	r.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	other := *r
	options = append(options, grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", to)
	}))
	other.gateway = extprocv3.NewExternalProcessorClient(r.dial("grpc-port", options...))
	return &other
}

// serving asks one of the gRPC health services.
func (r *rig) serving(service string) healthv1.HealthCheckResponse_ServingStatus {
	r.t.Helper()
	answer, err := healthv1.NewHealthClient(r.dial("grpc-health-port")).Check(r.t.Context(), &healthv1.HealthCheckRequest{Service: service})
	require.NoError(r.t, err)
	return answer.GetStatus()
}

func (r *rig) get(address, path string) string {
	r.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	response, err := client.Get("http://" + address + path)
	require.NoError(r.t, err)
	defer func() { require.NoError(r.t, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	require.NoError(r.t, err)
	return string(body)
}

// scraped waits until what servers show now is known: the second page from now on was asked for after the first was read.
// Without a server it is all of them.
func (r *rig) scraped(servers ...*modelServer) {
	r.t.Helper()
	if servers == nil {
		servers = r.servers
	}
	for _, s := range servers {
		seen := s.asked()
		r.await(func() bool { return s.asked() >= seen+2 }, "%s was scraped", s.address)
	}
}

// at returns the address of a model server, as gateways have it.
func (r *rig) at(i int) string { return r.servers[i].address.String() }

// metrics is a page of metrics.
type metrics map[string]*dto.MetricFamily

func (r *rig) metrics() metrics {
	r.t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(r.get(r.address("metrics-bind-address"), "/metrics")))
	require.NoError(r.t, err)
	return families
}

// sum adds up the gauges, or counters, or the counts of histograms of a family, of those that have these labels.
func (m metrics) sum(name string, labels ...string) float64 {
	total := 0.0
	for _, one := range m[name].GetMetric() {
		if !hasLabels(one, labels) {
			continue
		}
		total += one.GetGauge().GetValue() + one.GetCounter().GetValue() + float64(one.GetHistogram().GetSampleCount())
	}
	return total
}

// sampled adds up the sums of histograms.
func (m metrics) sampled(name string) float64 {
	total := 0.0
	for _, one := range m[name].GetMetric() {
		total += one.GetHistogram().GetSampleSum()
	}
	return total
}

// hasLabels takes names and values in turns.
func hasLabels(one *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		found := false
		for _, l := range one.GetLabel() {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}

// memoryOfGateways is the metric of the memory of gateways.
const memoryOfGateways = "fairlead_picker_request_bytes_buffered"

// counts are what must be zero at rest.
var counts = []string{
	"fairlead_picker_streams_in_flight", memoryOfGateways, "fairlead_picker_endpoint_requests_in_flight",
	"fairlead_picker_endpoint_prompt_tokens_owed", "llm_d_epp_request_running", "llm_d_epp_inflight_requests", "llm_d_epp_inflight_tokens",
}

// settle waits until nothing is counted any more.
func (r *rig) settle() {
	r.t.Helper()
	select {
	case <-r.stopped:
		return // it ended by itself, when it had nothing any more
	default:
	}
	if r.t.Failed() {
		return // its streams may be open
	}
	var left string
	r.await(func() bool {
		left = ""
		page := r.metrics()
		for _, name := range counts {
			n := page.sum(name)
			if name == memoryOfGateways && none(n) {
				n = 0
			}
			if n != 0 || page[name] == nil && mustBeThere(name) {
				left = fmt.Sprintf("%s %s=%g", left, name, n)
			}
		}
		if left != "" {
			runtime.GC() // frames that gRPC did not return count until then
		}
		return left == ""
	}, "at rest, but %s", lazy(func() string { return cmp.Or(left, "nothing") }))
}

// mustBeThere reports whether a count is on every page: others are of endpoints or of requests.
func mustBeThere(name string) bool {
	return name == "fairlead_picker_streams_in_flight" || name == memoryOfGateways
}

// lazy is a text that is made when it is printed.
type lazy func() string

func (l lazy) String() string { return l() }
