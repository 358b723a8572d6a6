package estimate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// sparseEngine is an estimator with one server, which has room for everything, and may keep only the ends of prompts.
type sparseEngine struct {
	*Estimator

	endpoint      *endpoint.Endpoint
	endsOnly      bool
	usage         bool // in answers
	bypasses      bool // the cache, with the next prompt
	used, ends    map[uint64]bool
	own           uint64 // prompts so far
	queries, hits float64
	seconds       float64
}

func newSparseEngine(endsOnly, usage bool) *sparseEngine {
	x := newTestEstimator(1 << 22)
	k := &sparseEngine{Estimator: x, endpoint: x.addEndpoint(1), endsOnly: endsOnly, usage: usage}
	k.restart()
	return k
}

// restart empties the cache.
func (k *sparseEngine) restart() {
	k.used, k.ends, k.queries, k.hits = map[uint64]bool{}, map[uint64]bool{}, 0, 0
	k.showPage()
}

func (k *sparseEngine) showPage() {
	k.seconds += 0.5
	g := endpoint.Gauges{Queries: k.queries, Hits: k.hits, Counted: true}
	k.endpoint.RecordSample(k.endpoint.StartScrape(noon.Add(time.Duration(k.seconds*float64(time.Second)))), g)
}

const (
	systemBlocks = 20
	ownBlocks    = 5
)

// sibling is a prompt that no other one repeats, after a system prompt.
func (k *sparseEngine) sibling(system uint64) *Prompt {
	k.own++
	p := &Prompt{Chain: &prefixindex.Chain{}}
	for i := range uint64(systemBlocks + ownBlocks) {
		hash := system<<32 + i
		if i >= systemBlocks {
			hash = 1<<63 + k.own<<32 + i
		}
		p.Chain.Hashes = append(p.Chain.Hashes, hash)
	}
	p.Tokens = prefixindex.BlockTokens*len(p.Chain.Hashes) + 8
	p.Size = PromptSize{Text: p.Tokens, ChainComplete: true}
	return p
}

// compute returns the cached tokens of a prompt, and caches it.
func (k *sparseEngine) compute(p *Prompt) (cached int) {
	match, end := 0, 0
	for i, hash := range p.Chain.Hashes {
		if !k.used[hash] {
			break
		}
		if match = i + 1; k.ends[hash] {
			end = match
		}
	}
	for _, hash := range p.Chain.Hashes {
		k.used[hash] = true
	}
	if match > 0 {
		k.ends[p.Chain.Hashes[match-1]] = true
	}
	k.ends[p.Chain.Hashes[len(p.Chain.Hashes)-1]] = true
	if k.endsOnly {
		match = end
	}
	return match * prefixindex.BlockTokens
}

// ask sends a prompt, and returns the expected and the cached tokens.
func (k *sparseEngine) ask(p *Prompt) (predicted, cached int) {
	var e Expectation
	k.Lookup(p, []*endpoint.Endpoint{k.endpoint}, noon)
	k.ConfirmPlacement(k.RecordPlacement(p, k.endpoint, &e))
	k.RecordFirstContent(&e)
	if cached = k.compute(p); k.bypasses {
		cached = 0
	}
	k.queries, k.hits = k.queries+float64(p.Tokens), k.hits+float64(cached)
	if k.usage {
		reported := cached
		if reported == 0 {
			reported = -1 // as vLLM does
		}
		k.RecordUsage(&e, p.Tokens, reported)
	}
	k.showPage()
	return e.cached, cached
}

// askSiblings sends three prompts after each of a number of new system prompts. It returns the expected and the cached tokens of the last
// three.
func (k *sparseEngine) askSiblings(systems int) (predicted, cached [3]int) {
	for range systems {
		system := k.own + 1
		for i := range predicted {
			predicted[i], cached[i] = k.ask(k.sibling(system))
		}
	}
	return predicted, cached
}

func (k *sparseEngine) keepsEnds() bool { return ServerOf(k.endpoint).fit.ends.only.Load() }

func TestEnds_AreLearned(t *testing.T) {
	t.Parallel()
	const system = systemBlocks * prefixindex.BlockTokens
	for name, usage := range map[string]bool{"usage": true, "page": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newSparseEngine(true, usage)
			predicted, cached := k.askSiblings(1)
			assert.Equal(t, [3]int{0, system, system}, predicted, "as of a server that keeps all")
			assert.Equal(t, [3]int{0, 0, system}, cached)
			k.askSiblings(40)
			assert.True(t, k.keepsEnds())
			predicted, cached = k.askSiblings(1)
			assert.Equal(t, cached, predicted)
			assert.Equal(t, [3]int{0, 0, system}, cached)
			_, capacity := k.CacheSize(k.endpoint)
			assert.Equal(t, usualBlocks, capacity, "what it does not keep is no evidence of a smaller cache")
		})
	}
}

func TestEnds_AreUnlearned(t *testing.T) {
	t.Parallel()
	for name, usage := range map[string]bool{"usage": true, "page": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newSparseEngine(true, usage)
			k.askSiblings(40)
			assert.True(t, k.keepsEnds())
			assert.EqualValues(t, 1, k.sparse.Load())
			k.endsOnly = false
			k.restart()
			assert.False(t, k.keepsEnds(), "it may start again with another model")
			assert.Zero(t, k.sparse.Load())
			k.askSiblings(10)
			assert.False(t, k.keepsEnds())

			k = newSparseEngine(true, usage)
			k.askSiblings(40)
			k.endsOnly = false // which no page shows
			k.askSiblings(60)
			assert.False(t, k.keepsEnds())
			predicted, cached := k.askSiblings(1)
			assert.Equal(t, cached, predicted)

			k = newSparseEngine(true, usage)
			k.askSiblings(40)
			k.ForgetEndpoint(k.endpoint)
			assert.Zero(t, k.sparse.Load())
		})
	}
}

// TestEnds_OfTheNextServer checks that a server needs less evidence if another one of its pool keeps only ends.
func TestEnds_OfTheNextServer(t *testing.T) {
	t.Parallel()
	misses := func(known, endsOnly bool) (systems int) {
		k := newSparseEngine(endsOnly, true)
		k.sparse.Store(map[bool]int32{true: 1}[known])
		for ; systems < 40 && !k.keepsEnds(); systems++ {
			k.askSiblings(1)
		}
		return systems
	}
	assert.Less(t, misses(true, true), misses(false, true))
	assert.Equal(t, 40, misses(true, false), "it keeps all")
}

// TestEnds_OfTheNextServerWithOldPrefixes checks that prefixes that were not used for long, which a cache may have evicted, are evidence only
// if another server of the pool keeps only ends.
func TestEnds_OfTheNextServerWithOldPrefixes(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{false, true} {
		k := newSparseEngine(true, true)
		k.sparse.Store(map[bool]int32{true: 1}[known])
		k.askSiblings(1) // an end is found that was just used
		for range 2 {
			for system := range uint64(30) {
				k.ask(k.sibling(1000 + system))
			}
		}
		assert.Equal(t, known, k.keepsEnds())
	}
}

// A server that keeps all does not look like that, nor with a client that bypasses its cache, nor does one that keeps nothing.
func TestEnds_OfServerThatKeepsAll(t *testing.T) {
	t.Parallel()
	for name, usage := range map[string]bool{"usage": true, "page": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newSparseEngine(false, usage)
			for range 60 {
				k.askSiblings(1)
				assert.False(t, k.keepsEnds())
			}
			k = newSparseEngine(false, usage)
			for i := range 300 {
				k.bypasses = i%7 == 0 || i%7 == 3
				k.ask(k.sibling(uint64(i / 3)))
				assert.False(t, k.keepsEnds(), "some do not look")
			}
			k = newSparseEngine(false, usage)
			for i := range 300 {
				k.ask(k.sibling(uint64(i % 60)))
				k.used = map[uint64]bool{}
				assert.False(t, k.keepsEnds(), "none is found")
			}
		})
	}
}

// TestEnds_DoNotMovePrompts checks that the picker expects only cached ends, but sends a prompt to the server that had its prefix before:
// the next prompt finds the prefix there. The picker expects no answers in such a cache.
func TestEnds_DoNotMovePrompts(t *testing.T) {
	t.Parallel()
	k := newSparseEngine(true, true)
	other := k.addEndpoint(2)
	ends := &ServerOf(k.endpoint).fit.ends
	ends.only.Store(true)
	ServerOf(other).fit.ends.only.Store(true)
	k.sparse.Store(2)
	k.ask(k.sibling(1))
	p := k.sibling(1)
	k.Lookup(p, []*endpoint.Endpoint{k.endpoint, other}, noon)
	load := other.Load()
	here, there := p.Estimate(k.endpoint, &load), p.Estimate(other, &load)
	assert.Less(t, here.TTFT, there.TTFT)
	assert.Equal(t, systemBlocks*prefixindex.BlockTokens, here.Cached)
	assert.Zero(t, p.cachedTokens(ServerOf(k.endpoint)))
	lease := p.PlaceOn(k.endpoint, noon, Streamed)
	assert.EqualValues(t, p.Tokens, ServerOf(k.endpoint).Backlog(), "all of it is computed")
	lease.Release()

	k.ask(p)
	p.Asked, p.History = len(p.Chain.Hashes), len(p.Chain.Hashes)+3
	p.Chain.Hashes = append(p.Chain.Hashes, 7, 8, 9, 10)
	p.Tokens += 4 * prefixindex.BlockTokens
	k.Lookup(p, []*endpoint.Endpoint{k.endpoint, other}, noon)
	assert.Equal(t, p.Asked, p.cachedBlocks(ServerOf(k.endpoint)), "the turn before")
	assert.False(t, p.answeredLast(ServerOf(k.endpoint)))
	ends.only.Store(false)
	assert.True(t, p.answeredLast(ServerOf(k.endpoint)))
}
