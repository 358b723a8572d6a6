package pools

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	inferencefake "sigs.k8s.io/gateway-api-inference-extension/client-go/clientset/versioned/fake"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/servingcert"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/discovery"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/tracing"
)

// moment is longer than every interval of the code under test, on the clock of a bubble.
const moment = time.Minute

func TestMain(m *testing.M) {
	kubetest.DropErrorBackoff()
	goleak.VerifyTestMain(m)
}

// testParams returns the parameters of a Registry without a cluster.
func testParams(cfg *config.Config) Params {
	return Params{
		Config: cfg, Log: zap.NewNop(), Clock: clock.RealClock{}, Registry: prometheus.NewRegistry(),
		Plugins: func() *pluginconfig.Config { return pluginconfig.Default(pluginconfig.Options{}) },
		Events:  NewEvents(nil, nil, nil), Tracer: tracing.New(tracing.Off(), nil, ""),
	}
}

// newFilePool returns a Registry of an endpoints file.
func newFilePool(t *testing.T, changes ...func(p *Params)) *Registry {
	t.Helper()
	p := testParams(config.Default())
	p.Config.Pool.File = filepath.Join(t.TempDir(), "endpoints.yaml")
	require.NoError(t, os.WriteFile(p.Config.Pool.File, []byte("endpoints: []"), 0o600))
	for _, change := range changes {
		change(&p)
	}
	r, err := New(p)
	require.NoError(t, err)
	return r
}

// run runs parts until the test ends.
func run(t *testing.T, parts ...func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, part := range parts {
		running.Go(func() { part(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func TestOnlyPoolGetsAllRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFilePool(t)
		require.ErrorIs(t, r.CheckReady(), pool.ErrNotSynced)
		assert.Same(t, r.only, r.FindPool(t.Context()))
		assert.Same(t, r.only, r.FindHost("any.example.com:80"))
		assert.Same(t, r.only, r.FindTitle("servers"))
		assert.Nil(t, r.FindTitle("other"))
		assert.Equal(t, "servers", r.DebugPools()[0].Title)
		r.params.Events.Event(corev1.EventTypeNormal, "Reason", "no InferencePool") // goes nowhere

		run(t, r.Run)
		time.Sleep(moment)
		require.NoError(t, r.CheckReady())
		r.namespaces["ns"] = &poolNamespace{rules: discovery.NewRules(discovery.RulesParams{Log: zap.NewNop()})}
		require.ErrorIs(t, r.CheckReady(), discovery.ErrRulesNotRead)
	})
}

// writeAuthority writes a new certificate authority to a file.
func writeAuthority(t *testing.T, path string) *x509.CertPool {
	t.Helper()
	s, err := servingcert.SelfSigned(servingcert.Params{Log: zap.NewNop()}, "authority", servingcert.Options{}, time.Now())
	require.NoError(t, err)
	c, err := s.TLS(servingcert.Options{}).GetCertificate(nil)
	require.NoError(t, err)
	content := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
	require.NoError(t, os.WriteFile(path, content, 0o600))
	authorities := x509.NewCertPool()
	require.True(t, authorities.AppendCertsFromPEM(content))
	return authorities
}

func TestServersGetRotatedAuthorities(t *testing.T) {
	t.Parallel()
	p := testParams(config.Default())
	from := &p.Config.Pool.Servers
	from.URLs, from.CAFile = []string{"https://10.0.0.1:8443"}, filepath.Join(t.TempDir(), "ca.pem")
	first := writeAuthority(t, from.CAFile)
	r, err := New(p)
	require.NoError(t, err)
	assertAuthorities := func(want *x509.CertPool) {
		t.Helper()
		endpoints, err := r.servers.ReadPool()
		require.NoError(t, err)
		assert.True(t, want.Equal(endpoints[0].TLS.RootCAs))
		assert.Equal(t, "10.0.0.1", endpoints[0].TLS.ServerName)
	}
	assertAuthorities(first)

	second := writeAuthority(t, from.CAFile)
	publish, err := r.PrepareServers()
	require.NoError(t, err)
	assertAuthorities(first)
	publish()
	assertAuthorities(second)

	require.NoError(t, os.WriteFile(from.CAFile, nil, 0o600))
	_, err = r.PrepareServers()
	require.ErrorContains(t, err, "--servers-ca-file: read caCertPath: ")
	assertAuthorities(second)
}

// testCluster is a cluster with InferencePools.
type testCluster struct {
	core      *fake.Clientset
	inference *inferencefake.Clientset
}

func newTestCluster() *testCluster {
	c := &testCluster{core: fake.NewClientset(), inference: inferencefake.NewSimpleClientset()}
	c.core.Resources = []*metav1.APIResourceList{{
		GroupVersion: discovery.PoolGroup + "/v1", APIResources: []metav1.APIResource{{Name: "inferencepools", Kind: "InferencePool", Namespaced: true}},
	}}
	return c
}

// createPool creates an InferencePool that refers to a port of the Service epp.
func (c *testCluster) createPool(t *testing.T, namespace, name string, created int64, port inferencev1.PortNumber) {
	t.Helper()
	p := &inferencev1.InferencePool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(created, 0)}}
	p.Spec.EndpointPickerRef = &inferencev1.EndpointPickerRef{Name: "epp", Port: &inferencev1.Port{Number: port}}
	_, err := c.inference.InferenceV1().InferencePools(namespace).Create(t.Context(), p, metav1.CreateOptions{})
	require.NoError(t, err)
}

// serveService runs a Registry of the InferencePools that refer to the Service epp.
func (c *testCluster) serveService(t *testing.T) (*Registry, *zaptest.ObservedLogs) {
	t.Helper()
	cfg := config.Default()
	cfg.Pool.Service = objectName("ns", "epp")
	return c.servePools(t, cfg)
}

// servePools runs a Registry of the InferencePools that a configuration selects.
func (c *testCluster) servePools(t *testing.T, cfg *config.Config) (*Registry, *zaptest.ObservedLogs) {
	t.Helper()
	core, logs := zaptest.New(zap.InfoLevel)
	p := testParams(cfg)
	p.Log, p.Clients = zap.New(core), Clients{Core: c.core, Inference: c.inference, Dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())}
	p.Events = NewEvents(c.core, p.Log, p.Clock)
	r, err := New(p)
	require.NoError(t, err)
	require.ErrorIs(t, r.CheckReady(), errPoolsNotRead)
	run(t, r.Run, p.Events.Run)
	return r, logs
}

func objectName(namespace, name string) config.ObjectName {
	return config.ObjectName{ObjectName: cache.NewObjectName(namespace, name)}
}

// reasons returns the reasons of Events by InferencePool.
func (c *testCluster) reasons(t *testing.T) map[string]string {
	t.Helper()
	events, err := c.core.CoreV1().Events("ns").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	found := map[string]string{}
	for i := range events.Items {
		found[events.Items[i].InvolvedObject.Name] = events.Items[i].Reason
	}
	return found
}

func TestPoolsComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster()
		c.createPool(t, "ns", "a", 1, 9001)
		r, logs := c.serveService(t)
		time.Sleep(moment)
		require.NoError(t, r.CheckReady())
		a := r.FindTitle("ns/a")
		assert.Same(t, a, r.FindHost("epp.ns.svc:9001"))
		assert.Equal(t, 1, logs.FilterMessage("Started pool").Len())
		_, refusal := r.FindHost("epp.ns.svc:9002").PlaceRequest(t.Context(), &request.PickInput{})
		require.NotNil(t, refusal)

		c.createPool(t, "ns", "b", 2, 9002)
		c.createPool(t, "ns", "c", 3, 9001)
		time.Sleep(moment)
		assert.Same(t, a, r.FindHost("epp.ns.svc:9001"), "the older pool keeps its address")
		assert.Same(t, r.FindTitle("ns/b"), r.FindHost("epp.ns.svc:9002"))
		assert.Equal(t, map[string]string{"c": reasonShadowed}, c.reasons(t))
		assert.Len(t, r.sortedPools(), 2)
		assert.Equal(t, 3, testutil.CollectAndCount(r.params.Registry, "fairlead_picker_pools_refused"))

		require.NoError(t, c.inference.InferenceV1().InferencePools("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		time.Sleep(moment)
		assert.Nil(t, r.FindTitle("ns/a"))
		assert.Same(t, r.FindTitle("ns/c"), r.FindHost("epp.ns.svc:9001"))
		assert.Equal(t, 1, logs.FilterMessage("Stopped pool").Len())
		require.NoError(t, r.CheckReady())
	})
}

func TestNamespaceWhosePodsCannotBeListedAffectsOnlyItsPools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster()
		c.createPool(t, "ns", "a", 1, 9001)
		c.createPool(t, "other", "b", 2, 9001)
		c.core.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return a.GetNamespace() == "other", nil, apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
		})
		cfg := config.Default()
		cfg.Pool.Names = []config.ObjectName{objectName("ns", "a"), objectName("other", "b")}
		r, _ := c.servePools(t, cfg)
		time.Sleep(startLimit / 2)
		require.ErrorIs(t, r.CheckReady(), pool.ErrNotSynced, "the list may succeed soon")
		served := r.sortedPools()
		require.Len(t, served, 2)
		require.NoError(t, served[0].CheckReady())
		time.Sleep(startLimit)
		require.NoError(t, r.CheckReady())
		require.ErrorIs(t, served[1].CheckReady(), pool.ErrNotSynced)
	})
}

// noEndpoints is the source of an empty pool.
type noEndpoints struct{}

func (noEndpoints) ReadPool() ([]endpoint.Description, error) { return nil, nil }
func (noEndpoints) WaitForSync(context.Context) bool          { return true }
func (noEndpoints) OnChange(func())                           {}

// TestPoolsShareTheMemoryForPrefixes fills the indexes of several pools.
func TestPoolsShareTheMemoryForPrefixes(t *testing.T) {
	t.Parallel()
	r := newFilePool(t, func(p *Params) { p.Config.Prefixes.MaxBytes = 256 << 10 })
	id := endpoint.Identity{Pod: "model-server", Address: netip.MustParseAddrPort("10.0.0.1:8000")}
	held := 0
	for _, name := range []string{"a", "b", "c", "d"} {
		x := r.addPool("ns/"+name, types.NamespacedName{}, noEndpoints{}).estimator
		e := x.NewEndpoint(endpoint.Description{Identity: id}, time.Now())
		for i := range 1000 {
			p := &estimate.Prompt{Chain: &prefixindex.Chain{}}
			p.Chain.Reset(1, 16)
			text := make([]byte, 16*prefixindex.BlockTokens*prefixindex.BytesPerToken)
			binary.BigEndian.PutUint64(text, uint64(i))
			p.Chain.Write(text)
			x.ConfirmPlacement(x.RecordPlacement(p, e, &estimate.Expectation{}))
		}
	}
	for _, p := range r.sortedPools() {
		held += p.estimator.IndexStats().Bytes
	}
	assert.Positive(t, held)
	assert.LessOrEqual(t, held, int(r.params.Config.Prefixes.MaxBytes))
}

// twoEndpoints is the source of a pool with two endpoints.
type twoEndpoints struct{ noEndpoints }

func (twoEndpoints) ReadPool() ([]endpoint.Description, error) {
	first := endpoint.Identity{Pod: "first", Address: netip.MustParseAddrPort("10.0.0.1:8000")}
	second := endpoint.Identity{Pod: "second", Address: netip.MustParseAddrPort("10.0.0.2:8000")}
	return []endpoint.Description{{Identity: first}, {Identity: second}}, nil
}

// readClock calls a function whenever somebody reads the time.
type readClock struct {
	clock.RealClock

	read func()
}

func (c *readClock) Now() time.Time {
	c.read()
	return c.RealClock.Now()
}

// TestEndpointIsMadeWhileTheCacheSizeChanges changes the size before each endpoint of a snapshot is made.
func TestEndpointIsMadeWhileTheCacheSizeChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &readClock{read: func() {}}
		p := newFilePool(t, func(p *Params) { p.Clock = c }).addPool("ns/pool", types.NamespacedName{}, twoEndpoints{})
		blocks := 0
		c.read = func() {
			blocks += 1000
			p.estimator.SetCacheSize(estimate.CacheSize{Blocks: blocks}, p.store.Snapshot().Endpoints)
		}
		run(t, p.store.Run)
		synctest.Wait()
		require.Equal(t, 2000, blocks)
		for _, e := range p.store.Snapshot().Endpoints {
			_, capacity := p.estimator.CacheSize(e)
			assert.Equal(t, blocks, capacity, e.Identity().Pod)
		}
	})
}

// TestObservers counts the observers of requests besides the metrics.
func TestObservers(t *testing.T) {
	t.Parallel()
	traces := func(p *Params) { p.Tracer = tracing.New(tracing.Options{Exporter: "console"}, nil, "") }
	tests := []struct {
		name       string
		change     func(p *Params)
		wantOthers int
		wantLines  int
	}{
		{name: "by default", change: func(*Params) {}},
		{name: "log", change: func(p *Params) { p.Config.Telemetry.LogRequests = true }, wantOthers: 1, wantLines: 1},
		{name: "picks", change: func(p *Params) { p.Config.Telemetry.DebugPicks = 1 }, wantOthers: 1},
		{name: "traces", change: traces, wantOthers: 1},
		{
			name: "all", wantOthers: 3, wantLines: 1,
			change: func(p *Params) {
				traces(p)
				p.Config.Telemetry.DebugPicks, p.Config.Telemetry.LogRequests = 1, true
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			core, logs := zaptest.New(zap.InfoLevel)
			r := newFilePool(t, tt.change, func(p *Params) { p.Log = zap.New(core) })
			enabled := r.enabledObservers(r.only)
			assert.Len(t, enabled, tt.wantOthers)
			for _, observe := range enabled {
				observe(&request.Record{Outcome: request.Refused, Status: http.StatusServiceUnavailable, StartTime: time.Now(),
					EndTime: time.Now()})
			}
			assert.Equal(t, tt.wantLines, logs.FilterMessage("Handled request").Len())
		})
	}
}
