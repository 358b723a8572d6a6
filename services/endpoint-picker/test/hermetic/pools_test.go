//go:build system

package hermetic

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

// severalPools is a rig with one model server for each pool.
type severalPools struct {
	*rig

	port uint16 // of the model servers
}

// startSeveral runs a picker for all pools of the Service epp. Pool i exists if it is in exist.
func startSeveral(t *testing.T, servers int, exist ...int) *severalPools {
	t.Helper()
	p := buildSeveral(t, servers, exist...)
	p.flags = append(p.flags, ofService()...)
	p.launch()
	p.await(func() bool { return p.get(p.health(), "/readyz") == "ok\n" }, "ready")
	t.Cleanup(p.settle)
	return p
}

// ofService are the flags of a picker for all pools of its Service.
func ofService() []string {
	return []string{"--picker-service=epp", fmt.Sprintf("--max-pools=%d", maxPools)}
}

// buildSeveral makes the world of startSeveral. The flags do not yet say which pools the picker serves.
func buildSeveral(t *testing.T, servers int, exist ...int) *severalPools {
	t.Helper()
	pages := make([]string, servers)
	for i := range pages {
		pages[i] = pageOf(0, 0, 0, "")
	}
	p := &severalPools{rig: &rig{t: t, servers: newModelServers(t, pages...), api: newAPIServer(t)}}
	for i, s := range p.servers {
		p.port = s.address.Port()
		p.api.put(t, pathPods, podName(i), podObject(s.address.Addr().String(), true, map[string]string{"pool": poolName(i)}))
	}
	for _, i := range exist {
		p.create(i)
	}
	// The kinds of rules are looked for when the picker starts.
	rule := rewriteTo("my-model", object{"modelRewrite": "my-model-v2"})
	rule["spec"].(object)["poolRef"] = object{"name": poolName(renames)}
	p.api.put(t, pathRewrites, "rule", rule)
	p.flags = []string{
		"--grpc-port=0", "--grpc-health-port=0", "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0",
		"--secure-serving=false", "--drain-delay=0s", "--drain-timeout=20s", "--metrics-endpoint-auth=false",
		"--refresh-metrics-interval=20ms", "--refresh-metrics-idle-interval=50ms", "--kubeconfig=" + p.kubeconfig(), "--pool-namespace=ns",
	}
	return p
}

// maxPools is the maximum number of pools of startSeveral.
const maxPools = 60

// renames is the pool with a rule for the model of ofModel.
const renames = 3

func poolName(i int) string { return fmt.Sprintf("pool-%d", i) }

// create creates pool i, which refers to port 9000+i of the Service.
func (p *severalPools) create(i int) {
	p.t.Helper()
	o := poolObject(p.port)
	spec := o["spec"].(object)
	spec["selector"] = object{"matchLabels": object{"pool": poolName(i)}}
	spec["endpointPickerRef"] = object{"name": "epp", "port": object{"number": 9000 + i}}
	p.api.put(p.t, pathPools, poolName(i), o)
}

// gatewayOf returns a rig whose gateway reaches the picker as the picker of pool i.
func (p *severalPools) gatewayOf(i int) *rig {
	p.t.Helper()
	return p.gatewayAt(fmt.Sprintf("epp.ns.svc:%d", 9000+i))
}

func (p *severalPools) gatewayAt(authority string) *rig {
	p.t.Helper()
	conn, err := grpc.NewClient("passthrough:"+p.address("grpc-port"), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(authority))
	require.NoError(p.t, err)
	p.t.Cleanup(func() { require.NoError(p.t, conn.Close()) })
	other := *p.rig
	other.gateway = extprocv3.NewExternalProcessorClient(conn)
	return &other
}

// awaitEndpoints waits until a pool has a number of endpoints.
func (p *severalPools) awaitEndpoints(i, n int) {
	p.t.Helper()
	p.await(func() bool {
		page := p.metrics()
		found := page["fairlead_picker_endpoints_ready"].GetMetric()
		for _, m := range found {
			if hasLabels(m, []string{"pool", "ns/" + poolName(i)}) {
				return m.GetGauge().GetValue() == float64(n)
			}
		}
		return n < 0
	}, "pool %d has %d endpoints", i, n)
}

const gone = -1 // endpoints of a pool that does not exist

// TestPools_DoNotDisturbEachOther has one picker for several pools, of which some appear, break and go.
func TestPools_DoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	p := startSeveral(t, 3, 0, 1)
	p.awaitEndpoints(0, 1)
	p.awaitEndpoints(1, 1)
	gateways := []*rig{p.gatewayOf(0), p.gatewayOf(1), p.gatewayOf(2)}
	serves := func(i int) {
		t.Helper()
		assert.Equal(t, p.at(i), gateways[i].serve(request{body: ofModel}, response{pieces: completion}))
	}
	serves(0)
	serves(1)
	assert.Equal(t, p.at(1), p.gatewayAt("outbound|9001||epp.ns.svc.cluster.local").serve(request{body: ofModel}, response{pieces: completion}), "Istio")

	const text = "the picker serves no InferencePool at this address; try again in 1 s"
	assert.Equal(t, refusal{status: 503, reason: "rejected-no-endpoints", retry: "1", text: text}, gateways[2].ask(request{body: ofModel}).refused())
	p.create(2)
	p.awaitEndpoints(2, 1)
	serves(2)

	during := gateways[1].ask(request{body: ofModel}) // it outlives its pool
	assert.Equal(t, p.at(1), during.picked())
	p.api.put(t, pathPods, podName(0), podObject(p.servers[0].address.Addr().String(), false, map[string]string{"pool": poolName(0)}))
	p.awaitEndpoints(0, 0)
	assert.Equal(t, 503, gateways[0].ask(request{body: ofModel}).refused().status)
	p.api.remove(t, pathPools, poolName(1))
	p.awaitEndpoints(1, gone)
	p.await(func() bool { return p.metrics().sum("fairlead_picker_pools") == 2 }, "its routes are gone, too")
	assert.Equal(t, text, gateways[1].ask(request{body: ofModel}).refused().text)
	serves(2)
	during.respond(response{pieces: completion})
	during.end()

	p.create(1)
	p.awaitEndpoints(1, 1)
	serves(1)
	p.api.put(t, pathPods, podName(0), podObject(p.servers[0].address.Addr().String(), true, map[string]string{"pool": poolName(0)}))
	p.awaitEndpoints(0, 1)
	serves(0)
	page := p.metrics()
	assert.Equal(t, 1.0, page.sum("fairlead_picker_picks_total", "pool", "ns/pool-1", "result", "picked"), "of the new pool")
	assert.Equal(t, 1.0, page.sum("fairlead_picker_picks_total", "pool", "ns/pool-0", "result", "no_endpoints"))
	assert.Equal(t, 2.0, page.sum("llm_d_epp_request_total", "pool", "ns/pool-0"))
}

func TestPools_HaveTheirOwnRules(t *testing.T) {
	t.Parallel()
	p := startSeveral(t, renames+1, 0)
	p.awaitEndpoints(0, 1)
	p.create(renames)
	p.awaitEndpoints(renames, 1)
	for i, want := range map[int]string{0: ofModel, renames: strings.Replace(ofModel, `"my-model"`, `"my-model-v2"`, 1)} {
		s := p.gatewayOf(i).ask(request{body: ofModel, rules: envoytest.Rules{Free: true, Remove: []string{"accept-encoding"}}})
		assert.Equal(t, want, s.gateway.UpstreamBody())
		s.end()
	}
}

// createAt creates pool i with the address of pool at, younger than those of create.
func (p *severalPools) createAt(i, at int, created time.Time) {
	p.t.Helper()
	o := poolObject(p.port)
	spec := o["spec"].(object)
	spec["selector"] = object{"matchLabels": object{"pool": poolName(i)}}
	spec["endpointPickerRef"] = object{"name": "epp", "port": object{"number": 9000 + at}}
	o["metadata"] = object{"creationTimestamp": created.UTC().Format(time.RFC3339)}
	p.api.put(p.t, pathPools, poolName(i), o)
}

// awaitRefused waits until a number of pools is refused for a reason.
func (p *severalPools) awaitRefused(n int, reason string) {
	p.t.Helper()
	p.await(func() bool { return p.metrics().sum("fairlead_picker_pools_refused", "reason", reason) == float64(n) }, "%d pools refused: %s", n, reason)
}

// warnings returns the number of logged warnings about pools that get no requests.
func (p *severalPools) warnings(reason string) int {
	return p.logs.FilterMessage("Pool gets no requests").FilterField(zap.String("reason", reason)).Len()
}

func TestPools_OldestOwnsAnAddress(t *testing.T) {
	t.Parallel()
	p := startSeveral(t, 2, 0)
	p.awaitEndpoints(0, 1)
	p.createAt(1, 0, time.Now())
	p.awaitRefused(1, "conflict")
	assert.Equal(t, p.at(0), p.gatewayOf(0).serve(request{body: ofModel}, response{pieces: completion}))
	assert.Equal(t, 1, p.warnings("EndpointPickerRefConflict"))
	assert.Zero(t, p.servers[1].asked(), "a pool without requests does not read metrics")

	p.api.remove(t, pathPools, poolName(0))
	p.awaitEndpoints(0, gone)
	p.awaitEndpoints(1, 1)
	assert.Equal(t, p.at(1), p.gatewayOf(0).serve(request{body: ofModel}, response{pieces: completion}))
	p.awaitRefused(0, "conflict")
}

// TestPools_ManyDisplaceNone creates more pools than the picker serves.
func TestPools_ManyDisplaceNone(t *testing.T) {
	t.Parallel()
	p := startSeveral(t, 2, 0)
	p.awaitEndpoints(0, 1)
	for i := range maxPools + 9 {
		p.createAt(1+i, 1+i, time.Now().Add(time.Duration(i)*time.Second))
	}
	p.awaitRefused(10, "limit")
	page := p.metrics()
	assert.Equal(t, float64(maxPools), page.sum("fairlead_picker_pools"))
	assert.Len(t, page["fairlead_picker_endpoints_ready"].GetMetric(), maxPools)
	assert.Equal(t, 10, p.warnings("TooManyPools"))
	assert.Equal(t, p.at(0), p.gatewayOf(0).serve(request{body: ofModel}, response{pieces: completion}))
	assert.Equal(t, 503, p.gatewayOf(maxPools).ask(request{body: ofModel}).refused().status)
	assert.Equal(t, 1.0, p.metrics().sum("fairlead_picker_streams_without_pool_total"))

	p.api.remove(t, pathPools, poolName(1))
	p.awaitRefused(9, "limit")
	p.awaitEndpoints(maxPools, 0) // the oldest of the refused pools
}

// TestPools_Memory bounds the memory of an idle pool.
func TestPools_Memory(t *testing.T) {
	const idle = 50
	p := startSeveral(t, 1, 0)
	p.awaitEndpoints(0, 1)
	used := func() uint64 {
		runtime.GC()
		runtime.GC() // pools of the first are freed by the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := used()
	for i := range idle {
		p.create(1 + i)
	}
	p.awaitEndpoints(idle, 0)
	after := used()
	assert.Less(t, (after-before)/idle, uint64(1<<20), "bytes of an idle pool")
	t.Logf("an idle pool has %d KiB", (after-before)/idle>>10)
}
