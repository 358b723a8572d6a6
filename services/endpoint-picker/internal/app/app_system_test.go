//go:build system

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

const tick = 5 * time.Millisecond

// apiServer is as much of Kubernetes' API as the picker uses: one pool and one pod, which never change, and Events.
func apiServer(t *testing.T, target netip.AddrPort, events chan<- corev1.Event) *httptest.Server {
	t.Helper()
	labels := map[string]string{"app": "model"}
	pool := inferencev1.InferencePool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "7", ResourceVersion: "1"}}
	pool.Spec.Selector.MatchLabels = map[inferencev1.LabelKey]inferencev1.LabelValue{"app": "model"}
	pool.Spec.TargetPorts = []inferencev1.Port{{Number: inferencev1.PortNumber(target.Port())}}
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "model-0", UID: "1", ResourceVersion: "1", Labels: labels},
		Status: corev1.PodStatus{
			PodIP: target.Addr().String(), Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	list := metav1.ListMeta{ResourceVersion: "1"}
	answers := map[string]any{
		"/apis/inference.networking.k8s.io/v1": metav1.APIResourceList{
			GroupVersion: "inference.networking.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "inferencepools", Namespaced: true, Kind: "InferencePool"}},
		},
		"/apis/inference.networking.k8s.io/v1/namespaces/ns/inferencepools": inferencev1.InferencePoolList{ListMeta: list, Items: []inferencev1.InferencePool{pool}},
		"/api/v1/namespaces/ns/pods":                                        corev1.PodList{ListMeta: list, Items: []corev1.Pod{pod}},
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := answers[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/api/v1/namespaces/ns/events":
			var event corev1.Event
			body, _ := io.ReadAll(r.Body)
			_, _, _ = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &event)
			events <- event
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(event)
		case strings.HasSuffix(r.URL.Path, "/v1alpha2"): // a group that nobody installed
			w.WriteHeader(http.StatusNotFound)
		case r.Method == http.MethodPost:
			review(w, r)
		case !known || r.Method != http.MethodGet:
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Query().Has("sendInitialEvents"): // as servers without WatchList do
			w.WriteHeader(http.StatusUnprocessableEntity)
			_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
		case r.URL.Query().Has("watch"):
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			_ = json.NewEncoder(w).Encode(answer)
		}
	}))
	server.Listener = &outage{Listener: server.Listener, noticed: make(chan struct{}, 1)}
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// outage is a listener that closes new connections while it lasts.
type outage struct {
	net.Listener

	lasts   atomic.Bool
	noticed chan struct{} // gets one if a connection was closed
}

func (o *outage) Accept() (net.Conn, error) {
	for {
		conn, err := o.Listener.Accept()
		if err != nil || !o.lasts.Load() {
			return conn, err
		}
		if err := conn.Close(); err != nil {
			return nil, err
		}
		select {
		case o.noticed <- struct{}{}:
		default:
		}
	}
}

// rig is a picker that runs, and what it runs against.
type rig struct {
	*parts

	clock   *clocktesting.FakeClock // nil for the clock of the machine
	api     *httptest.Server
	events  chan corev1.Event
	target  string
	logs    *zaptest.ObservedLogs
	stop    context.CancelFunc
	stopped chan error
}

// newRig runs a picker of an InferencePool.
func newRig(t *testing.T, drain config.Drain, changes ...func(cfg *config.Config)) *rig {
	t.Helper()
	r := &rig{}
	r.ofPool(t, drain, changes...)
	return r
}

// newSlowRig runs a picker of an InferencePool whose drain begins with a delay until the test ends it.
func newSlowRig(t *testing.T) (r *rig, endDelay func()) {
	t.Helper()
	r = &rig{clock: clocktesting.NewFakeClock(time.Now())}
	r.ofPool(t, config.Drain{Delay: time.Second, Timeout: kubetest.Patience})
	return r, func() {
		require.Eventually(t, r.clock.HasWaiters, kubetest.Patience, tick)
		r.clock.Step(time.Second)
	}
}

func (r *rig) ofPool(t *testing.T, drain config.Drain, changes ...func(cfg *config.Config)) {
	t.Helper()
	r.target, r.stopped, r.events = newModel(t), make(chan error, 1), make(chan corev1.Event, 8)
	r.api = apiServer(t, netip.MustParseAddrPort(r.target), r.events)

	cfg := config.Default()
	cfg.Kube.Kubeconfig = kubeconfig(t, r.api.URL)
	cfg.Pool.Name.Namespace, cfg.Pool.Name.Name = "ns", "pool"
	cfg.Drain = drain
	r.start(t, cfg, changes...)
}

// kubeconfig returns the path of one for this server.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}]}`, server), 0o600))
	return path
}

// newModel returns the address of a model server.
func newModel(t *testing.T) string {
	t.Helper()
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "vllm:num_requests_running 1\n")
	}))
	t.Cleanup(model.Close)
	return strings.TrimPrefix(model.URL, "http://")
}

// start runs the picker until the test ends.
func (r *rig) start(t *testing.T, cfg *config.Config, changes ...func(cfg *config.Config)) {
	t.Helper()
	cfg.GRPC = config.GRPC{}
	cfg.HTTP.MetricsAddress, cfg.HTTP.HealthAddress = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Metrics.Auth = false
	for _, change := range changes {
		change(cfg)
	}

	core, logs := zaptest.New(zap.InfoLevel)
	r.logs = logs
	var err error
	r.parts, err = newParts(cfg, zap.New(core))
	require.NoError(t, err)
	if r.clock != nil {
		r.Clock = r.clock
	}
	r.Reloader.SetPreparer(r.prepareConfig)
	require.NoError(t, r.Reloader.LoadFirst(t.Context(), nil))
	require.NoError(t, r.openListeners())
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.stopped <- r.runParts(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	require.Eventually(t, func() bool { return r.get(t, r.HTTP.HealthAddress(), "/readyz") == "ok\n" }, kubetest.Patience, tick)
}

func (r *rig) get(t *testing.T, address, path string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + path)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

// connect opens a connection to one of the picker's gRPC servers.
func connect(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	conn, err := grpc.NewClient("passthrough:127.0.0.1:"+port, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

func (r *rig) gateway(t *testing.T) extprocv3.ExternalProcessorClient {
	t.Helper()
	return extprocv3.NewExternalProcessorClient(connect(t, r.ExtProcListener.ListenAddress()))
}

func (r *rig) serving(t *testing.T) bool {
	t.Helper()
	answer, err := healthv1.NewHealthClient(connect(t, r.HealthListener.ListenAddress())).Check(t.Context(),
		&healthv1.HealthCheckRequest{Service: "readiness"})
	require.NoError(t, err)
	return answer.GetStatus() == healthv1.HealthCheckResponse_SERVING
}

// open sends a request and returns its stream once the endpoint is picked.
func (r *rig) open(t *testing.T, client extprocv3.ExternalProcessorClient) extprocv3.ExternalProcessor_ProcessClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), kubetest.Patience)
	t.Cleanup(cancel)
	stream, err := client.Process(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: envoytest.Headers("x-request-id", "id"), EndOfStream: true},
	}}))
	reply, err := stream.Recv()
	require.NoError(t, err)
	headers := reply.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()
	require.Len(t, headers, 1)
	assert.Equal(t, r.target, string(headers[0].GetHeader().GetRawValue()))
	return stream
}

// respond sends a piece of the response and takes its echo.
func respond(t *testing.T, stream extprocv3.ExternalProcessor_ProcessClient, end bool) {
	t.Helper()
	require.NoError(t, stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{
		ResponseBody: &extprocv3.HttpBody{Body: []byte("token"), EndOfStream: end},
	}}))
	reply, err := stream.Recv()
	require.NoError(t, err)
	assert.Equal(t, end, reply.GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetEndOfStream())
}

func TestPickerFromStartToDrain(t *testing.T) {
	t.Parallel()
	r, endDelay := newSlowRig(t)
	require.Eventually(t, func() bool { return r.serving(t) }, kubetest.Patience, tick)
	before := r.gateway(t)
	stream := r.open(t, before)
	respond(t, stream, false)

	r.stop()
	require.Eventually(t, func() bool { return !r.serving(t) }, kubetest.Patience, tick, "unready at once")
	assert.Contains(t, r.get(t, r.HTTP.HealthAddress(), "/readyz"), "the picker is draining")
	assert.Equal(t, "ok\n", r.get(t, r.HTTP.HealthAddress(), "/healthz"), "and alive")
	late := r.open(t, before) // in the delay: the news has yet to spread

	endDelay()
	require.Eventually(t, func() bool {
		conn, err := net.DialTimeout("tcp", r.ExtProcListener.ListenAddress(), kubetest.Patience)
		if err == nil {
			require.NoError(t, conn.Close())
		}
		return err != nil
	}, kubetest.Patience, tick, "then nothing new is accepted")
	for range 10 {
		respond(t, stream, false)
		respond(t, late, false)
	}
	respond(t, stream, true)
	require.NoError(t, stream.CloseSend())
	require.Eventually(t, func() bool { return r.ExtProc.InFlight() < 2 }, kubetest.Patience, tick, "one of the two has ended")
	for range 10 {
		respond(t, late, false) // would be cut at the end of the drain
	}
	assert.Contains(t, r.get(t, r.HTTP.HealthAddress(), "/readyz"), "the picker is draining")
	assert.Empty(t, r.stopped, "a stream is open")
	respond(t, late, true)
	require.NoError(t, late.CloseSend())
	require.NoError(t, <-r.stopped)
	assert.Empty(t, r.logs.FilterLevelExact(zap.WarnLevel).All())
}

func TestDrainSwitchedOffCutsStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t, config.Drain{})
	stream := r.open(t, r.gateway(t))
	r.stop()
	require.NoError(t, <-r.stopped)
	_, err := stream.Recv()
	require.Error(t, err)
	cut := r.logs.FilterMessage("Cut streams still open at the end of the drain").All()
	require.Len(t, cut, 1)
	assert.EqualValues(t, 1, cut[0].ContextMap()["streams"])
}

func TestOutageOfTheAPIServerChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, config.Drain{Timeout: kubetest.Patience})
	down := r.api.Listener.(*outage)
	down.lasts.Store(true)
	r.api.CloseClientConnections()
	select {
	case <-down.noticed:
	case <-time.After(kubetest.Patience):
		t.Fatal("the picker does not notice the outage")
	}
	stream := r.open(t, r.gateway(t))
	respond(t, stream, true)
	require.NoError(t, stream.CloseSend())
	assert.Equal(t, "ok\n", r.get(t, r.HTTP.HealthAddress(), "/readyz"))

	metrics := r.get(t, r.HTTP.MetricsAddress(), "/metrics")
	for _, line := range []string{
		`fairlead_picker_picks_total{pool="ns/pool",result="picked"} 1`, `fairlead_picker_endpoints_ready{pool="ns/pool"} 1`,
		`fairlead_picker_pool_found{pool="ns/pool"} 1`,
		fmt.Sprintf("fairlead_picker_endpoint_picks_total{endpoint=%q,pod=\"model-0\",pool=\"ns/pool\",role=\"\"} 1", r.target),
	} {
		assert.Contains(t, metrics, line)
	}
}

func TestPickerOfASelection(t *testing.T) {
	t.Parallel()
	var asked []string
	var mu sync.Mutex
	r := &rig{target: newModel(t), stopped: make(chan error, 1)}
	target := netip.MustParseAddrPort(r.target)
	answer := apiServer(t, target, nil).Config.Handler
	r.api = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		asked = append(asked, req.URL.Path)
		mu.Unlock()
		answer.ServeHTTP(w, req)
	}))
	t.Cleanup(r.api.Close)
	cfg := config.Default()
	cfg.Kube.Kubeconfig = kubeconfig(t, r.api.URL)
	cfg.Pool.Name.Namespace = "ns"
	require.NoError(t, cfg.Pool.Selector.Set("app in (model)"))
	cfg.Pool.TargetPorts = config.Ports{target.Port()}
	r.start(t, cfg)
	stream := r.open(t, r.gateway(t))
	respond(t, stream, true)
	require.NoError(t, stream.CloseSend())
	mu.Lock()
	defer mu.Unlock()
	for _, path := range asked {
		assert.Equal(t, "/api/v1/namespaces/ns/pods", path, "no InferencePool, no discovery, no rules")
	}
}

func TestPickerWithoutKubernetes(t *testing.T) {
	t.Parallel()
	r := &rig{target: newModel(t), stopped: make(chan error, 1)}
	target := netip.MustParseAddrPort(r.target)
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	write := func(content string) {
		require.NoError(t, os.WriteFile(file+".new", []byte(content), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	write(fmt.Sprintf("endpoints: [{name: model-0, address: %s, port: %d}]", target.Addr(), target.Port()))
	cfg := config.Default()
	cfg.Kube.Kubeconfig = filepath.Join(t.TempDir(), "absent")
	cfg.Pool.File = file
	r.start(t, cfg)
	stream := r.open(t, r.gateway(t))
	respond(t, stream, true)
	require.NoError(t, stream.CloseSend())
	const gauge = "fairlead_picker_endpoints_file_last_reload_successful "
	assert.Contains(t, r.get(t, r.HTTP.MetricsAddress(), "/metrics"), gauge+"1")

	write("endpoints: [{name: model-0}]")
	require.Eventually(t, func() bool { return strings.Contains(r.get(t, r.HTTP.MetricsAddress(), "/metrics"), gauge+"0") }, kubetest.Patience, tick)
	stream = r.open(t, r.gateway(t))
	respond(t, stream, true)
	require.NoError(t, stream.CloseSend())

	r.target = newModel(t)
	target = netip.MustParseAddrPort(r.target)
	write(fmt.Sprintf("endpoints: [{name: model-1, address: %s, port: %d}]", target.Addr(), target.Port()))
	require.Eventually(t, func() bool {
		return strings.Contains(r.get(t, r.HTTP.MetricsAddress(), "/metrics"), fmt.Sprintf("endpoint=%q", r.target))
	}, kubetest.Patience, tick)
	stream = r.open(t, r.gateway(t))
	respond(t, stream, true)
	require.NoError(t, stream.CloseSend())
}

func TestPoolIsShown(t *testing.T) {
	t.Parallel()
	r := newRig(t, config.Drain{})
	page := r.get(t, r.HTTP.MetricsAddress(), "/metrics")
	assert.Contains(t, page, `llm_d_epp_ready_endpoints{name="pool"} 1`)
	assert.Contains(t, page, `fairlead_picker_speed_base_seconds{pool="ns/pool"} 0.01`)
	assert.NotContains(t, page, "inference_pool_")
	assert.Contains(t, r.get(t, r.HTTP.MetricsAddress(), "/debug/pools"), `"pod": "ns/model-0"`)
	assert.Contains(t, r.get(t, r.HTTP.MetricsAddress(), "/debug/pools.html"), "<td>ns/model-0")
	assert.Equal(t, "ok\n", r.get(t, r.HTTP.HealthAddress(), "/healthz"))
}

func TestRunNamesThePortThatIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	cfg := config.Default()
	cfg.Kube.Kubeconfig = kubeconfig(t, "http://127.0.0.1:1")
	cfg.HTTP.MetricsAddress, cfg.HTTP.HealthAddress = "0", taken.Addr().String()
	require.ErrorContains(t, Run(t.Context(), cfg, zap.NewNop()), "listen on --health-probe-bind-address")
}
