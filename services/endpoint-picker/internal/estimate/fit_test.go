package estimate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

func TestBucket(t *testing.T) {
	t.Parallel()
	last := 0
	for blocks := 4; blocks < 1<<13; blocks++ {
		i := bucketOf(blocks)
		assert.True(t, i == last || i == last+1 || last == 0)
		assert.LessOrEqual(t, bucketStart(i), blocks)
		assert.Greater(t, bucketStart(i+1), blocks)
		last = i
	}
	assert.Zero(t, bucketOf(0))
	assert.Equal(t, distances-1, bucketOf(1<<40))
}

// keeper is an estimator with one server, whose cache holds some prompts in the order of their use.
type keeper struct {
	*Estimator

	endpoint *endpoint.Endpoint
	prompts  int // in its cache
	order    []int
	queries  float64
	hits     float64
	seconds  float64
}

const keptTokens = 640 // of one prompt: 40 blocks

func newKeeper(prompts int) *keeper {
	x := newTestEstimator(1 << 22)
	k := &keeper{Estimator: x, endpoint: x.addEndpoint(1), prompts: prompts}
	k.page()
	return k
}

// page shows a page, which claims a cache of 200 prompts.
func (k *keeper) page() {
	g := endpoint.Gauges{Blocks: 200 * keptTokens / 16, Alignment: 128, Queries: k.queries, Hits: k.hits, Counted: true}
	k.endpoint.RecordSample(k.endpoint.StartScrape(noon.Add(time.Duration(k.seconds*float64(time.Second)))), g)
}

// ask sends one of the prompts, and returns the expected and the cached tokens.
func (k *keeper) ask(number int) (expectation Expectation, cached int) {
	p := &Prompt{Chain: &prefixindex.Chain{}, Tokens: keptTokens + 8, Size: PromptSize{Text: keptTokens + 8, ChainComplete: true}}
	for i := range keptTokens / 16 {
		p.Chain.Hashes = append(p.Chain.Hashes, uint64(number+1)<<20+uint64(i))
	}
	k.Lookup(p, []*endpoint.Endpoint{k.endpoint}, noon)
	placed := k.RecordPlacement(p, k.endpoint, &expectation)
	k.ConfirmPlacement(placed)
	k.RecordFirstContent(&expectation)
	for i, n := range k.order {
		if n == number {
			k.order = append(k.order[:i], k.order[i+1:]...)
			cached = keptTokens
			break
		}
	}
	k.order = append(k.order, number)
	if n := len(k.order) - k.prompts; n > 0 {
		k.order = k.order[n:]
	}
	k.queries += keptTokens + 8
	k.hits += float64(cached)
	k.seconds += 0.5
	return expectation, cached
}

// expectation places a prompt.
func (k *keeper) expectation(p *Prompt) (e Expectation) {
	k.RecordPlacement(p, k.endpoint, &e)
	return e
}

// rates asks for a number of prompts in turn, many times, and returns the shares of the last round that were expected and cached.
func (k *keeper) rates(prompts, rounds int, usage bool) (expected, cached float64) {
	for round := range rounds {
		for number := range prompts {
			e, hit := k.ask(number)
			if usage {
				k.RecordUsage(&e, keptTokens+8, hit)
			} else {
				k.page()
			}
			if round == rounds-1 {
				expected += float64(e.cached) / keptTokens / float64(prompts)
				cached += float64(hit) / keptTokens / float64(prompts)
			}
		}
	}
	return expected, cached
}

// The page of a hybrid model claims far more than it keeps: asked in turn for more prompts than it holds, it has none.
func TestFit_FollowsReports(t *testing.T) {
	t.Parallel()
	for name, usage := range map[string]bool{"usage": true, "page": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeeper(6)
			expected, cached := k.rates(4, 20, usage)
			assert.InDelta(t, 1, cached, 1e-9)
			assert.InDelta(t, 1, expected, 1e-9)

			expected, cached = k.rates(18, 30, usage)
			assert.Zero(t, cached)
			assert.Less(t, expected, 0.06)
			blocks, capacity := k.CacheSize(k.endpoint)
			assert.LessOrEqual(t, blocks, capacity)
			assert.Less(t, capacity, 18*keptTokens/16)

			k.prompts = 100 // the server has a larger cache now
			expected, cached = k.rates(18, 60, usage)
			assert.InDelta(t, 1, cached, 1e-9)
			assert.Greater(t, expected, 0.94)
			_, capacity = k.CacheSize(k.endpoint)
			assert.LessOrEqual(t, capacity, 200*keptTokens/16, "never more than the page says")
		})
	}
}

func TestFit_ServerWithoutCache(t *testing.T) {
	t.Parallel()
	k := newKeeper(0)
	expected, _ := k.rates(5, 50, false)
	assert.LessOrEqual(t, expected, 0.2, "at most one prompt, by which it was tried again")
	k.prompts = 10
	expected, cached := k.rates(5, 50, false)
	assert.InDelta(t, 1, cached, 1e-9)
	assert.Greater(t, expected, 0.9, "it recovers")
}

// An engine or a proxy may report 0 cached tokens with every answer, whatever it has cached.
func TestFit_ZerosOfServerThatNeverReportsMore(t *testing.T) {
	t.Parallel()
	k := newKeeper(100)
	report := func(cached func(hit int) int) (expected int) {
		for number := range 20 {
			e, hit := k.ask(number % 5)
			expected += e.cached
			k.RecordUsage(&e, keptTokens+8, cached(hit))
		}
		return expected
	}
	zero := func(int) int { return 0 }
	report(zero)
	assert.Equal(t, 20*keptTokens, report(zero), "all of them are cached")

	report(func(hit int) int { return hit })
	k.order = nil // all is lost, and zeros are true
	k.prompts = 0
	report(zero)
	report(zero)
	assert.Less(t, report(zero), 5*keptTokens)
}

// A server that starts again has nothing, which its counters show at once, and its answers soon.
func TestFit_ServerStartsAgain(t *testing.T) {
	t.Parallel()
	k := newKeeper(100)
	k.rates(30, 10, false)
	k.order, k.queries, k.hits = nil, 0, 0
	k.page()
	blocks, _ := k.CacheSize(k.endpoint)
	assert.Zero(t, blocks)

	k = newKeeper(100)
	k.rates(60, 10, true)
	k.order = nil
	missed := 0
	for number := range 60 {
		e, hit := k.ask(number)
		if e.cached > hit {
			missed++
		}
		k.RecordUsage(&e, keptTokens+8, hit)
	}
	assert.Less(t, missed, 20, "not each prompt must be lost for itself")
	_, capacity := k.CacheSize(k.endpoint)
	assert.Greater(t, capacity, 60*keptTokens/16, "and the size is not forgotten")
}

// Requests that bypass the cache, of one client among others, do not hide what the server has.
func TestFit_RequestsThatBypassTheCache(t *testing.T) {
	t.Parallel()
	k := newKeeper(100)
	k.rates(30, 10, true)
	for i := range 3000 {
		e, hit := k.ask(i % 30)
		if i%3 == 0 {
			hit = 0
		}
		k.RecordUsage(&e, keptTokens+8, hit)
	}
	expected, _ := k.rates(30, 1, true)
	assert.Greater(t, expected, 0.9)
}

// What is computed at the moment may be cached or not.
func TestFit_PromptInProgressIsNoEvidence(t *testing.T) {
	t.Parallel()
	k := newKeeper(100)
	p := func() *Prompt {
		p := &Prompt{Chain: &prefixindex.Chain{}, Tokens: 170, Size: PromptSize{Text: 170, ChainComplete: true}}
		for i := range uint64(10) {
			p.Chain.Hashes = append(p.Chain.Hashes, i)
		}
		k.Lookup(p, []*endpoint.Endpoint{k.endpoint}, noon)
		return p
	}
	first := k.expectation(p())
	for range 100 {
		e := k.expectation(p())
		assert.Equal(t, 128, e.cached, "whole blocks of 128")
		assert.Zero(t, e.settled)
		k.RecordUsage(&e, 170, 0)
	}
	_, capacity := k.CacheSize(k.endpoint)
	assert.Equal(t, 200*keptTokens/16, capacity)
	k.RecordFirstContent(&first)
	e := k.expectation(p())
	assert.EqualValues(t, 10, e.settled)
}

func TestFit_MovedPromptIsNoEvidence(t *testing.T) {
	t.Parallel()
	k := newKeeper(100)
	k.ask(1)
	e, _ := k.ask(1)
	e.Invalidate()
	k.RecordFirstContent(&e)
	k.RecordUsage(&e, keptTokens+8, 0)
	assert.Zero(t, k.endpoint.StatsAt(noon).Prefix)
}

func TestCachedTokens(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                      string
		alignment, blocks, tokens int
		perBlock                  float64
		want                      int
	}{
		{name: "nothing", alignment: 16, tokens: 100, want: 0},
		{name: "usual blocks", alignment: 16, blocks: 5, tokens: 200, want: 80},
		{name: "blocks of 128, a tokenizer with long words", alignment: 128, blocks: 65, tokens: 758, perBlock: 11.6, want: 640},
		{name: "the last token is computed", alignment: 16, blocks: 5, tokens: 80, want: 64},
		{name: "alignment of a hybrid model", alignment: 640, blocks: 79, tokens: 2000, want: 640},
		{name: "pages of one token", alignment: 1, blocks: 5, tokens: 200, perBlock: 20, want: 110},
		{name: "a short prompt", alignment: 640, blocks: 5, tokens: 200, want: 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := newTestEstimator(1 << 20)
			e := x.addEndpoint(1)
			scrape(e, 0, endpoint.Gauges{Alignment: tt.alignment})
			p := &Prompt{Tokens: tt.tokens, matched: []int{tt.blocks}, Size: PromptSize{PerBlock: tt.perBlock}}
			assert.Equal(t, tt.want, p.cachedTokens(ServerOf(e)))
		})
	}
}

func TestCacheSize_IsInTokensOfTheModel(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	for range 100 {
		x.tokenizers.observePrompt("m", 1000, 500)
	}
	scrape(e, 0, endpoint.Gauges{Blocks: 1000})
	_, capacity := x.CacheSize(e)
	assert.InEpsilon(t, 2000, capacity, 0.03, "each block of text has half as many tokens")
}
