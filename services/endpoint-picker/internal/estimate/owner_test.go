package estimate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// replica is an Estimator of eight servers, where other replicas placed most of the requests.
type replica struct {
	*Estimator

	endpoints []*endpoint.Endpoint
}

func newReplica() *replica {
	r := &replica{Estimator: newTestEstimator(1 << 20)}
	for i := range byte(8) {
		e := r.addEndpoint(1 + i)
		e.RecordSample(e.StartScrape(noon), endpoint.Gauges{Running: 2})
		r.endpoints = append(r.endpoints, e)
	}
	return r
}

// turn is a prompt of a conversation under a system prompt, after a number of answers.
func turn(system string, conversation, answers int) *Prompt {
	p := &Prompt{Chain: &prefixindex.Chain{}}
	p.Chain.Reset(1, 1000)
	write := func(text string) (blocks int) {
		p.Tokens += len(text) / 4
		p.Chain.Write([]byte(text))
		return len(p.Chain.Hashes)
	}
	message := func(role string, n int) int {
		return write(strings.Repeat(fmt.Sprint(role, conversation, "-", n, " "), 60))
	}
	write(system)
	last := message("user", 0)
	for n := range answers {
		if n == 0 {
			p.Opening = last
		}
		p.Asked, p.History = last, message("assistant", n)
		last = message("user", n+1)
	}
	return p
}

// lookup looks up a prompt that has an owner.
func (r *replica) lookup(t *testing.T, p *Prompt) *Prompt {
	t.Helper()
	r.Lookup(p, r.endpoints, noon)
	require.NotNil(t, p.owner)
	return p
}

// observeConversations makes conversations usual.
func (r *replica) observeConversations() {
	for range 10 {
		r.reuse.observePrompt(900, 800, 1000)
	}
}

func TestOwner(t *testing.T) {
	t.Parallel()
	system := strings.Repeat("You are an assistant. ", 20)
	owners := func(r *replica, answers int) (owners []string) {
		for conversation := range 30 {
			p := turn(system, conversation, answers)
			p.matchCaches(r.Estimator)
			p.findOwner(r.endpoints, 1, &r.reuse, noon)
			owners = append(owners, p.owner.Address())
		}
		return owners
	}
	different := func(owners []string) int { return len(slices.Compact(slices.Sorted(slices.Values(owners)))) }

	a, b := newReplica(), newReplica()
	assert.Equal(t, 1, different(owners(a, 0)), "prompts with the same beginning have one owner")

	a.observeConversations()
	b.observeConversations()
	opening := owners(a, 0)
	assert.Greater(t, different(opening), 4, "conversations are spread, though few servers are known to have their system prompt")
	assert.Equal(t, opening, owners(a, 1), "all turns have the same owner")
	assert.Equal(t, opening, owners(b, 3), "in all replicas")
}

func TestOwner_IsUsable(t *testing.T) {
	t.Parallel()
	r := newReplica()
	owner := r.lookup(t, turn("", 1, 0)).owner
	owner.Health().EjectUntil("responses", after(60))
	next := r.lookup(t, turn("", 1, 0)).owner
	assert.NotSame(t, owner, next)
	owner.Health().RecordSuccess()
	assert.Same(t, owner, r.lookup(t, turn("", 1, 0)).owner)
}

func TestOwner_OfTheOnlyReplica(t *testing.T) {
	t.Parallel()
	r := &replica{Estimator: newTestEstimator(1 << 20)}
	e := r.addEndpoint(1)
	r.Lookup(turn("", 1, 0), []*endpoint.Endpoint{e}, noon)
	p := turn("", 1, 0)
	r.Lookup(p, []*endpoint.Endpoint{e}, noon)
	assert.Nil(t, p.owner, "nobody else places prompts")
}

// The index contains prompts only, but the server that answered the last turn has the answer, too.
func TestPrefill_TheLastAnswerIsWhereTheLastPromptWas(t *testing.T) {
	t.Parallel()
	r := &replica{Estimator: newTestEstimator(1 << 20)}
	here, there := r.addEndpoint(1), r.addEndpoint(2)
	both := []*endpoint.Endpoint{here, there}
	first := turn("", 1, 0)
	r.Lookup(first, both, noon)
	r.RecordPlacement(first, here, &Expectation{})

	next := turn("", 1, 1)
	r.Lookup(next, both, noon)
	cached := next.cachedTokens(ServerOf(here))
	assert.Positive(t, cached)
	f := next.prefillFor(here, cached)
	assert.Equal(t, next.blocksToTokens(next.History)-cached, f.History)
	assert.Less(t, r.Costs().uncachedTokens(&f), float64(f.Tokens))
	assert.Zero(t, next.prefillFor(there, 0).History)

	again := turn("", 1, 2) // the turn in between went elsewhere
	r.Lookup(again, both, noon)
	assert.Zero(t, again.prefillFor(here, again.cachedTokens(ServerOf(here))).History)
}

func TestPrefill_DependsOnWhoPlacedTheLastTurn(t *testing.T) {
	t.Parallel()
	a, b := newReplica(), newReplica()
	a.observeConversations()
	b.observeConversations()
	first := a.lookup(t, turn("", 1, 0))
	owner := first.owner
	f := first.prefillFor(owner, 0)
	assert.Equal(t, Prefill{Tokens: first.Tokens, Expected: first.Tokens}, f, "another replica may have placed the same prompt")
	a.RecordPlacement(first, owner, &Expectation{})
	a.index.ResizeCache(ServerOf(owner).cache, 0) // evicts it

	next, unseen := a.lookup(t, turn("", 1, 1)), a.lookup(t, turn("", 1, 2))
	assert.Zero(t, next.longestMatch())
	assert.Zero(t, next.prefillFor(next.owner, 0).History, "only this replica placed it, and it was evicted")
	assert.NotZero(t, unseen.prefillFor(unseen.owner, 0).History, "another replica placed its second turn")
	assert.Less(t, next.sharing, unseen.sharing, "other replicas need it in the next turn only")

	other := b.lookup(t, turn("", 1, 1))
	assert.Equal(t, owner.Address(), other.owner.Address())
	assert.NotZero(t, other.prefillFor(other.owner, 0).History, "another replica placed it")
	assert.Zero(t, other.prefillFor(b.endpoints[0], 0).History+other.prefillFor(b.endpoints[1], 0).History, "and not elsewhere")
}

func TestEstimate_PrefersTheOwner(t *testing.T) {
	t.Parallel()
	r := newReplica()
	r.observeConversations()
	p := r.lookup(t, turn("", 1, 0))
	for _, e := range r.endpoints {
		load := e.Load()
		got := p.Estimate(e, &load)
		p.arrival.setPrefill(p.prefillFor(e, 0))
		if plain := ServerOf(e).estimateTTFT(&p.arrival, &load); e == p.owner {
			assert.Less(t, got.TTFT, plain)
		} else {
			assert.InDelta(t, plain, got.TTFT, 0)
		}
		assert.Zero(t, got.Cached)
	}
	r.RecordPlacement(p, r.endpoints[3], &Expectation{})
	p = turn("", 1, 0)
	r.Lookup(p, r.endpoints, noon)
	load := r.endpoints[3].Load()
	assert.Equal(t, len(p.Chain.Hashes)*prefixindex.BlockTokens, p.Estimate(r.endpoints[3], &load).Cached)
}

// After a fallback the prompt is in the cache of the server that served it, and what the other server had before stays.
func TestServed(t *testing.T) {
	t.Parallel()
	chain := []uint64{1, 2, 3, 4}
	for _, moved := range []bool{false, true} {
		x := newTestEstimator(1 << 20)
		a, b := x.addEndpoint(1), x.addEndpoint(2)
		x.ConfirmPlacement(x.RecordPlacement(&Prompt{Chain: &prefixindex.Chain{Hashes: slices.Clone(chain[:2])}}, a, &Expectation{}))
		p := &Prompt{Chain: &prefixindex.Chain{Hashes: slices.Clone(chain)}}
		p.matchCaches(x)
		placed := x.RecordPlacement(p, a, &Expectation{})
		matched := func() []int {
			q := &Prompt{Chain: &prefixindex.Chain{Hashes: chain}}
			q.matchCaches(x)
			return q.matched
		}
		assert.Equal(t, []int{4, 0}, matched(), "it counts from the placement on")
		if !moved {
			x.ConfirmPlacement(placed)
			assert.Equal(t, []int{4, 0}, matched())
			continue
		}
		x.RecordMove(placed, b)
		assert.Equal(t, []int{2, 4}, matched())
		x.WithdrawPlacement(placed)
		assert.Equal(t, []int{2, 0}, matched(), "nobody computed it")
	}
}

func TestAnswered_ScalesWithTheShareOfOthers(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	x.RecordAnswer(e, 15)
	assert.Zero(t, x.IndexStats().Blocks, "less than a block")
	x.RecordAnswer(e, 160)
	assert.Equal(t, 10, x.IndexStats().Blocks)
	x.share.observePage(3, 4)
	x.RecordAnswer(e, 160)
	assert.Equal(t, 50, x.IndexStats().Blocks, "four requests, each with such an answer")
	x.share.observePage(1e9, 1e9)
	x.RecordAnswer(e, 160)
	assert.Equal(t, 150, x.IndexStats().Blocks, "one answer stands for at most ten")
}

func TestReuse(t *testing.T) {
	t.Parallel()
	var r reuseStats
	assert.Zero(t, r.recomputationRate(), "no request yet")
	for range 1000 {
		r.observePrompt(100, 0, 1000)
	}
	assert.False(t, r.isConversational())
	assert.InDelta(t, 100.0/900, r.recomputationRate(), 0.01)
	for range 1000 {
		r.observePrompt(900, 800, 1000)
	}
	assert.InDelta(t, 2, r.recomputationRate(), 0.01, "every prompt recurs, and every conversation continues")
	assert.True(t, r.isConversational())

	var young reuseStats
	young.observePrompt(0, 0, 1000)
	assert.False(t, young.isConversational())
	for range 2 {
		young.observePrompt(0, 500, 1000)
	}
	assert.True(t, young.isConversational(), "few requests are enough")
}
