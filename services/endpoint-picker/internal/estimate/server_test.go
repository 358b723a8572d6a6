package estimate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// placeStreamed counts a request on an endpoint whose answer will be observed from its beginning.
func (s *Server) placeStreamed(e *endpoint.Endpoint, now time.Time, p Prefill) *endpoint.Lease {
	return s.acquireLease(e, now, p, Streamed)
}

// scrape records a page that takes no time.
func scrape(e *endpoint.Endpoint, seconds float64, g endpoint.Gauges) {
	e.RecordSample(e.StartScrape(after(seconds)), g)
}

// ttft is the estimate for a prompt of 100 tokens some seconds after noon.
func ttft(e *endpoint.Endpoint, seconds float64) float64 {
	s, load := ServerOf(e), e.Load()
	return s.estimateTTFT(s.arrivalAfter(seconds, s.estimator.Costs(), 100), &load)
}

func TestServer_SeesRequestsOfOtherReplicas(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	idle := ttft(e, 0)
	scrape(e, 0, endpoint.Gauges{Running: 20})
	running := ttft(e, 0)
	assert.Greater(t, running, idle)
	scrape(e, 0, endpoint.Gauges{Running: 20})
	assert.InDelta(t, running, ttft(e, 0), 1e-9, "the same requests")
	assert.InDelta(t, idle+20*x.Costs().PerOther, ttft(e, 60), 1e-9, "their prompts have been computed")
}

func TestServer_SeesOurRequests(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	s := ServerOf(e)
	idle := ttft(e, 0)
	placed := s.placeStreamed(e, noon, Prefill{Tokens: 1000})
	prefilling := ttft(e, 0)
	assert.Greater(t, prefilling, idle)
	scrape(e, 0, endpoint.Gauges{Waiting: 1})
	assert.InDelta(t, prefilling, ttft(e, 0), 0, "the page contains the same request")
	assert.Equal(t, endpoint.Estimates{Backlog: 1000, Slowdown: 1, BacklogTime: s.prefillTime(1000)}, e.StatsAt(noon).Estimates)
	placed.MarkFirstContent(noon)
	answering := ttft(e, 0)
	assert.Less(t, answering, prefilling)
	placed.Release()
	placed.MarkFirstContent(noon)
	assert.InDelta(t, idle, ttft(e, 0), 1e-9)
	s.acquireLease(e, noon, Prefill{}, Whole).Abandon(noon)
	s.placeStreamed(e, noon, Prefill{Tokens: 1000}).Abandon(noon)
	scrape(e, 1, endpoint.Gauges{})
	assert.InDelta(t, idle, ttft(e, 60), 1e-9)
	assert.InDelta(t, 1, s.slowdownFactor(), 1e-9)
}

// matchedBlocks returns the blocks of a chain that are expected on the endpoint.
func (x *Estimator) matchedBlocks(e *endpoint.Endpoint, chain ...uint64) int {
	p := &Prompt{Chain: &prefixindex.Chain{Hashes: chain}}
	p.matchCaches(x)
	return p.cachedBlocks(ServerOf(e))
}

func TestServer_PageHasTheSizeOfTheCache(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	x.RecordPlacement(&Prompt{Chain: &prefixindex.Chain{Hashes: []uint64{1, 2, 3, 4}}}, e, &Expectation{})
	scrape(e, 0, endpoint.Gauges{})
	assert.Equal(t, 4, x.matchedBlocks(e, 1, 2, 3, 4), "the page does not tell")
	scrape(e, 0, endpoint.Gauges{Blocks: 3})
	assert.Equal(t, 3, x.matchedBlocks(e, 1, 2, 3, 4))
}

func TestServer_RequestsOfOtherReplicasEvictOurPrompts(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	x.RecordPlacement(&Prompt{Chain: &prefixindex.Chain{Hashes: []uint64{1, 2, 3, 4}}}, e, &Expectation{})
	scrape(e, 0, endpoint.Gauges{Blocks: 20})
	scrape(e, 0, endpoint.Gauges{Blocks: 20, Running: 1}) // usually 300 tokens: 18 whole blocks
	assert.Equal(t, 2, x.matchedBlocks(e, 1, 2, 3, 4))
	scrape(e, 0, endpoint.Gauges{Blocks: 20, Running: 1})
	assert.Equal(t, 2, x.matchedBlocks(e, 1, 2, 3, 4), "the same request")
	scrape(e, 0, endpoint.Gauges{Blocks: 20, Running: 1, Waiting: 1})
	assert.Zero(t, x.matchedBlocks(e, 1, 2, 3, 4))
}

// One page with a wild number must not change where requests go once the next page is right.
func TestServer_RecoversFromAWrongPage(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]endpoint.Gauges{
		"queue": {Waiting: 1e6}, "batch": {Running: 1e6}, "both": {Waiting: 1 << 30, Running: 1 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTestEstimator(1 << 20)
			e, other := x.addEndpoint(1), x.addEndpoint(2)
			for second := range 5 {
				for _, server := range []*endpoint.Endpoint{e, other} {
					ServerOf(server).placeStreamed(server, after(float64(second)), Prefill{Tokens: 100}).Release()
					scrape(server, float64(second), endpoint.Gauges{Running: 2})
				}
			}
			scrape(e, 5, wrong)
			scrape(e, 5.1, endpoint.Gauges{Running: 2})
			assert.InDelta(t, ttft(other, 6), ttft(e, 6), 1e-6, "no backlog is left")
			blocks, capacity := x.CacheSize(e)
			assert.Less(t, blocks, capacity, "nor is the cache full of it")
			assert.LessOrEqual(t, ServerOf(e).batch.most.Load(), 2.0+maxNewRequests)
		})
	}
}

// The requests of an engine that is faster than expected end before their backlog does.
func TestServer_BacklogEndsWithItsRequests(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	idle := ttft(e, 0)
	own := ServerOf(e).acquireLease(e, noon, Prefill{Tokens: 10_000}, Whole)
	scrape(e, 0, endpoint.Gauges{Running: 101})
	assert.Greater(t, ttft(e, 0.1), idle+1, "a hundred prompts")
	scrape(e, 0.1, endpoint.Gauges{Running: 1})
	left := ttft(e, 0.1) - idle
	assert.Greater(t, left, 0.5, "our own request still has its prompt")
	assert.Less(t, left, 1.1)
	own.Release()
	scrape(e, 0.2, endpoint.Gauges{})
	assert.InDelta(t, idle, ttft(e, 0.2), 1e-9)
}
