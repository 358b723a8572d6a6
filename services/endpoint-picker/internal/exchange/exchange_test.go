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
	verdicts []HealthSignal
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

func (p *fakePool) PreparePick(x *RequestContext) (Pick, *Refusal) {
	p.body = x.Incoming.Path + " " + string(x.Incoming.Body)
	return &fakePick{p, x}, p.call("Prepare")
}

func (p *fakePool) OnPick(_ *RequestContext, refusal *Refusal) {
	name := "Picked"
	if refusal != nil {
		name = "Refused"
	}
	p.call(name)
}

func (*fakePool) OnStart()                  {}
func (p *fakePool) OnEnd(x *RequestContext) { p.call(string(x.Outcome)) }

func (p *fakePool) OnSend(r *Record) {
	if r.Placed {
		p.call("placed")
	}
}

// fakePick is the pick of one request.
type fakePick struct {
	*fakePool

	exchange *RequestContext
}

func (p *fakePick) Admit(ctx context.Context) *Refusal {
	p.admitted = ctx
	return p.call("Admit")
}

func (p *fakePick) PlaceRequest() *Refusal {
	if r := p.call("Place"); r != nil {
		return r
	}
	p.exchange.Endpoint, p.exchange.Placements[Decode] = p.endpoint, p.endpoint.Acquire()
	return nil
}

func (p *fakePick) MarkSent() ResponseObserver {
	p.call("Sent")
	return p
}

func (p *fakePick) OnResponseStatus() { p.call("Responded") }
func (p *fakePick) OnFirstContent()   { p.call("Began") }
func (p *fakePick) OnResponseEnd()    { p.call("Completed") }

func (p *fakePick) OnFailedAttempt(address, failure string) {
	p.call("Failed " + address + ": " + failure)
}

func (p *fakePick) OnHealthSignal(v HealthSignal) time.Time {
	p.verdicts = append(p.verdicts, v)
	return p.busy
}

func (p *fakePick) Discard() { p.call("Discard") }

func begin(p Pool) *RequestContext {
	x := &RequestContext{}
	x.Start(p, &Options{Now: func() time.Time { return noon }})
	return x
}

// TestExchange_End ends exchanges at every stage.
func TestExchange_End(t *testing.T) {
	t.Parallel()
	decide := func(x *RequestContext) { x.PickEndpoint(context.Background(), nil) }
	sent := func(x *RequestContext) { x.MarkSent() }
	respond := func(x *RequestContext) { x.OnResponseHeaders(&ResponseHeaders{Status: 200}) }
	piece := func(x *RequestContext) { x.OnResponseChunk([]byte("x")) }
	picked := []string{"Prepare", "Admit", "Place", "Picked"}
	tests := []struct {
		name      string
		steps     []func(x *RequestContext)
		want      Outcome
		wantCalls []string
		wantOpen  int64 // leases that count until a scrape shows the request
	}{
		{name: "nothing", want: Unpicked},
		{name: "response of the gateway", steps: []func(x *RequestContext){respond, (*RequestContext).OnResponseEnd}, want: Unpicked},
		{name: "refused", steps: []func(x *RequestContext){func(x *RequestContext) { x.RefuseRequest(TooLarge(1)) }}, want: Refused},
		{name: "pick was not sent", steps: []func(x *RequestContext){decide}, want: Unseen, wantCalls: append(picked, "Discard")},
		{name: "no response", steps: []func(x *RequestContext){decide, sent, sent}, want: Unseen, wantCalls: append(picked, "Sent", "placed"), wantOpen: 1},
		{
			name: "response without its body", want: Unseen, wantOpen: 1,
			steps:     []func(x *RequestContext){decide, sent, func(x *RequestContext) { x.OnResponseHeaders(&ResponseHeaders{Status: 200, Hidden: true}) }},
			wantCalls: append(picked, "Sent", "placed", "Responded"),
		},
		{
			name: "end of a response without its body", want: Completed,
			steps:     []func(x *RequestContext){decide, sent, func(x *RequestContext) { x.OnResponseHeaders(&ResponseHeaders{Status: 200, Hidden: true}) }, (*RequestContext).OnResponseEnd},
			wantCalls: append(picked, "Sent", "placed", "Responded", "Completed"),
		},
		{name: "during the response", steps: []func(x *RequestContext){decide, sent, respond}, want: Interrupted, wantCalls: append(picked, "Sent", "placed", "Responded")},
		{
			name: "complete", steps: []func(x *RequestContext){decide, sent, respond, (*RequestContext).OnResponseEnd}, want: Completed,
			wantCalls: append(picked, "Sent", "placed", "Responded", "Completed"),
		},
		{
			name: "complete, in pieces", want: Completed,
			steps:     []func(x *RequestContext){decide, sent, respond, piece, piece, (*RequestContext).OnResponseEnd},
			wantCalls: append(picked, "Sent", "placed", "Responded", "Completed"),
		},
		{
			name: "an error with a body", want: Completed,
			steps:     []func(x *RequestContext){decide, sent, func(x *RequestContext) { x.OnResponseHeaders(&ResponseHeaders{Status: 500}) }, piece, (*RequestContext).OnResponseEnd},
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
			x.EndRequest(nil)
			assert.Equal(t, append(tt.wantCalls, string(tt.want)), pool.calls)
			assert.Equal(t, tt.wantOpen, pool.endpoint.StatsAt(noon).InFlight)
		})
	}
}

// TestExchange_EndOfARequestWithTwoEndpoints has one endpoint that computes the prompt, and one that answers.
func TestExchange_EndOfARequestWithTwoEndpoints(t *testing.T) {
	t.Parallel()
	both := [roles]int64{Decode: 1, Prefill: 1}
	unseen := func(*RequestContext) {}
	begun := func(x *RequestContext) {
		x.OnResponseHeaders(&ResponseHeaders{Status: 200})
		x.OnResponseChunk([]byte("data: text\n\n"))
	}
	tests := []struct {
		name                  string
		steps                 func(x *RequestContext)
		wantDuring, wantAfter [roles]int64 // requests in flight before and after the end
	}{
		{name: "no response", steps: unseen, wantDuring: both, wantAfter: both},
		{name: "response without content", steps: func(x *RequestContext) { x.OnResponseHeaders(&ResponseHeaders{Status: 200}) }, wantDuring: both},
		{name: "the prompt is computed when the answer begins", steps: begun, wantDuring: [roles]int64{Decode: 1}},
		{name: "complete", steps: func(x *RequestContext) { begun(x); x.OnResponseEnd() }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, prefill := newFakePool(), newFakePool().endpoint
			x := begin(pool)
			require.Nil(t, x.PickEndpoint(context.Background(), nil))
			x.Placements[Prefill] = prefill.Acquire()
			x.MarkSent()
			tt.steps(x)
			inFlight := func() [roles]int64 {
				return [roles]int64{Decode: pool.endpoint.StatsAt(noon).InFlight, Prefill: prefill.StatsAt(noon).InFlight}
			}
			assert.Equal(t, tt.wantDuring, inFlight())
			x.EndRequest(nil)
			assert.Equal(t, tt.wantAfter, inFlight())
		})
	}
}

func TestExchange_EndWithAnError(t *testing.T) {
	t.Parallel()
	pool := newFakePool()
	x := begin(pool)
	require.Nil(t, x.PickEndpoint(context.Background(), nil))
	x.MarkSent()
	x.EndRequest(status.Error(codes.InvalidArgument, "message out of order"))
	assert.Equal(t, Failed, x.Outcome)
	assert.Equal(t, codes.InvalidArgument, x.Code)
	assert.EqualValues(t, 1, pool.endpoint.StatsAt(noon).InFlight, "the server may still have the request")
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
			refusal := x.PickEndpoint(context.Background(), nil)
			require.ErrorIs(t, refusal.Cause, errRefused)
			x.MarkSent()
			x.EndRequest(nil)
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
	x.SetRequestHeaders(&RequestHeaders{Path: "/v1/completions", Private: []string{"x-private"}})
	type key struct{}
	ctx := context.WithValue(context.Background(), key{}, 1)
	require.Nil(t, x.PickEndpoint(ctx, []byte("body")))
	assert.Equal(t, "/v1/completions body", pool.body)
	assert.Equal(t, ctx, pool.admitted, "a pick that waits sees the end of the stream")
	assert.Equal(t, api.Incoming{}, x.Incoming)
	assert.Equal(t, []string{"x-private"}, x.Remove)
}

func TestExchange_ReceiveIdentifiesTheRequest(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]api.Headers{"": {{Name: "x-request-id", Value: "new"}}, "old": nil} {
		x := &RequestContext{}
		x.Start(newFakePool(), &Options{Now: func() time.Time { return noon }, NewID: func() string { return "new" }})
		x.SetRequestHeaders(&RequestHeaders{ID: given})
		require.Nil(t, x.PickEndpoint(context.Background(), nil))
		assert.Equal(t, cmp.Or(given, "new"), x.RequestID)
		assert.Equal(t, want, x.Set)
	}
}

func TestExchange_Chunk(t *testing.T) {
	t.Parallel()
	ticks := noon
	pool, x := newFakePool(), &RequestContext{}
	x.Start(pool, &Options{Now: func() time.Time { ticks = ticks.Add(time.Second); return ticks }})
	x.OnResponseChunk([]byte("of the gateway itself"))
	require.Nil(t, x.PickEndpoint(context.Background(), nil))
	x.MarkSent()
	x.OnResponseHeaders(&ResponseHeaders{Status: 200, Events: true})
	x.OnResponseChunk(nil)
	pieces := []string{
		": keep-alive\n\n", `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}` + "\n\n", `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n" + `data: {"cho`,
		`ices":[{"delta":{"content":"b"}}]}` + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":3,`, `"completion_tokens":4}}` + "\n\ndata: [DONE]\n\n",
		": keep-alive\n\n",
	}
	for _, piece := range pieces {
		x.OnResponseChunk([]byte(piece))
	}
	x.OnResponseEnd()
	x.EndRequest(nil)
	r := &x.Record
	assert.Equal(t, answer.Usage{Known: true, Prompt: 3, Output: 4}, r.Usage)
	assert.Equal(t, 2, r.ContentPieces)
	assert.Equal(t, len(strings.Join(pieces, "")), r.ResponseBytes)
	assert.True(t, r.Streaming)
	assert.Equal(t, noon.Add(4*time.Second), r.FirstContent)
	assert.Equal(t, noon.Add(5*time.Second), r.LastContent)
	assert.Equal(t, time.Second, r.PickDuration)
}

func TestExchange_RestoreIsDroppedIfTheBodyCannotBeRewritten(t *testing.T) {
	t.Parallel()
	for _, r := range []ResponseHeaders{{Encoded: true}, {Hidden: true}} {
		x := begin(newFakePool())
		x.Restore = answer.NewRenamer("a", []byte(`"b"`))
		x.OnResponseHeaders(&r)
		assert.Nil(t, x.Restore)
	}
}

// TestExchange_OfACarrierThatSeesNoBody reports the first token and the usage.
func TestExchange_OfACarrierThatSeesNoBody(t *testing.T) {
	t.Parallel()
	x, used := begin(newFakePool()), answer.Usage{Known: true, Prompt: 3, Output: 4}
	x.OnFirstToken(noon) // before the pick there is no answer
	require.Nil(t, x.PickEndpoint(context.Background(), nil))
	x.MarkSent()
	x.OnResponseHeaders(&ResponseHeaders{Status: 200})
	first := noon.Add(time.Second)
	x.OnFirstToken(first)
	x.OnFirstToken(first.Add(time.Second))
	x.Usage = used
	x.OnResponseEnd()
	x.EndRequest(nil)
	assert.Equal(t, Completed, x.Outcome)
	assert.Equal(t, first, x.FirstContent)
	assert.Equal(t, used, x.Usage)
}
