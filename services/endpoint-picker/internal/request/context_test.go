package request

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

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// fakePool has one endpoint. It records the calls of a request.
type fakePool struct {
	endpoint *endpoint.Endpoint
	result   PickResult // besides the endpoint
	refusal  *Refusal   // of all requests
	calls    []string
	placing  context.Context
	body     string // of the last request
	record   *Record
	signals  []HealthSignal
	busy     time.Time // until the load of a failed request ends
}

var errRefused = errors.New("not today")

func newFakePool() *fakePool {
	id := endpoint.Identity{Address: netip.MustParseAddrPort("10.0.0.1:8000")}
	return &fakePool{endpoint: endpoint.New(endpoint.Description{Identity: id}, noon, nil)}
}

func (p *fakePool) call(name string) { p.calls = append(p.calls, name) }

func (p *fakePool) PlaceRequest(ctx context.Context, in *PickInput) (PickResult, *Refusal) {
	p.placing, p.body = ctx, in.Incoming.Path+" "+string(in.Incoming.Body)
	p.call("Place")
	result := p.result
	if p.refusal != nil {
		return result, p.refusal
	}
	result.Endpoint, result.Placements[Decode], result.Pending = p.endpoint, p.endpoint.Acquire(), p
	return result, nil
}

func (*fakePool) OnRequestStart()          {}
func (p *fakePool) OnRequestEnd(r *Record) { p.call(string(r.Outcome)) }

func (p *fakePool) CommitPick(r *Record) ResponseObserver {
	p.call("Commit")
	if p.record = r; r.Placed {
		p.call("placed")
	}
	return p
}

func (p *fakePool) DiscardPick() { p.call("Discard") }

func (p *fakePool) ObserveResponder() { p.call("Responded") }
func (p *fakePool) ObserveContent()   { p.call("Began") }
func (p *fakePool) ObserveAnswer()    { p.call("Completed") }

func (p *fakePool) ObserveAttempt(address string, _ int, failure string) {
	p.call("Failed " + address + ": " + failure)
}

func (p *fakePool) ObserveHealth(h HealthReport) time.Time {
	p.signals = append(p.signals, h.Signal)
	return p.busy
}

func begin(p Pool) *Context {
	rc := &Context{}
	rc.StartRequest(p, &Options{Now: func() time.Time { return noon }})
	return rc
}

// TestContext_End ends requests at every stage.
func TestContext_End(t *testing.T) {
	t.Parallel()
	decide := func(rc *Context) { rc.PickEndpoint(context.Background(), nil) }
	sent := func(rc *Context) { rc.ConfirmSent() }
	respond := func(rc *Context) { rc.OnResponseHeaders(&ResponseHeaders{Status: 200}) }
	piece := func(rc *Context) { rc.OnResponseChunk([]byte("x")) }
	picked := []string{"Place"}
	tests := []struct {
		name      string
		steps     []func(rc *Context)
		want      Outcome
		wantCalls []string
		wantOpen  int64 // leases that count until a scrape shows the request
	}{
		{name: "nothing", want: Unpicked},
		{name: "response of the gateway", steps: []func(rc *Context){respond, (*Context).OnResponseEnd}, want: Unpicked},
		{name: "refused", steps: []func(rc *Context){func(rc *Context) { rc.RefuseRequest(TooLarge(1)) }}, want: Refused},
		{name: "pick was not sent", steps: []func(rc *Context){decide}, want: Unseen, wantCalls: append(picked, "Discard")},
		{name: "no response", steps: []func(rc *Context){decide, sent, sent}, want: Unseen, wantCalls: append(picked, "Commit",
			"placed"), wantOpen: 1},
		{
			name: "response without its body", want: Unseen, wantOpen: 1,
			steps: []func(rc *Context){decide, sent, func(rc *Context) {
				rc.OnResponseHeaders(&ResponseHeaders{Status: 200,
					Hidden: true})
			}},
			wantCalls: append(picked, "Commit", "placed", "Responded"),
		},
		{
			name: "end of a response without its body", want: Completed,
			steps: []func(rc *Context){decide, sent, func(rc *Context) {
				rc.OnResponseHeaders(&ResponseHeaders{Status: 200,
					Hidden: true})
			}, (*Context).OnResponseEnd},
			wantCalls: append(picked, "Commit", "placed", "Responded", "Completed"),
		},
		{name: "during the response", steps: []func(rc *Context){decide, sent, respond}, want: Interrupted, wantCalls: append(picked,
			"Commit", "placed", "Responded")},
		{
			name: "complete", steps: []func(rc *Context){decide, sent, respond, (*Context).OnResponseEnd}, want: Completed,
			wantCalls: append(picked, "Commit", "placed", "Responded", "Completed"),
		},
		{
			name: "complete, in pieces", want: Completed,
			steps:     []func(rc *Context){decide, sent, respond, piece, piece, (*Context).OnResponseEnd},
			wantCalls: append(picked, "Commit", "placed", "Responded", "Completed"),
		},
		{
			name: "an error with a body", want: Completed,
			steps: []func(rc *Context){decide, sent, func(rc *Context) { rc.OnResponseHeaders(&ResponseHeaders{Status: 500}) },
				piece, (*Context).OnResponseEnd},
			wantCalls: append(picked, "Commit", "placed", "Responded", "Completed"),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newFakePool()
			rc := begin(pool)
			for _, step := range tt.steps {
				step(rc)
			}
			rc.EndRequest(nil)
			assert.Equal(t, append(tt.wantCalls, string(tt.want)), pool.calls)
			assert.Equal(t, tt.wantOpen, pool.endpoint.StatsAt(noon).InFlight)
		})
	}
}

// TestContext_EndOfARequestWithTwoEndpoints has one endpoint that computes the prompt, and one that answers.
func TestContext_EndOfARequestWithTwoEndpoints(t *testing.T) {
	t.Parallel()
	both := [roles]int64{Decode: 1, Prefill: 1}
	unseen := func(*Context) {}
	begun := func(rc *Context) {
		rc.OnResponseHeaders(&ResponseHeaders{Status: 200})
		rc.OnResponseChunk([]byte("data: text\n\n"))
	}
	tests := []struct {
		name                  string
		steps                 func(rc *Context)
		wantDuring, wantAfter [roles]int64 // requests in flight before and after the end
	}{
		{name: "no response", steps: unseen, wantDuring: both, wantAfter: both},
		{name: "response without content", steps: func(rc *Context) { rc.OnResponseHeaders(&ResponseHeaders{Status: 200}) },
			wantDuring: both},
		{name: "the prompt is computed when the answer begins", steps: begun, wantDuring: [roles]int64{Decode: 1}},
		{name: "complete", steps: func(rc *Context) { begun(rc); rc.OnResponseEnd() }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, prefill := newFakePool(), newFakePool().endpoint
			rc := begin(pool)
			require.Nil(t, rc.PickEndpoint(context.Background(), nil))
			rc.Placements[Prefill] = prefill.Acquire()
			rc.ConfirmSent()
			tt.steps(rc)
			inFlight := func() [roles]int64 {
				return [roles]int64{Decode: pool.endpoint.StatsAt(noon).InFlight, Prefill: prefill.StatsAt(noon).InFlight}
			}
			assert.Equal(t, tt.wantDuring, inFlight())
			rc.EndRequest(nil)
			assert.Equal(t, tt.wantAfter, inFlight())
		})
	}
}

func TestContext_EndWithAnError(t *testing.T) {
	t.Parallel()
	pool := newFakePool()
	rc := begin(pool)
	require.Nil(t, rc.PickEndpoint(context.Background(), nil))
	rc.ConfirmSent()
	rc.EndRequest(status.Error(codes.InvalidArgument, "message out of order"))
	assert.Equal(t, Failed, rc.Outcome)
	assert.Equal(t, codes.InvalidArgument, rc.Code)
	assert.EqualValues(t, 1, pool.endpoint.StatsAt(noon).InFlight, "the server may still have the request")
}

func TestContext_DecideRefuses(t *testing.T) {
	t.Parallel()
	pool := newFakePool()
	pool.refusal, pool.result.Model = Exhausted(errRefused), "m"
	rc := begin(pool)
	refusal := rc.PickEndpoint(context.Background(), nil)
	require.ErrorIs(t, refusal.Cause, errRefused)
	rc.ConfirmSent()
	rc.EndRequest(nil)
	assert.Equal(t, []string{"Place", "refused"}, pool.calls)
	assert.Equal(t, 429, rc.Status)
	assert.Equal(t, ReasonSaturated, rc.Reason)
	assert.Equal(t, "m", rc.Model, "what the pick found out before")
}

func TestContext_DecideShowsTheBodyOnlyToThePick(t *testing.T) {
	t.Parallel()
	pool := newFakePool()
	pool.result.Remove = []string{"x-picked"}
	rc := begin(pool)
	rc.SetRequestHeaders(&IncomingHeaders{Path: "/v1/completions", Private: []string{"x-private"}})
	type key struct{}
	ctx := context.WithValue(context.Background(), key{}, 1)
	require.Nil(t, rc.PickEndpoint(ctx, []byte("body")))
	assert.Equal(t, "/v1/completions body", pool.body)
	assert.Equal(t, ctx, pool.placing, "a pick that waits sees the end of the stream")
	assert.Equal(t, api.Incoming{}, rc.Input.Incoming)
	assert.Equal(t, []string{"x-private", "x-picked"}, rc.Remove)
}

func TestContext_ReceiveIdentifiesTheRequest(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]api.Headers{"": {{Name: "x-request-id", Value: "new"}}, "old": nil} {
		rc := &Context{}
		rc.StartRequest(newFakePool(), &Options{Now: func() time.Time { return noon }, NewID: func() string { return "new" }})
		rc.SetRequestHeaders(&IncomingHeaders{ID: given})
		require.Nil(t, rc.PickEndpoint(context.Background(), nil))
		assert.Equal(t, cmp.Or(given, "new"), rc.RequestID)
		assert.Equal(t, want, rc.Set)
	}
}

func TestContext_Chunk(t *testing.T) {
	t.Parallel()
	ticks := noon
	pool, rc := newFakePool(), &Context{}
	rc.StartRequest(pool, &Options{Now: func() time.Time { ticks = ticks.Add(time.Second); return ticks }})
	rc.OnResponseChunk([]byte("of the gateway itself"))
	require.Nil(t, rc.PickEndpoint(context.Background(), nil))
	rc.ConfirmSent()
	rc.OnResponseHeaders(&ResponseHeaders{Status: 200, Events: true})
	rc.OnResponseChunk(nil)
	pieces := []string{
		": keep-alive\n\n", `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}` + "\n\n", `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n" + `data: {"cho`,
		`ices":[{"delta":{"content":"b"}}]}` + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":3,`, `"completion_tokens":4}}` + "\n\ndata: [DONE]\n\n",
		": keep-alive\n\n",
	}
	for _, piece := range pieces {
		rc.OnResponseChunk([]byte(piece))
	}
	rc.OnResponseEnd()
	rc.EndRequest(nil)
	r := &rc.Record
	assert.Equal(t, api.Usage{Known: true, Prompt: 3, Output: 4}, r.Usage)
	assert.Equal(t, 2, r.ContentPieces)
	assert.Equal(t, len(strings.Join(pieces, "")), r.ResponseBytes)
	assert.True(t, r.Streaming)
	assert.Equal(t, noon.Add(3*time.Second), r.FirstContent)
	assert.Equal(t, noon.Add(4*time.Second), r.LastContent)
}

func TestContext_RestoreIsDroppedIfTheBodyCannotBeRewritten(t *testing.T) {
	t.Parallel()
	for _, r := range []ResponseHeaders{{Encoded: true}, {Hidden: true}} {
		rc := begin(newFakePool())
		rc.Restore = api.NewModelRenamer("a", []byte(`"b"`))
		rc.OnResponseHeaders(&r)
		assert.Nil(t, rc.Restore)
	}
}

// TestContext_OfACarrierThatSeesNoBody reports the first token and the usage.
func TestContext_OfACarrierThatSeesNoBody(t *testing.T) {
	t.Parallel()
	rc, used := begin(newFakePool()), api.Usage{Known: true, Prompt: 3, Output: 4}
	rc.OnFirstToken(noon) // before the pick there is no answer
	require.Nil(t, rc.PickEndpoint(context.Background(), nil))
	rc.ConfirmSent()
	rc.OnResponseHeaders(&ResponseHeaders{Status: 200})
	first := noon.Add(time.Second)
	rc.OnFirstToken(first)
	rc.OnFirstToken(first.Add(time.Second))
	rc.Usage = used
	rc.OnResponseEnd()
	rc.EndRequest(nil)
	assert.Equal(t, Completed, rc.Outcome)
	assert.Equal(t, first, rc.FirstContent)
	assert.Equal(t, used, rc.Usage)
}
