package pick

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// emptyPool is a Balancer whose pool has no endpoints at first, in a bubble.
type emptyPool struct {
	*Balancer

	snapshot atomic.Pointer[pool.Snapshot]
}

// newEmptyPool returns a pool with the limits of a configuration.
func newEmptyPool(t *testing.T, flowControl string) *emptyPool {
	t.Helper()
	p := &emptyPool{}
	p.snapshot.Store(snapshotOf())
	p.Balancer = New(Params{
		Snapshot: p.snapshot.Load, Estimator: estimate.New(prefixindex.NewMemoryBudget(1 << 20)), Rules: pool.NewRules(), Outliers: silent{}, Observer: silent{}, Clock: clock.RealClock{}, Random: counter(),
		Config: configured(t, "plugins: [{type: predicted-wait-scorer}]\nflowControl: "+flowControl),
	})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go p.Run(ctx)
	return p
}

// have gives the pool endpoints.
func (p *emptyPool) have(endpoints ...*endpoint.Endpoint) {
	p.snapshot.Store(snapshotOf(endpoints...))
	p.SetEndpoints(endpoints)
}

// sent is a request that was decided, or still waits.
type sent struct {
	request.Context

	refusal *request.Refusal // once it is decided
	decided atomic.Bool
	cancel  context.CancelFunc
}

// send begins a request. It waits, or was decided, on return.
func (p *emptyPool) send(in api.Incoming) *sent { return p.sendFor(in, nil) }

// sendFor is send with the time that the sender waits for an endpoint.
func (p *emptyPool) sendFor(in api.Incoming, maxWait *time.Duration) *sent {
	s := &sent{Context: request.Context{Input: request.PickInput{Incoming: in, MaxWait: maxWait}}}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.StartRequest(p, &request.Options{Now: time.Now})
	go func() {
		if s.refusal = s.PickEndpoint(ctx, in.Body); s.refusal == nil {
			s.ConfirmSent()
		}
		s.decided.Store(true)
	}()
	synctest.Wait()
	return s
}

// answer ends a request.
func (s *sent) answer() {
	s.OnResponseHeaders(&request.ResponseHeaders{Status: 200})
	s.OnResponseEnd()
	s.EndRequest(nil)
	synctest.Wait()
}

// decidedOf returns the number of decided requests.
func decidedOf(requests []*sent) int {
	n := 0
	for _, s := range requests {
		if s.decided.Load() {
			n++
		}
	}
	return n
}

func TestWaitsForAServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newEmptyPool(t, "{}")
		var requests []*sent
		for range 200 {
			requests = append(requests, p.send(api.Incoming{}))
		}
		time.Sleep(20 * time.Second)
		assert.Zero(t, decidedOf(requests))
		assert.Equal(t, 200, p.Queue().Len())
		ready, began := newEndpoint("10.0.0.1:8000"), time.Now()
		p.have(ready)
		synctest.Wait()
		assert.Equal(t, 200, decidedOf(requests))
		assert.Equal(t, began, time.Now(), "they did not wait for a tick")
		assert.Zero(t, p.Queue().Len())
		assert.EqualValues(t, 200, ready.Load().Open)
		for _, s := range requests {
			assert.Nil(t, s.refusal)
			assert.Equal(t, 20*time.Second, s.QueueTime)
			assert.Zero(t, s.PickDuration)
			assert.Equal(t, request.Dispatched, s.Queue)
		}
		assert.Zero(t, p.dispatched.count)
	})
}

// TestWaitsForRoom has a server that runs four requests at once.
func TestWaitsForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newEmptyPool(t, "{}")
		var requests []*sent
		for range 10 {
			requests = append(requests, p.send(api.Incoming{}))
		}
		small := newEndpoint("10.0.0.1:8000")
		for range 50 { // pages with a queue show the size of the batch
			small.RecordSample(small.StartScrape(time.Now()), endpoint.Gauges{Running: 4, Waiting: 1})
		}
		require.InDelta(t, 4, estimate.ServerOf(small).BatchCapacity(), 0)
		small.RecordSample(small.StartScrape(time.Now()), endpoint.Gauges{Running: 0})
		for range 20 { // whoever looks before the first ones are counted there lets no more leave
			p.have(small)
		}
		synctest.Wait()
		assert.Equal(t, 4, decidedOf(requests))
		requests = append(requests, p.send(api.Incoming{}))
		assert.False(t, requests[10].decided.Load(), "the others came first")
		for i := range 7 {
			requests[i].answer()
			assert.Equal(t, 5+i, decidedOf(requests), "as one ends, the next one begins")
			assert.True(t, requests[4+i].decided.Load())
		}
		requests[7].answer()
		assert.True(t, p.send(api.Incoming{}).decided.Load(), "nobody waits, so it does not either")
	})
}

// TestWaitsForRoom_OfEjectedServers has room for a request on an ejected server alone. It gets that once all are ejected.
func TestWaitsForRoom_OfEjectedServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newEmptyPool(t, "{}")
		s := p.send(api.Incoming{})
		ejected, full := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")
		ejected.Health().EjectUntil("failures", time.Now().Add(time.Hour))
		full.RecordSample(full.StartScrape(time.Now()), running(usualBatch))
		p.have(ejected, full)
		time.Sleep(time.Second)
		assert.False(t, s.decided.Load())
		full.Health().EjectUntil("failures", time.Now().Add(time.Hour))
		time.Sleep(recheckInterval)
		synctest.Wait()
		assert.True(t, s.decided.Load())
	})
}

// TestWaitIsNoTimeOfTheServer has a request that waits for 20 s and gets its first token 100 ms later.
func TestWaitIsNoTimeOfTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newEmptyPool(t, "{}")
		s := p.send(api.Incoming{Path: "/v1/completions", Body: []byte(`{"model":"m","prompt":"one two three","stream":true}`)})
		time.Sleep(20 * time.Second)
		p.have(p.params.Estimator.NewEndpoint(endpoint.Description{Identity: endpoint.Identity{Pod: "a",
			Address: netip.MustParseAddrPort("10.0.0.1:8000")}}, time.Now()))
		synctest.Wait()
		require.True(t, s.decided.Load())
		time.Sleep(100 * time.Millisecond)
		s.OnResponseHeaders(&request.ResponseHeaders{Status: 200, Events: true})
		for range 2 { // one piece of content alone says nothing
			s.OnResponseChunk([]byte("data: {\"choices\":[{\"text\":\"a\"}]}\n\n"))
		}
		assert.Equal(t, 100*time.Millisecond, p.params.Estimator.Paces().First)
	})
}

// TestWaitsForRoom_OfOtherReplicas has a server that another replica of the picker fills: nothing here says when it has room again.
func TestWaitsForRoom_OfOtherReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newEmptyPool(t, "{}")
		s := p.send(api.Incoming{})
		e := newEndpoint("10.0.0.1:8000")
		e.RecordSample(e.StartScrape(time.Now()), running(usualBatch))
		p.have(e)
		synctest.Wait()
		assert.False(t, s.decided.Load())
		e.RecordSample(e.StartScrape(time.Now()), running(usualBatch-1))
		time.Sleep(recheckInterval)
		synctest.Wait()
		assert.True(t, s.decided.Load())
	})
}

func TestWaitsNoLonger(t *testing.T) {
	t.Parallel()
	envoy := api.Headers{{Name: api.HeaderTimeout, Value: "15000"}}
	tests := []struct {
		name, flowControl string
		give              api.Incoming
		maxWait           *time.Duration
		wait              time.Duration
	}{
		{name: "default", flowControl: "{}", wait: 55 * time.Second},
		{name: "configured", flowControl: "{noEndpointRequestTTL: 10s}", wait: 10 * time.Second},
		{name: "not at all", flowControl: "{noEndpointRequestTTL: 0s}"},
		{name: "gateway", flowControl: "{}", give: api.Incoming{Headers: envoy}, wait: 14 * time.Second},
		{name: "impatient gateway", flowControl: "{}", give: api.Incoming{Headers: api.Headers{{Name: api.HeaderTimeout, Value: "900"}}}},
		{name: "caller", flowControl: "{}", maxWait: new(4 * time.Second), wait: 4 * time.Second},
		{name: "patient caller", flowControl: "{noEndpointRequestTTL: 10s}", maxWait: new(time.Minute), wait: 10 * time.Second},
		{name: "caller that does not wait", flowControl: "{}", maxWait: new(time.Duration)},
		{name: "strange gateway", flowControl: "{}", give: api.Incoming{Headers: api.Headers{{Name: api.HeaderTimeout, Value: "-5"}}}, wait: 55 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, began := newEmptyPool(t, tt.flowControl), time.Now()
				s := p.sendFor(tt.give, tt.maxWait)
				for !s.decided.Load() {
					time.Sleep(time.Second)
					synctest.Wait()
				}
				assert.Equal(t, tt.wait, time.Since(began))
				require.NotNil(t, s.refusal)
				assert.Equal(t, 503, s.refusal.Code)
				assert.Equal(t, request.ReasonNoEndpoints, s.refusal.Reason)
				assert.ErrorIs(t, s.refusal.Cause, scheduling.ErrNoEndpoints)
			})
		})
	}
}

func TestClientThatLeavesWhileItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newEmptyPool(t, "{}")
		s := p.send(api.Incoming{})
		s.cancel()
		synctest.Wait()
		assert.True(t, s.decided.Load())
		assert.NotNil(t, s.refusal)
		s.EndRequest(nil)
		assert.Equal(t, request.Unpicked, s.Outcome)
		assert.Equal(t, request.EvictedContextCancelled, s.Queue)
		assert.Zero(t, p.Queue().Len())
	})
}

// TestFullQueue has more requests than may wait.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newEmptyPool(t, "{maxRequests: 2, maxBytes: 32Ki}")
		first, big := p.send(api.Incoming{}), p.send(api.Incoming{Body: fmt.Appendf(nil, `{"prompt":"%032768d"}`, 0)})
		assert.True(t, big.decided.Load())
		require.NotNil(t, big.refusal)
		assert.Equal(t, request.RejectedCapacity, big.Queue)
		second := p.send(api.Incoming{})
		third := p.send(api.Incoming{})
		assert.True(t, third.decided.Load())
		require.NotNil(t, third.refusal)
		assert.Equal(t, "no ready endpoints in the pool: the queue is full", third.refusal.Text)
		full := newEndpoint("10.0.0.1:8000")
		full.RecordSample(full.StartScrape(time.Now()), running(usualBatch))
		p.have(full)
		fourth := p.send(api.Incoming{})
		assert.True(t, fourth.decided.Load())
		require.NotNil(t, fourth.refusal)
		assert.Equal(t, 429, fourth.refusal.Code, "it must not overtake the others")
		assert.False(t, first.decided.Load())
		time.Sleep(55 * time.Second)
		synctest.Wait()
		for _, s := range []*sent{first, second} {
			assert.True(t, s.decided.Load())
			assert.Nil(t, s.refusal, "it has waited for long enough")
		}
	})
}

// TestServerThatComesAndGoes has a server that is gone before the requests that left the queue reach it.
func TestServerThatComesAndGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newEmptyPool(t, "{}")
		s := p.send(api.Incoming{})
		p.dispatched.mu.Lock()
		p.dispatched.count += p.queue.GrantNext(1)
		p.dispatched.mu.Unlock()
		synctest.Wait()
		assert.False(t, s.decided.Load())
		assert.Equal(t, 1, p.queue.Len())
		assert.Zero(t, p.dispatched.count)
		p.have(newEndpoint("10.0.0.1:8000"))
		synctest.Wait()
		assert.True(t, s.decided.Load())
		assert.Nil(t, s.refusal)
	})
}

// TestReloadWhileRequestsWait has a configuration whose filter fits no server, until an administrator corrects it.
func TestReloadWhileRequestsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wrong := configured(t, "plugins: [{type: label-selector-filter, parameters: {matchLabels: {role: typo}}}, {type: predicted-wait-scorer}]")()
		right := configured(t, "plugins: [{type: predicted-wait-scorer}]")()
		p := newEmptyPool(t, "{}")
		var config atomic.Pointer[pluginconfig.Config]
		config.Store(wrong)
		p.params.Config = config.Load
		p.have(newEndpoint("10.0.0.1:8000"))
		s := p.send(api.Incoming{})
		assert.False(t, s.decided.Load())
		config.Store(right)
		time.Sleep(recheckInterval)
		synctest.Wait()
		assert.True(t, s.decided.Load())
		assert.Nil(t, s.refusal)
		config.Store(wrong)
		late := p.send(api.Incoming{})
		time.Sleep(55 * time.Second)
		synctest.Wait()
		assert.True(t, late.decided.Load())
		assert.NotNil(t, late.refusal, "no server fits by the configuration of now")
	})
}

// TestDisplacedRequest has a full server, and a queue that a request of higher priority fills. The one that loses its place must not
// overtake it.
func TestDisplacedRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newEmptyPool(t, "{maxRequests: 1}")
		p.params.Rules.SetSnapshot(pool.CompileRules([]pool.Objective{{Name: "high", Priority: 1}}, nil))
		low := p.send(api.Incoming{})
		full := newEndpoint("10.0.0.1:8000")
		full.RecordSample(full.StartScrape(time.Now()), running(usualBatch))
		p.have(full)
		high := p.send(api.Incoming{Headers: api.Headers{{Name: api.HeaderObjective, Value: "high"}}})
		assert.False(t, high.decided.Load())
		require.True(t, low.decided.Load())
		require.NotNil(t, low.refusal)
		assert.Equal(t, 429, low.refusal.Code)
		assert.Equal(t, request.EvictedOther, low.Queue)
	})
}

// TestPoolThatIsGone has requests that wait when the pool ends.
func TestPoolThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newEmptyPool(t, "{}")
		s := p.send(api.Incoming{})
		p.queue.Close()
		synctest.Wait()
		late := p.send(api.Incoming{})
		for _, s := range []*sent{s, late} {
			require.True(t, s.decided.Load())
			require.NotNil(t, s.refusal)
			assert.Equal(t, 503, s.refusal.Code)
		}
	})
}

// TestEvictedWhileItWaits has a carrier that ends a request because of its memory.
func TestEvictedWhileItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newEmptyPool(t, "{}")
		ctx, cancel := context.WithCancelCause(context.Background())
		var x request.Context
		x.StartRequest(p, &request.Options{Now: time.Now})
		refusal := make(chan *request.Refusal, 1)
		go func() { refusal <- x.PickEndpoint(ctx, nil) }()
		synctest.Wait()
		cancel(limits.ErrTooManyBytes)
		assert.Equal(t, 429, (<-refusal).Code)
		x.EndRequest(nil)
		assert.Equal(t, request.Refused, x.Outcome)
	})
}

// TestSheddableRequestDoesNotWaitToBeShed has a saturated server, and a request that waits for it.
func TestSheddableRequestDoesNotWaitToBeShed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newEmptyPool(t, "{}")
		p.params.Rules.SetSnapshot(pool.CompileRules([]pool.Objective{{Name: "batch", Priority: -1}}, nil))
		waiting := p.send(api.Incoming{})
		full := newEndpoint("10.0.0.1:8000")
		full.RecordSample(full.StartScrape(time.Now()), endpoint.Gauges{Running: usualBatch, Waiting: 100, KVUsage: 1})
		p.have(full)
		s := p.send(api.Incoming{Headers: api.Headers{{Name: api.HeaderObjective, Value: "batch"}}})
		require.True(t, s.decided.Load())
		require.NotNil(t, s.refusal)
		assert.Equal(t, 429, s.refusal.Code)
		assert.False(t, waiting.decided.Load())
	})
}
