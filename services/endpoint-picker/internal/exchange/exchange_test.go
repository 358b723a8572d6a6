package exchange

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fairlead.dev/services/endpoint-picker/internal/answer"
	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// fakePool has one endpoint. It records the calls of an exchange.
type fakePool struct {
	endpoint *endpoint.Endpoint
	calls    []string
	refuse   string // the call that refuses the request
	admitted context.Context
	body     string // of the last request
	verdicts []Verdict
	busy     time.Time // until the load of a failed request ends
}

var errRefused = errors.New("not today")

func newFakePool() *fakePool {
	id := endpoint.Identity{Address: netip.MustParseAddrPort("10.0.0.1:8000")}
	return &fakePool{endpoint: endpoint.New(endpoint.Description{Identity: id}, noon, nil)}
}

func (p *fakePool) call(name string) *Refusal {
	p.calls = append(p.calls, name)
	if name == p.refuse {
		return Exhausted(errRefused)
	}
	return nil
}

func (p *fakePool) Prepare(x *Exchange) (Pick, *Refusal) {
	p.body = x.Incoming.Path + " " + string(x.Incoming.Body)
	return &fakePick{p, x}, p.call("Prepare")
}

func (p *fakePool) Picked(_ *Exchange, refusal *Refusal) {
	name := "Picked"
	if refusal != nil {
		name = "Refused"
	}
	p.call(name)
}

func (*fakePool) Began()              {}
func (p *fakePool) Ended(x *Exchange) { p.call(string(x.Outcome)) }

func (p *fakePool) Sent(r *Record) {
	if r.Placed {
		p.call("placed")
	}
}

// fakePick is the pick of one request.
type fakePick struct {
	*fakePool

	exchange *Exchange
}

func (p *fakePick) Admit(ctx context.Context) *Refusal {
	p.admitted = ctx
	return p.call("Admit")
}

func (p *fakePick) Place() *Refusal {
	if r := p.call("Place"); r != nil {
		return r
	}
	p.exchange.Endpoint, p.exchange.Placements[Decode] = p.endpoint, p.endpoint.Acquire()
	return nil
}

func (p *fakePick) Sent() Follower {
	p.call("Sent")
	return p
}

func (p *fakePick) Responded() { p.call("Responded") }
func (p *fakePick) Began()     { p.call("Began") }
func (p *fakePick) Completed() { p.call("Completed") }

func (p *fakePick) Failed(address, failure string) { p.call("Failed " + address + ": " + failure) }

func (p *fakePick) Judged(v Verdict) time.Time {
	p.verdicts = append(p.verdicts, v)
	return p.busy
}

func (p *fakePick) Discard() { p.call("Discard") }

func begin(p Pool) *Exchange {
	x := &Exchange{}
	x.Begin(p, &Options{Now: func() time.Time { return noon }})
	return x
}

// TestExchange_End ends exchanges at every stage.
func TestExchange_End(t *testing.T) {
	t.Parallel()
	decide := func(x *Exchange) { x.Decide(context.Background(), nil) }
	sent := func(x *Exchange) { x.Sent() }
	respond := func(x *Exchange) { x.Respond(&Response{Status: 200}) }
	piece := func(x *Exchange) { x.Chunk([]byte("x")) }
	picked := []string{"Prepare", "Admit", "Place", "Picked"}
	tests := []struct {
		name      string
		steps     []func(x *Exchange)
		want      Outcome
		wantCalls []string
		wantOpen  int64 // leases that count until a scrape shows the request
	}{
		{name: "nothing", want: Unpicked},
		{name: "response of the gateway", steps: []func(x *Exchange){respond, (*Exchange).Complete}, want: Unpicked},
		{name: "refused", steps: []func(x *Exchange){func(x *Exchange) { x.Refuse(TooLarge(1)) }}, want: Refused},
		{name: "pick was not sent", steps: []func(x *Exchange){decide}, want: Unseen, wantCalls: append(picked, "Discard")},
		{name: "no response", steps: []func(x *Exchange){decide, sent, sent}, want: Unseen, wantCalls: append(picked, "Sent", "placed"), wantOpen: 1},
		{
			name: "response without its body", want: Unseen, wantOpen: 1,
			steps:     []func(x *Exchange){decide, sent, func(x *Exchange) { x.Respond(&Response{Status: 200, Hidden: true}) }},
			wantCalls: append(picked, "Sent", "placed", "Responded"),
		},
		{
			name: "end of a response without its body", want: Completed,
			steps:     []func(x *Exchange){decide, sent, func(x *Exchange) { x.Respond(&Response{Status: 200, Hidden: true}) }, (*Exchange).Complete},
			wantCalls: append(picked, "Sent", "placed", "Responded", "Completed"),
		},
		{name: "during the response", steps: []func(x *Exchange){decide, sent, respond}, want: Interrupted, wantCalls: append(picked, "Sent", "placed", "Responded")},
		{
			name: "complete", steps: []func(x *Exchange){decide, sent, respond, (*Exchange).Complete}, want: Completed,
			wantCalls: append(picked, "Sent", "placed", "Responded", "Completed"),
		},
		{
			name: "complete, in pieces", want: Completed,
			steps:     []func(x *Exchange){decide, sent, respond, piece, piece, (*Exchange).Complete},
			wantCalls: append(picked, "Sent", "placed", "Responded", "Completed"),
		},
		{
			name: "an error with a body", want: Completed,
			steps:     []func(x *Exchange){decide, sent, func(x *Exchange) { x.Respond(&Response{Status: 500}) }, piece, (*Exchange).Complete},
			wantCalls: append(picked, "Sent", "placed", "Responded", "Completed"),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newFakePool()
			x := begin(pool)
			for _, step := range tt.steps {
				step(x)
			}
			x.End(nil)
			assert.Equal(t, append(tt.wantCalls, string(tt.want)), pool.calls)
			assert.Equal(t, tt.wantOpen, pool.endpoint.Stats(noon).InFlight)
		})
	}
}

// TestExchange_EndOfARequestWithTwoEndpoints has one endpoint that computes the prompt, and one that answers.
func TestExchange_EndOfARequestWithTwoEndpoints(t *testing.T) {
	t.Parallel()
	both := [roles]int64{Decode: 1, Prefill: 1}
	unseen := func(*Exchange) {}
	begun := func(x *Exchange) {
		x.Respond(&Response{Status: 200})
		x.Chunk([]byte("data: text\n\n"))
	}
	tests := []struct {
		name                  string
		steps                 func(x *Exchange)
		wantDuring, wantAfter [roles]int64 // requests in flight before and after the end
	}{
		{name: "no response", steps: unseen, wantDuring: both, wantAfter: both},
		{name: "response without content", steps: func(x *Exchange) { x.Respond(&Response{Status: 200}) }, wantDuring: both},
		{name: "the prompt is computed when the answer begins", steps: begun, wantDuring: [roles]int64{Decode: 1}},
		{name: "complete", steps: func(x *Exchange) { begun(x); x.Complete() }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, prefill := newFakePool(), newFakePool().endpoint
			x := begin(pool)
			require.Nil(t, x.Decide(context.Background(), nil))
			x.Placements[Prefill] = prefill.Acquire()
			x.Sent()
			tt.steps(x)
			inFlight := func() [roles]int64 {
				return [roles]int64{Decode: pool.endpoint.Stats(noon).InFlight, Prefill: prefill.Stats(noon).InFlight}
			}
			assert.Equal(t, tt.wantDuring, inFlight())
			x.End(nil)
			assert.Equal(t, tt.wantAfter, inFlight())
		})
	}
}

func TestExchange_EndWithAnError(t *testing.T) {
	t.Parallel()
	pool := newFakePool()
	x := begin(pool)
	require.Nil(t, x.Decide(context.Background(), nil))
	x.Sent()
	x.End(status.Error(codes.InvalidArgument, "message out of order"))
	assert.Equal(t, Failed, x.Outcome)
	assert.Equal(t, codes.InvalidArgument, x.Code)
	assert.EqualValues(t, 1, pool.endpoint.Stats(noon).InFlight, "the server may still have the request")
}

func TestExchange_DecideRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		refuse string
		want   []string
	}{
		{refuse: "Prepare", want: []string{"Prepare", "Refused"}},
		{refuse: "Admit", want: []string{"Prepare", "Admit", "Discard", "Refused"}},
		{refuse: "Place", want: []string{"Prepare", "Admit", "Place", "Discard", "Refused"}},
	}
	for _, tt := range tests {
		t.Run(tt.refuse, func(t *testing.T) {
			t.Parallel()
			pool := newFakePool()
			pool.refuse = tt.refuse
			x := begin(pool)
			refusal := x.Decide(context.Background(), nil)
			require.ErrorIs(t, refusal.Cause, errRefused)
			x.Sent()
			x.End(nil)
			assert.Equal(t, append(tt.want, "refused"), pool.calls)
			assert.Equal(t, 429, x.Status)
			assert.Equal(t, ReasonSaturated, x.Reason)
		})
	}
}

func TestExchange_DecideShowsTheBodyOnlyToThePick(t *testing.T) {
	t.Parallel()
	pool := newFakePool()
	x := begin(pool)
	x.Receive(&Request{Path: "/v1/completions", Private: []string{"x-private"}})
	type key struct{}
	ctx := context.WithValue(context.Background(), key{}, 1)
	require.Nil(t, x.Decide(ctx, []byte("body")))
	assert.Equal(t, "/v1/completions body", pool.body)
	assert.Equal(t, ctx, pool.admitted, "a pick that waits sees the end of the stream")
	assert.Equal(t, api.Incoming{}, x.Incoming)
	assert.Equal(t, []string{"x-private"}, x.Remove)
}

func TestExchange_ReceiveIdentifiesTheRequest(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]api.Headers{"": {{Name: "x-request-id", Value: "new"}}, "old": nil} {
		x := &Exchange{}
		x.Begin(newFakePool(), &Options{Now: func() time.Time { return noon }, NewID: func() string { return "new" }})
		x.Receive(&Request{ID: given})
		require.Nil(t, x.Decide(context.Background(), nil))
		assert.Equal(t, cmp.Or(given, "new"), x.RequestID)
		assert.Equal(t, want, x.Set)
	}
}

func TestExchange_Chunk(t *testing.T) {
	t.Parallel()
	ticks := noon
	pool, x := newFakePool(), &Exchange{}
	x.Begin(pool, &Options{Now: func() time.Time { ticks = ticks.Add(time.Second); return ticks }})
	x.Chunk([]byte("of the gateway itself"))
	require.Nil(t, x.Decide(context.Background(), nil))
	x.Sent()
	x.Respond(&Response{Status: 200, Events: true})
	x.Chunk(nil)
	pieces := []string{
		": keep-alive\n\n", `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}` + "\n\n", `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n" + `data: {"cho`,
		`ices":[{"delta":{"content":"b"}}]}` + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":3,`, `"completion_tokens":4}}` + "\n\ndata: [DONE]\n\n",
		": keep-alive\n\n",
	}
	for _, piece := range pieces {
		x.Chunk([]byte(piece))
	}
	x.Complete()
	x.End(nil)
	r := &x.Record
	assert.Equal(t, answer.Usage{Known: true, Prompt: 3, Output: 4}, r.Usage)
	assert.Equal(t, 2, r.Pieces)
	assert.Equal(t, len(strings.Join(pieces, "")), r.ResponseBytes)
	assert.True(t, r.Streaming)
	assert.Equal(t, noon.Add(4*time.Second), r.First)
	assert.Equal(t, noon.Add(5*time.Second), r.Last)
	assert.Equal(t, time.Second, r.PickTook)
}

func TestExchange_RestoreIsDroppedIfTheBodyCannotBeRewritten(t *testing.T) {
	t.Parallel()
	for _, r := range []Response{{Encoded: true}, {Hidden: true}} {
		x := begin(newFakePool())
		x.Restore = answer.NewRenamer("a", []byte(`"b"`))
		x.Respond(&r)
		assert.Nil(t, x.Restore)
	}
}

// TestExchange_OfACarrierThatSeesNoBody reports the first token and the usage.
func TestExchange_OfACarrierThatSeesNoBody(t *testing.T) {
	t.Parallel()
	x, used := begin(newFakePool()), answer.Usage{Known: true, Prompt: 3, Output: 4}
	x.FirstToken(noon) // before the pick there is no answer
	require.Nil(t, x.Decide(context.Background(), nil))
	x.Sent()
	x.Respond(&Response{Status: 200})
	first := noon.Add(time.Second)
	x.FirstToken(first)
	x.FirstToken(first.Add(time.Second))
	x.Usage = used
	x.Complete()
	x.End(nil)
	assert.Equal(t, Completed, x.Outcome)
	assert.Equal(t, first, x.First)
	assert.Equal(t, used, x.Usage)
}
