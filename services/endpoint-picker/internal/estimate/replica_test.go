package estimate

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// wire passes the events of one Estimator to another one, whose endpoints have the same addresses.
type wire struct {
	to        *Replica
	endpoints []*endpoint.Endpoint
	events    []Event
	now       time.Time
}

func (w *wire) PublishEvent(e Event) {
	w.events = append(w.events, e)
	if e.Endpoint != nil {
		i := slices.IndexFunc(w.endpoints, func(o *endpoint.Endpoint) bool { return o.Address() == e.Endpoint.Address() })
		e.Endpoint = w.endpoints[i]
	}
	w.to.ApplyEvent(e, w.now)
}

// pair is a replica that places requests, and one that hears of them. Each has two endpoints.
type pair struct {
	placing, hearing *Estimator
	here, there      []*endpoint.Endpoint
	wire             *wire
}

func newPair() *pair {
	p := &pair{placing: newTestEstimator(1 << 20), hearing: newTestEstimator(1 << 20)}
	for i := range byte(2) {
		p.here, p.there = append(p.here, p.placing.addEndpoint(1+i)), append(p.there, p.hearing.addEndpoint(1+i))
	}
	p.wire = &wire{to: p.hearing.NewReplica(), endpoints: p.there, now: noon}
	p.placing.SetPublisher(p.wire)
	return p
}

func (p *pair) assertSame(t *testing.T, when string) {
	t.Helper()
	for i := range p.here {
		assert.Equal(t, ServerOf(p.here[i]).counts(), ServerOf(p.there[i]).counts(), "%s, endpoint %d", when, i)
		assert.InDelta(t, p.here[i].Load().Open, p.there[i].Load().Open, 1e-9, "%s, endpoint %d", when, i)
	}
}

func TestReplica_SeesTheRequestsOfAnother(t *testing.T) {
	t.Parallel()
	for _, answer := range []AnswerMode{Streamed, Whole} {
		p := newPair()
		prompt := &Prompt{Chain: &prefixindex.Chain{}, Tokens: 400}
		prompt.Chain.Reset(1, 100)
		prompt.Chain.Write(make([]byte, 400*4))
		p.placing.Lookup(prompt, p.here, noon)
		l := prompt.PlaceOn(p.here[0], noon, answer)
		p.assertSame(t, "placed")
		p.placing.RecordPlacement(prompt, p.here[0], &Expectation{})
		p.hearing.Lookup(prompt, p.there, noon)
		assert.Equal(t, 384, prompt.Estimate(p.there[0], &endpoint.Load{Sample: p.there[0].Sample()}).Cached)
		l.MoveTo(p.here[1], noon)
		p.assertSame(t, "moved")
		l.MarkFirstContent(after(1))
		p.assertSame(t, "first token")
		l.Release()
		p.assertSame(t, "ended")
		assert.Empty(t, p.wire.to.requests)
		p.placing.RecordAnswer(p.here[1], 320)
		blocks, _ := p.hearing.CacheSize(p.there[1])
		assert.Equal(t, 20, blocks)
	}
}

// What another replica placed is load of the endpoint, but no figure of this replica.
func TestReplica_HasNoPartInOurMetrics(t *testing.T) {
	t.Parallel()
	p := newPair()
	leases := []*endpoint.Lease{ServerOf(p.here[0]).placeStreamed(p.here[0], noon, Prefill{Tokens: 100}),
		ServerOf(p.here[0]).placeStreamed(p.here[0], noon, Prefill{Tokens: 50})}
	stats, load := p.there[0].StatsAt(noon), p.there[0].Load()
	assert.Equal(t, [3]int64{}, [3]int64{stats.InFlight, stats.Picks, stats.Backlog})
	assert.InDelta(t, 2, load.Requests, 1e-9)
	assert.Equal(t, int64(150), ServerOf(p.there[0]).Backlog())
	leases[0].MoveTo(p.here[1], noon)
	leases[1].Release()
	leases[0].Release()
	for _, e := range p.there {
		stats = e.StatsAt(noon)
		assert.Equal(t, [3]int64{}, [3]int64{stats.InFlight, stats.Picks, stats.Backlog})
		assert.Zero(t, e.Load().Open)
	}
}

// A replica that is gone has requests on its servers still: they count until a page shows them.
func TestReplica_IsLost(t *testing.T) {
	t.Parallel()
	p := newPair()
	ServerOf(p.here[0]).placeStreamed(p.here[0], noon, Prefill{Tokens: 100})
	p.wire.to.Close(after(1))
	assert.Empty(t, p.wire.to.requests)
	assert.Equal(t, [3]int64{}, ServerOf(p.there[0]).counts())
	assert.InDelta(t, 1, p.there[0].Load().Requests, 1e-9)
	p.there[0].RecordSample(p.there[0].StartScrape(after(2)), endpoint.Gauges{})
	assert.Zero(t, p.there[0].Load().Requests)
	assert.Zero(t, p.there[0].StatsAt(noon).InFlight)
}

// A replica may be broken, or another version.
func TestReplica_HostileEvents(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	r := x.NewReplica()
	for _, kind := range []EventKind{0, EventFirst, EventMoved, EventEnded, EventLost, 200} {
		r.ApplyEvent(Event{Kind: kind, Request: 7, Endpoint: e}, noon)
	}
	assert.Zero(t, e.Load().Open)
	for range 2 { // the second one is the same request
		r.ApplyEvent(Event{Kind: EventBegun, Request: 1, Endpoint: e, Tokens: 1 << 62}, noon)
	}
	assert.Equal(t, [3]int64{1, maxRemoteTokens, 0}, ServerOf(e).counts())
	r.ApplyEvent(Event{Kind: EventBegun, Request: 2, Endpoint: e, Tokens: -5}, noon)
	assert.Equal(t, [3]int64{2, maxRemoteTokens + 1, 0}, ServerOf(e).counts())
	for i := range uint64(maxRemoteRequests + 10) {
		r.ApplyEvent(Event{Kind: EventBegun, Request: i, Endpoint: e, Tokens: 1}, noon)
	}
	assert.Len(t, r.requests, maxRemoteRequests)
	r.Close(noon)
	assert.Equal(t, [3]int64{}, ServerOf(e).counts())
}

func TestEstimator_Contents(t *testing.T) {
	t.Parallel()
	p := newPair()
	p.placing.SetPublisher(nil)
	var prompts []*Prompt
	for i := range 20 {
		prompt := turn("system", i%7, i%3)
		p.placing.Lookup(prompt, p.here, noon)
		p.placing.RecordPlacement(prompt, p.here[i%2], &Expectation{})
		p.placing.RecordAnswer(p.here[i%2], 100)
		prompts = append(prompts, prompt)
	}
	for _, e := range p.placing.Contents(p.here) {
		p.wire.PublishEvent(e)
	}
	require.NotEmpty(t, p.wire.events)
	for i := range p.here {
		want, _ := p.placing.CacheSize(p.here[i])
		got, _ := p.hearing.CacheSize(p.there[i])
		assert.Equal(t, want, got)
	}
	for _, prompt := range prompts {
		p.placing.Lookup(prompt, p.here, noon)
		want := slices.Clone(prompt.matched)
		p.hearing.Lookup(prompt, p.there, noon)
		assert.Equal(t, want, prompt.matched)
	}
	assert.Empty(t, p.placing.Contents(nil))
}
