package extproc

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const address = "10.0.0.1:8000"

// one is a picker that knows one endpoint, or none and why.
type one struct {
	mu        sync.Mutex
	endpoint  *endpoint.Endpoint
	refusal   *request.Refusal
	deciding  func(context.Context) // called before a placement
	decision  request.Decision      // besides the endpoint
	scores    []request.Score
	asked     []*scheduling.Subset
	shown     []string // path and body
	headers   []api.Headers
	began     int
	placed    int
	responded []int
	records   []*request.Record // of finished requests
	signals   []request.HealthSignal
}

func newOne() *one {
	return &one{endpoint: estimate.New(prefixindex.NewMemoryBudget(1<<20)).NewEndpoint(endpoint.Description{Identity: endpoint.Identity{Address: netip.MustParseAddrPort(address)}}, noon)}
}

// FindPool returns itself.
func (o *one) FindPool(context.Context) request.Pool { return o }

// PlaceRequest places a request on the endpoint.
func (o *one) PlaceRequest(ctx context.Context, in *request.PickInput) (request.PickResult, *request.Refusal) {
	o.mu.Lock()
	o.asked = append(o.asked, in.Subset)
	o.shown = append(o.shown, in.Incoming.Path+" "+string(in.Incoming.Body))
	o.headers = append(o.headers, in.Incoming.Headers)
	o.mu.Unlock()
	if o.refusal != nil {
		return request.PickResult{}, o.refusal
	}
	if o.deciding != nil {
		o.deciding(ctx)
	}
	result := request.PickResult{Decision: o.decision, Pending: &onePick{one: o}}
	result.Endpoint, result.Destination, result.Scores = o.endpoint, o.endpoint.Address(), o.scores
	result.Placements[request.Decode] = (&estimate.Prompt{Tokens: 1000}).PlaceOn(o.endpoint, noon, estimate.Streamed)
	return result, nil
}

// onePick is the pick of one request.
type onePick struct {
	*one

	record *request.Record
}

func (p *onePick) CommitPick(r *request.Record) request.ResponseObserver {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.placed++
	p.record = r
	return p
}

func (*onePick) DiscardPick()                       {}
func (*onePick) ObserveContent()                    {}
func (*onePick) ObserveAnswer()                     {}
func (*onePick) ObserveAttempt(string, int, string) {}

func (p *onePick) ObserveHealth(h request.HealthReport) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signals = append(p.signals, h.Signal)
	return time.Time{}
}

func (p *onePick) ObserveResponder() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.responded = append(p.responded, p.record.Status)
}

func (o *one) OnRequestStart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.began++
}

func (o *one) OnRequestEnd(r *request.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.records = append(o.records, r)
}

// close ends the stream of a machine and returns its record.
func (m *Machine) close() *request.Record {
	m.Close(nil)
	return &m.requestContext.Record
}

func (o *one) inFlight() int { return int(o.endpoint.StatsAt(noon).InFlight) }

// Messages, short.
func reply() Message { return answered(200) }
func answered(code int) Message {
	return Message{Kind: ResponseHeaders, Response: request.ResponseHeaders{Status: code}}
}
func headers(m BodyMode) Message { return Message{Kind: RequestHeaders, Modes: Modes{m, m}} }
func tunnel(m BodyMode) Message {
	h := headers(m)
	h.Request.Tunnel = Upgraded | Requested
	return h
}

// offer are the headers of a request with a body that offers a tunnel.
func offer(m BodyMode, length int) Message {
	h := tunnel(m)
	h.Request.Tunnel |= Framed
	h.Request.Length = length
	return h
}
func headersEnd(m BodyMode) Message { h := headers(m); h.EndOfStream = true; return h }
func body(s string) Message         { return Message{Kind: RequestBody, Body: buffer(s)} }
func bodyEnd(s string) Message      { b := body(s); b.EndOfStream = true; return b }
func piece(s string) Message        { return Message{Kind: ResponseBody, Body: buffer(s)} }
func pieceEnd(s string) Message     { p := piece(s); p.EndOfStream = true; return p }

var (
	trailers       = Message{Kind: RequestTrailers}
	answerTrailers = Message{Kind: ResponseTrailers}
)

// Replies, short.
func picked(k Kind) Reply { return Reply{Kind: k, Destination: address} }
func pickedFor(size int) Reply {
	return Reply{Kind: RequestHeaders, Destination: address, Headers: Headers{Set: api.Headers{{Name: "content-length", Value: strconv.Itoa(size)}}}}
}
func goOn(k Kind) Reply                  { return Reply{Kind: k} }
func echo(s string) Reply                { return Reply{Kind: RequestBody, Content: Streamed, Body: buffer(s)} }
func echoEnd(s string) Reply             { e := echo(s); e.EndOfStream = true; return e }
func passed(s string) Reply              { return Reply{Kind: ResponseBody, Content: Streamed, Body: buffer(s)} }
func passedEnd(s string) Reply           { p := passed(s); p.EndOfStream = true; return p }
func refused(r *request.Refusal) []Reply { return []Reply{{Kind: Immediate, Refusal: r}} }

// none is the list of no replies.
var none []Reply

// life are the options of requests at noon.
var life = request.Options{Now: now, Wanted: &request.WantedHeaders{}}

func options() *Options { return &Options{MaxRequestBody: 100, Options: life} }

func now() time.Time { return noon }

// result is the part of a record that the machine alone knows.
type result struct {
	Outcome request.Outcome
	Status  int
	Moved   bool
}

func resultOf(r *request.Record) result { return result{r.Outcome, r.Status, r.HasMoved()} }

func TestMachine(t *testing.T) {
	t.Parallel()
	type step struct {
		give Message
		want []Reply
	}
	unseen := result{Outcome: request.Unseen}
	completed := result{Outcome: request.Completed, Status: 200}
	tests := []struct {
		name    string
		steps   []step
		want    result
		wantErr error
	}{
		{name: "nothing at all", want: result{Outcome: request.Unpicked}},
		{name: "header-only request", want: unseen, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
		}},
		{name: "tunnel", want: result{Outcome: request.Completed, Status: 101}, steps: []step{
			{tunnel(FullDuplex), []Reply{picked(RequestHeaders)}},
			{answered(101), []Reply{goOn(ResponseHeaders)}},
			{piece("hello"), []Reply{passed("hello")}},
			{body("hi"), []Reply{echo("hi")}},
			{piece("you"), []Reply{passed("you")}},
			{bodyEnd("bye"), []Reply{echoEnd("bye")}},
			{pieceEnd(""), []Reply{{Kind: ResponseBody, Content: Streamed, EndOfStream: true}}},
		}},
		{name: "tunnel that the server refuses", want: result{Outcome: request.Completed, Status: 404}, steps: []step{
			{tunnel(FullDuplex), []Reply{picked(RequestHeaders)}},
			{answered(404), []Reply{goOn(ResponseHeaders)}},
			{pieceEnd("no"), []Reply{passedEnd("no")}},
		}},
		{name: "tunnel in the buffered mode", want: result{Outcome: request.Interrupted, Status: 101}, steps: []step{
			{tunnel(Buffered), []Reply{picked(RequestHeaders)}},
			{answered(101), []Reply{goOn(ResponseHeaders)}},
		}},
		{name: "tunnel in pieces that wait", want: result{Outcome: request.Interrupted, Status: 101}, steps: []step{
			{tunnel(Chunked), []Reply{picked(RequestHeaders)}},
			{answered(101), []Reply{goOn(ResponseHeaders)}},
			{body("hi"), []Reply{goOn(RequestBody)}},
			{piece("hello"), []Reply{goOn(ResponseBody)}},
		}},
		{name: "body with the offer of a tunnel, which the server ignores", want: completed, steps: []step{
			{offer(FullDuplex, 3), none},
			{body("a"), none},
			{body("bc"), []Reply{pickedFor(3), echo("abc")}},
			{reply(), []Reply{goOn(ResponseHeaders)}},
			{pieceEnd("d"), []Reply{passedEnd("d")}},
		}},
		{name: "body with the offer of a tunnel, which the server takes", want: result{Outcome: request.Completed, Status: 101}, steps: []step{
			{offer(FullDuplex, 3), none},
			{body("abcde"), []Reply{pickedFor(3), echo("abcde")}},
			{answered(101), []Reply{goOn(ResponseHeaders)}},
			{piece("hello"), []Reply{passed("hello")}},
			{body("f"), []Reply{echo("f")}},
			{bodyEnd(""), []Reply{{Kind: RequestBody, Content: Streamed, EndOfStream: true}}},
			{pieceEnd(""), []Reply{{Kind: ResponseBody, Content: Streamed, EndOfStream: true}}},
		}},
		{name: "body with the offer of a tunnel that ends early", want: unseen, steps: []step{
			{offer(FullDuplex, 3), none},
			{body("a"), none},
			{bodyEnd("b"), []Reply{pickedFor(2), echoEnd("ab")}},
		}},
		{name: "body of unknown length with the offer of a tunnel", want: unseen, steps: []step{
			{offer(FullDuplex, 0), none},
			{body("a"), none},
			{bodyEnd("b"), []Reply{pickedFor(2), echoEnd("ab")}},
		}},
		{name: "body with the offer of a tunnel in the buffered mode", want: unseen, steps: []step{
			{offer(Buffered, 3), []Reply{goOn(RequestHeaders)}},
			{bodyEnd("abc"), []Reply{picked(RequestBody)}},
		}},
		{name: "full duplex holds the header reply", want: unseen, steps: []step{
			{headers(FullDuplex), none},
			{body("a"), none},
			{body("bc"), none},
			{bodyEnd("d"), []Reply{pickedFor(4), echoEnd("abcd")}},
		}},
		{name: "end in an empty message", want: unseen, steps: []step{
			{headers(FullDuplex), none},
			{body("abc"), none},
			{bodyEnd(""), []Reply{pickedFor(3), echoEnd("abc")}},
		}},
		{name: "empty body", want: unseen, steps: []step{
			{headers(FullDuplex), none},
			{body(""), none},
			{bodyEnd(""), []Reply{picked(RequestHeaders), {Kind: RequestBody, Content: Streamed, EndOfStream: true}}},
		}},
		{name: "end delivered twice (envoy#46237)", want: unseen, steps: []step{
			{headers(FullDuplex), none},
			{bodyEnd("abc"), []Reply{pickedFor(3), echoEnd("abc")}},
			{bodyEnd("abc"), none},
			{body("x"), none},
			{trailers, none},
		}},
		{name: "trailers end the request", want: unseen, steps: []step{
			{headers(FullDuplex), none},
			{body("abc"), none},
			{trailers, []Reply{picked(RequestHeaders), echo("abc"), goOn(RequestTrailers)}},
			{trailers, none},
		}},
		{name: "trailers without a body", want: unseen, steps: []step{
			{headers(FullDuplex), none},
			{trailers, []Reply{picked(RequestHeaders), goOn(RequestTrailers)}},
		}},
		{name: "buffered", want: unseen, steps: []step{
			{headers(Buffered), []Reply{goOn(RequestHeaders)}},
			{bodyEnd("abc"), []Reply{picked(RequestBody)}},
			{bodyEnd("abc"), none},
		}},
		{name: "buffered with trailers", want: unseen, steps: []step{
			{headers(Buffered), []Reply{goOn(RequestHeaders)}},
			{body("abc"), []Reply{picked(RequestBody)}},
			{trailers, []Reply{goOn(RequestTrailers)}},
		}},
		{name: "buffered, trailers alone", want: unseen, steps: []step{
			{headers(Buffered), []Reply{goOn(RequestHeaders)}},
			{trailers, []Reply{picked(RequestTrailers)}},
		}},
		{name: "buffered, header-only", want: unseen, steps: []step{{headersEnd(Buffered), []Reply{picked(RequestHeaders)}}}},
		{name: "no body is sent", want: unseen, steps: []step{{headers(None), []Reply{picked(RequestHeaders)}}}},
		{name: "streamed", want: unseen, steps: []step{
			{headers(Chunked), []Reply{picked(RequestHeaders)}},
			{body("abc"), []Reply{goOn(RequestBody)}},
			{bodyEnd("abc"), []Reply{goOn(RequestBody)}},
			{bodyEnd("abc"), none},
		}},
		{name: "streamed with trailers", want: unseen, steps: []step{
			{headers(Chunked), []Reply{picked(RequestHeaders)}},
			{body("abc"), []Reply{goOn(RequestBody)}},
			{trailers, []Reply{goOn(RequestTrailers)}},
			{trailers, none},
		}},
		{name: "whole exchange, each piece echoed as it comes", want: completed, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{reply(), []Reply{goOn(ResponseHeaders)}},
			{piece("data: a\n\n"), []Reply{passed("data: a\n\n")}},
			{piece(""), []Reply{passed("")}},
			{pieceEnd(""), []Reply{passedEnd("")}},
			{pieceEnd(""), none},
		}},
		{name: "response with trailers", want: completed, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{reply(), []Reply{goOn(ResponseHeaders)}},
			{piece("a"), []Reply{passed("a")}},
			{answerTrailers, []Reply{goOn(ResponseTrailers)}},
			{answerTrailers, none},
		}},
		{name: "response without a body", want: completed, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{Message{Kind: ResponseHeaders, Response: request.ResponseHeaders{Status: 200}, EndOfStream: true}, []Reply{goOn(ResponseHeaders)}},
		}},
		{name: "streamed response", want: completed, steps: []step{
			{headersEnd(Chunked), []Reply{picked(RequestHeaders)}},
			{reply(), []Reply{goOn(ResponseHeaders)}},
			{piece("a"), []Reply{goOn(ResponseBody)}},
			{pieceEnd("b"), []Reply{goOn(ResponseBody)}},
		}},
		{name: "buffered response, its trailers not shown", want: completed, steps: []step{
			{headersEnd(Buffered), []Reply{picked(RequestHeaders)}},
			{reply(), []Reply{goOn(ResponseHeaders)}},
			{piece("abc"), []Reply{goOn(ResponseBody)}},
		}},
		{name: "buffered response with trailers", want: completed, steps: []step{
			{headersEnd(Buffered), []Reply{picked(RequestHeaders)}},
			{reply(), []Reply{goOn(ResponseHeaders)}},
			{piece("abc"), []Reply{goOn(ResponseBody)}},
			{answerTrailers, []Reply{goOn(ResponseTrailers)}},
		}},
		{name: "response body is not shown", want: result{Outcome: request.Unseen, Status: 200}, steps: []step{
			{headersEnd(None), []Reply{picked(RequestHeaders)}},
			{reply(), []Reply{goOn(ResponseHeaders)}},
		}},
		{name: "stream ends in the middle of the response", want: result{Outcome: request.Interrupted, Status: 200}, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{reply(), []Reply{goOn(ResponseHeaders)}},
			{piece("a"), []Reply{passed("a")}},
		}},
		{name: "another endpoint served", want: result{Outcome: request.Completed, Status: 502, Moved: true}, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{Message{Kind: ResponseHeaders, Response: request.ResponseHeaders{Status: 502, Served: "10.0.0.2:8000"}, EndOfStream: true},
				[]Reply{goOn(ResponseHeaders)}},
		}},
		{name: "the picked endpoint served", want: result{Outcome: request.Completed, Status: 200}, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{Message{Kind: ResponseHeaders, Response: request.ResponseHeaders{Status: 200, Served: address}, EndOfStream: true},
				[]Reply{goOn(ResponseHeaders)}},
		}},
		{name: "the gateway's own response, before the pick", want: result{Outcome: request.Unpicked, Status: 408}, steps: []step{
			{headers(FullDuplex), none},
			{body("abc"), none},
			{answered(408), []Reply{goOn(ResponseHeaders)}},
			{bodyEnd("d"), none},
			{trailers, none},
			{pieceEnd("timeout"), []Reply{passedEnd("timeout")}},
		}},
		{name: "body over the limit", want: result{Outcome: request.Refused, Status: 413}, steps: []step{
			{headers(FullDuplex), none},
			{body(string(make([]byte, 100))), none},
			{body("x"), refused(request.TooLarge(100))},
			{bodyEnd("y"), none},
			{trailers, none},
			{reply(), none},
			{headers(FullDuplex), none},
		}},
		{name: "body at the limit", want: unseen, steps: []step{
			{headers(FullDuplex), none},
			{body(string(make([]byte, 100))), none},
			{bodyEnd(""), []Reply{pickedFor(100), echoEnd(string(make([]byte, 100)))}},
		}},
		{name: "buffered body over the limit", want: result{Outcome: request.Refused, Status: 413}, steps: []step{
			{headers(Buffered), []Reply{goOn(RequestHeaders)}},
			{bodyEnd(string(make([]byte, 101))), refused(request.TooLarge(100))},
		}},
		{name: "body first", want: result{Outcome: request.Refused, Status: 400}, steps: []step{
			{bodyEnd("abc"), refused(request.BadRequest(errBodyFirst))},
		}},
		{name: "trailers first", want: result{Outcome: request.Refused, Status: 400}, steps: []step{
			{trailers, refused(request.BadRequest(errTrailersFirst))},
		}},
		{name: "response first", want: result{Outcome: request.Unpicked, Status: 200}, steps: []step{
			{reply(), []Reply{goOn(ResponseHeaders)}},
		}},
		{name: "message about nothing", want: unseen, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{Message{}, none},
		}},
		{name: "second headers", want: unseen, wantErr: errOrder, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{headersEnd(FullDuplex), none},
		}},
		{name: "headers after the response", want: result{Outcome: request.Unpicked, Status: 200}, wantErr: errOrder, steps: []step{
			{reply(), []Reply{goOn(ResponseHeaders)}},
			{headersEnd(FullDuplex), none},
		}},
		{name: "second response headers", want: result{Outcome: request.Interrupted, Status: 200}, wantErr: errOrder, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{reply(), []Reply{goOn(ResponseHeaders)}},
			{reply(), none},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			picker := newOne()
			m := NewMachine(picker, pool, options())
			var err error
			for i, s := range tt.steps {
				require.NoError(t, err)
				var got []Reply
				got, err = m.Step(context.Background(), &s.give, nil)
				require.Equal(t, s.want, readable(got), "step %d", i+1)
				m.OnRepliesSent()
			}
			require.ErrorIs(t, err, tt.wantErr)
			assert.Equal(t, tt.want, resultOf(m.close()))
			assert.Equal(t, m.requestContext.Placements.AnsweringLease() != nil, picker.placed == 1, "the picker hears once of each pick")
			picker.endpoint.RecordSample(picker.endpoint.StartScrape(noon), endpoint.Gauges{})
			assert.Zero(t, picker.inFlight(), "at rest nothing is counted")
		})
	}
}

func TestRefusedPicks(t *testing.T) {
	t.Parallel()
	refusal := request.Unavailable(scheduling.ErrNoEndpoints)
	tests := []struct {
		name  string
		steps []Message
		want  []Reply
	}{
		{name: "header-only", steps: []Message{headersEnd(FullDuplex)}, want: refused(refusal)},
		{name: "full duplex", steps: []Message{headers(FullDuplex), body("a"), bodyEnd("b")}, want: refused(refusal)},
		{name: "full duplex, trailers", steps: []Message{headers(FullDuplex), body("a"), trailers}, want: refused(refusal)},
		{name: "streamed", steps: []Message{headers(Chunked), bodyEnd("a")}, want: refused(refusal)},
		{name: "buffered", steps: []Message{headers(Buffered), bodyEnd("a")}, want: append([]Reply{goOn(RequestHeaders)}, refused(refusal)...)},
		{name: "buffered, trailers", steps: []Message{headers(Buffered), trailers}, want: append([]Reply{goOn(RequestHeaders)}, refused(refusal)...)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			picker := newOne()
			picker.refusal = refusal
			m := NewMachine(picker, pool, options())
			var got []Reply
			for _, s := range tt.steps {
				var err error
				got, err = m.Step(context.Background(), &s, got)
				require.NoError(t, err)
			}
			assert.Equal(t, tt.want, got)
			assert.Len(t, picker.asked, 1)
			assert.Equal(t, result{Outcome: request.Refused, Status: 503}, resultOf(m.close()))
		})
	}
}

func TestTunnel(t *testing.T) {
	t.Parallel()
	for give, want := range map[Tunnel]bool{
		0: false, Upgraded: false, Requested: false, Upgraded | Requested: true, Extended: true, Extended | Upgraded: true,
		Upgraded | Requested | Framed: false, Extended | Framed: false,
	} {
		assert.Equal(t, want, give.isOpened(), give)
	}
}

// TestTunnelHasNoFirstToken expects that what a tunnel carries teaches nothing about answers. Its bytes count.
func TestTunnelHasNoFirstToken(t *testing.T) {
	t.Parallel()
	p := newOne()
	m := NewMachine(p, pool, options())
	for _, in := range []Message{tunnel(FullDuplex), reply(), piece("hello")} { // 200: an extended CONNECT
		_, err := m.Step(t.Context(), &in, nil)
		require.NoError(t, err)
		m.OnRepliesSent()
	}
	m.Close(nil)
	assert.True(t, m.requestContext.FirstContent.IsZero())
	assert.Equal(t, 5, m.requestContext.ResponseBytes)
}

// TestFormOfRefusals expects the form that the API of the path has, or text for clients that accept no JSON.
func TestFormOfRefusals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give Request
		want request.ErrorFormat
	}{
		{name: "no path", want: request.OpenAI},
		{name: "OpenAI", give: Request{IncomingHeaders: request.IncomingHeaders{Path: "/v1/completions"}}, want: request.OpenAI},
		{name: "Anthropic", give: Request{IncomingHeaders: request.IncomingHeaders{Path: "/v1/messages"}}, want: request.Anthropic},
		{name: "Anthropic, spelled in another way",
			give: Request{IncomingHeaders: request.IncomingHeaders{Path: "/v1//%6dessages/?beta=true"}}, want: request.Anthropic},
		{name: "Anthropic, in a header", give: Request{IncomingHeaders: request.IncomingHeaders{Headers: api.Headers{{Name: "x-original-path",
			Value: "/v1/messages"}}}}, want: request.Anthropic},
		{name: "no JSON", give: Request{IncomingHeaders: request.IncomingHeaders{Path: "/v1/messages"}, RefusesJSON: true},
			want: request.PlainText},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newOne()
			p.refusal = request.Unavailable(scheduling.ErrNoEndpoints)
			m := NewMachine(p, pool, options())
			out, err := m.Step(t.Context(), &Message{Kind: RequestHeaders, EndOfStream: true, Request: tt.give}, nil)
			require.NoError(t, err)
			require.Len(t, out, 1)
			assert.Equal(t, tt.want, out[0].ErrorFormat)
			m.Close(nil)
		})
	}
}

func TestLargeMessagesAreCut(t *testing.T) {
	t.Parallel()
	pool := &leakPool{}
	large := bytes.Repeat([]byte("x"), 2*maxChunk+1)
	m := NewMachine(newOne(), pool, &Options{MaxRequestBody: 1 << 20, Options: life})
	_, err := m.Step(context.Background(), &Message{Kind: RequestHeaders}, nil)
	require.NoError(t, err)
	got, err := m.Step(context.Background(), &Message{Kind: RequestBody, Body: pool.copy(large), EndOfStream: true}, nil)
	require.NoError(t, err)
	assert.Equal(t, []Reply{
		pickedFor(len(large)),
		{Kind: RequestBody, Content: Streamed, Body: mem.SliceBuffer(large[:maxChunk])},
		{Kind: RequestBody, Content: Streamed, Body: mem.SliceBuffer(large[:maxChunk])},
		{Kind: RequestBody, Content: Streamed, Body: mem.SliceBuffer(large[:1]), EndOfStream: true},
	}, readable(got))
	assert.Same(t, &pool.last()[0], &got[1].Body.ReadOnlyData()[0], "referred to, not copied")
	assert.Equal(t, 1, pool.lent(), "until it is sent")
	sendAll(got)
	assert.Zero(t, pool.lent())

	got, err = m.Step(context.Background(), &Message{Kind: ResponseBody, Body: pool.copy(large[:maxChunk+1]), EndOfStream: true}, nil)
	require.NoError(t, err)
	assert.Equal(t, []Reply{
		{Kind: ResponseBody, Content: Streamed, Body: mem.SliceBuffer(large[:maxChunk])},
		{Kind: ResponseBody, Content: Streamed, Body: mem.SliceBuffer(large[:1]), EndOfStream: true},
	}, readable(got))
	sendAll(got)
	assert.Zero(t, pool.lent())
}

func TestMachineReportsTheEndpointOnRequest(t *testing.T) {
	t.Parallel()
	m := NewMachine(newOne(), pool, &Options{Options: request.Options{Now: now, ReportEndpoint: true}})
	for _, in := range []Message{headersEnd(FullDuplex), reply()} {
		got, err := m.Step(context.Background(), &in, nil)
		require.NoError(t, err)
		if in.Kind == ResponseHeaders {
			assert.Equal(t, []Reply{{Kind: ResponseHeaders, Headers: Headers{Set: api.Headers{{Name: request.HeaderPicked, Value: address}}}}}, got)
		}
	}
	m = NewMachine(newOne(), pool, &Options{Options: request.Options{Now: now, ReportEndpoint: true}})
	in := reply()
	got, err := m.Step(context.Background(), &in, nil)
	require.NoError(t, err)
	assert.Equal(t, []Reply{goOn(ResponseHeaders)}, got, "nothing was picked")
}

func TestMachineAsksWithTheSubset(t *testing.T) {
	t.Parallel()
	subset := scheduling.ParseSubset([]string{address})
	picker := newOne()
	m := NewMachine(picker, pool, options())
	_, err := m.Step(context.Background(), &Message{Kind: RequestHeaders,
		Request: Request{IncomingHeaders: request.IncomingHeaders{Subset: subset}}}, nil)
	require.NoError(t, err)
	_, err = m.Step(context.Background(), &Message{Kind: RequestBody, EndOfStream: true}, nil)
	require.NoError(t, err)
	assert.Equal(t, []*scheduling.Subset{subset}, picker.asked)
}

func TestMachineShowsPathAndBodyToThePicker(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		steps []Message
		want  string
	}{
		{name: "full duplex", steps: []Message{headers(FullDuplex), body("ab"), bodyEnd("c")}, want: "/v1/completions abc"},
		{name: "full duplex, trailers", steps: []Message{headers(FullDuplex), body("ab"), trailers}, want: "/v1/completions ab"},
		{name: "buffered", steps: []Message{headers(Buffered), bodyEnd("abc")}, want: "/v1/completions abc"},
		{name: "streamed", steps: []Message{headers(Chunked), bodyEnd("abc")}, want: "/v1/completions "},
		{name: "header-only", steps: []Message{headersEnd(FullDuplex)}, want: "/v1/completions "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			picker := newOne()
			m := NewMachine(picker, pool, options())
			for _, s := range tt.steps {
				if s.Kind == RequestHeaders {
					s.Request.Path = "/v1/completions"
				}
				_, err := m.Step(context.Background(), &s, nil)
				require.NoError(t, err)
			}
			assert.Equal(t, []string{tt.want}, picker.shown)
		})
	}
}

func TestMachineRefusesABodyThatCannotBeRead(t *testing.T) {
	t.Parallel()
	picker := newOne()
	picker.refusal = request.BadRequest(errors.New("at byte 1"))
	m := NewMachine(picker, pool, options())
	_, err := m.Step(context.Background(), &Message{Kind: RequestHeaders}, nil)
	require.NoError(t, err)
	in := bodyEnd("{")
	got, err := m.Step(context.Background(), &in, nil)
	require.NoError(t, err)
	assert.Equal(t, refused(picker.refusal), got)
}

func TestFirstPieceOfAnAnswerIsItsFirstToken(t *testing.T) {
	t.Parallel()
	events := Message{Kind: ResponseHeaders, Response: request.ResponseHeaders{Status: 200, Events: true}}
	tests := []struct {
		name  string
		steps []Message
		want  bool
	}{
		{name: "headers", steps: []Message{reply()}},
		{name: "a piece without anything", steps: []Message{reply(), piece("")}},
		{name: "a comment", steps: []Message{events, piece(": keep-alive\n\n")}},
		{name: "an event that is not complete", steps: []Message{events, piece("data: ")}},
		{name: "a piece", steps: []Message{events, piece("data: a\n")}, want: true},
		{name: "an error", steps: []Message{answered(503), piece("no")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			picker := newOne()
			m := NewMachine(picker, pool, options())
			for _, s := range append([]Message{headersEnd(FullDuplex)}, tt.steps...) {
				_, err := m.Step(context.Background(), &s, nil)
				require.NoError(t, err)
			}
			want := int64(1000)
			if tt.want {
				want = 0
			}
			assert.Equal(t, want, picker.endpoint.StatsAt(noon).Backlog, "the prompt is backlog until it comes")
		})
	}
}

func TestLeaseOfAStream(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		steps     []Message
		open      int // before the stream ends
		abandoned int // after it, until a scrape comes
	}{
		{name: "picked", steps: []Message{headersEnd(FullDuplex)}, open: 1, abandoned: 1},
		{name: "in the response", steps: []Message{headersEnd(FullDuplex), reply(), piece("a")}, open: 1, abandoned: 0},
		{name: "after the response", steps: []Message{headersEnd(FullDuplex), reply(), pieceEnd("a")}, open: 0, abandoned: 0},
		{name: "response body not shown", steps: []Message{headersEnd(None), reply()}, open: 1, abandoned: 1},
		{name: "collecting", steps: []Message{headers(FullDuplex), body("a")}, open: 0, abandoned: 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			picker := newOne()
			m := NewMachine(picker, pool, options())
			for _, s := range tt.steps {
				_, err := m.Step(context.Background(), &s, nil)
				require.NoError(t, err)
				m.OnRepliesSent()
			}
			assert.Equal(t, tt.open, picker.inFlight())
			m.close()
			assert.Equal(t, tt.abandoned, picker.inFlight())
		})
	}
}

// play steps a machine through messages and returns what it replied, and the machine.
func play(t *testing.T, p request.Pool, o *Options, messages ...Message) ([]Reply, *Machine) {
	t.Helper()
	m := NewMachine(p, pool, o)
	var all []Reply
	for i := range messages {
		var err error
		all, err = m.Step(context.Background(), &messages[i], all)
		require.NoError(t, err)
		m.OnRepliesSent()
	}
	return all, m
}

func TestPickerHearsWhenTheGatewayWasTold(t *testing.T) {
	t.Parallel()
	picker := newOne()
	m := NewMachine(picker, pool, options())
	in := headersEnd(FullDuplex)
	_, err := m.Step(context.Background(), &in, nil)
	require.NoError(t, err)
	assert.Zero(t, picker.placed)
	for range 3 {
		assert.False(t, m.OnRepliesSent())
	}
	m.close()
	assert.Equal(t, 1, picker.placed)
}

func TestPickerHearsOfTheStatusBeforeTheBody(t *testing.T) {
	t.Parallel()
	picker := newOne()
	play(t, picker, options(), headersEnd(FullDuplex), answered(503))
	assert.Equal(t, []int{503}, picker.responded)
	play(t, picker, options(), headers(FullDuplex), answered(408))
	assert.Len(t, picker.responded, 1, "the gateway's own says nothing of an endpoint")
}

// TestHealthSignalOfStreamsThatEnd has gateways that end the stream before the response, or in it.
func TestHealthSignalOfStreamsThatEnd(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		steps []Message
		err   error
		want  []request.HealthSignal
	}{
		{name: "without a response", steps: []Message{headersEnd(FullDuplex)}, want: []request.HealthSignal{request.Silent}},
		{name: "without a response, by an error", steps: []Message{headersEnd(FullDuplex)}, err: errors.New("cut")},
		{name: "after the headers of the response", steps: []Message{headersEnd(FullDuplex), answered(200)},
			want: []request.HealthSignal{request.Doubtful}},
		{name: "after an error of the server", steps: []Message{headersEnd(FullDuplex), answered(500), pieceEnd("{}")},
			want: []request.HealthSignal{request.Faulty}},
		{name: "before the pick", steps: []Message{headers(FullDuplex)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			picker := newOne()
			picker.decision.Inference = true
			m := NewMachine(picker, pool, options())
			for _, in := range tt.steps {
				_, err := m.Step(context.Background(), &in, nil)
				require.NoError(t, err)
				m.OnRepliesSent()
			}
			m.Close(tt.err)
			assert.Equal(t, tt.want, picker.signals)
		})
	}
}

func TestEarlyLeaveEndsTheStreamAfterTheRequest(t *testing.T) {
	t.Parallel()
	o := options()
	o.LeaveEarly = true
	for _, steps := range [][]Message{{headersEnd(FullDuplex)}, {headers(FullDuplex), bodyEnd("a")}, {headers(FullDuplex), body("a"), trailers}} {
		m := NewMachine(newOne(), pool, o)
		for i, in := range steps {
			_, err := m.Step(context.Background(), &in, nil)
			require.NoError(t, err)
			assert.Equal(t, i == len(steps)-1, m.OnRepliesSent())
		}
		assert.Equal(t, request.Unseen, m.close().Outcome)
	}
}

// edited is a picker that asks for another model.
func edited() *one {
	picker := newOne()
	picker.decision = request.Decision{
		Set:     api.Headers{{Name: "x-a", Value: "b"}},
		Remove:  []string{"accept-encoding"},
		Reply:   api.Headers{{Name: "x-session-token", Value: "token"}},
		Edit:    request.Edit{Span: api.Span{From: 10, To: 15}, Replacement: []byte("base-v2")},
		Restore: api.NewModelRenamer("base-v2", []byte(`"asked"`)),
	}
	return picker
}

const (
	askedBody  = `{"model":"asked","n":1}`
	editedBody = `{"model":"base-v2","n":1}`
)

func TestRequestIsEdited(t *testing.T) {
	t.Parallel()
	set := api.Headers{{Name: "x-a", Value: "b"}}
	tests := []struct {
		name  string
		steps []Message
		want  []Reply
	}{
		{name: "full duplex", steps: []Message{headers(FullDuplex), body(askedBody[:12]), bodyEnd(askedBody[12:])}, want: []Reply{
			{
				Kind: RequestHeaders, Destination: address,
				Headers: Headers{Set: append(set[:1:1], api.Header{Name: "content-length", Value: "25"}), Remove: []string{"x-private", "accept-encoding"}},
			},
			echo(askedBody[:10]), echo("base-v2"), echoEnd(askedBody[15:]),
		}},
		{name: "full duplex with trailers", steps: []Message{headers(FullDuplex), body(askedBody), trailers}, want: []Reply{
			{Kind: RequestHeaders, Destination: address, Headers: Headers{Set: set, Remove: []string{"x-private", "accept-encoding"}}},
			echo(askedBody[:10]), echo("base-v2"), echo(askedBody[15:]), goOn(RequestTrailers),
		}},
		{name: "buffered", steps: []Message{headers(Buffered), bodyEnd(askedBody)}, want: []Reply{
			{Kind: RequestHeaders, Headers: Headers{Remove: []string{"x-private"}}},
			{
				Kind: RequestBody, Destination: address, Headers: Headers{Set: set, Remove: []string{"accept-encoding"}},
				Content: Replaced, Body: buffer(editedBody),
			},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			picker := edited()
			tt.steps[0].Request.Private = []string{"x-private"}
			got, m := play(t, picker, options(), tt.steps...)
			assert.Equal(t, tt.want, readable(got))
			assert.Equal(t, len(askedBody), m.close().RequestBytes)
		})
	}
}

// Trailers in a body's place leave no reply that could replace the client's own headers.
func TestClientsOwnHeadersGoBeforeABodyIsAwaited(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give Request
		want Headers
	}{
		{name: "none"},
		{name: "private", give: Request{IncomingHeaders: request.IncomingHeaders{Private: []string{"x-private"}}},
			want: Headers{Remove: []string{"x-private"}}},
		{name: "destination", give: Request{HasDestination: true}, want: Headers{Remove: []string{request.HeaderDestination}}},
		{name: "both", give: Request{IncomingHeaders: request.IncomingHeaders{Private: []string{"x-private"}}, HasDestination: true},
			want: Headers{Remove: []string{"x-private", request.HeaderDestination}}},
	}
	for _, tt := range tests {
		for _, end := range []Message{trailers, bodyEnd("a")} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				first := headers(Buffered)
				first.Request = tt.give
				got, _ := play(t, newOne(), options(), first, end)
				assert.Equal(t, []Reply{{Kind: RequestHeaders, Headers: tt.want}, picked(end.Kind)}, readable(got))
			})
		}
	}
}

func TestModelOfTheResponseIsTheOneAskedFor(t *testing.T) {
	t.Parallel()
	const cut = 14 // in the middle of the name
	tests := []struct {
		name  string
		mode  BodyMode
		steps []Message
		want  []Reply
	}{
		{name: "full duplex", mode: FullDuplex, steps: []Message{piece(editedBody[:cut]), pieceEnd(editedBody[cut:])}, want: []Reply{
			passed(`{`), passedEnd(askedBody[1:]),
		}},
		{name: "full duplex, end in a message of its own", mode: FullDuplex, steps: []Message{piece(editedBody[:cut]), pieceEnd("")}, want: []Reply{
			passed(`{`), passedEnd(editedBody[1:cut]),
		}},
		{name: "full duplex with trailers", mode: FullDuplex, steps: []Message{piece(editedBody[:cut]), answerTrailers}, want: []Reply{
			passed(`{`), passed(editedBody[1:cut]), goOn(ResponseTrailers),
		}},
		{name: "streamed", mode: Chunked, steps: []Message{piece(editedBody[:cut]), pieceEnd(editedBody[cut:])}, want: []Reply{
			{Kind: ResponseBody, Content: Replaced, Body: buffer("{")}, {Kind: ResponseBody, Content: Replaced, Body: buffer(askedBody[1:])},
		}},
		{name: "buffered", mode: Buffered, steps: []Message{piece(editedBody)}, want: []Reply{{Kind: ResponseBody, Content: Replaced, Body: buffer(askedBody)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, _ := play(t, edited(), options(), append([]Message{headersEnd(tt.mode), reply()}, tt.steps...)...)
			assert.Equal(t, []string{"content-length"}, got[1].Headers.Remove, "it would be wrong")
			assert.Equal(t, api.Headers{{Name: "x-session-token", Value: "token"}}, got[1].Headers.Set)
			assert.Equal(t, tt.want, readable(got[2:]))
		})
	}
}

func TestCompressedResponseStaysAsItIs(t *testing.T) {
	t.Parallel()
	compressed := Message{Kind: ResponseHeaders, Response: request.ResponseHeaders{Status: 200, Encoded: true}}
	got, _ := play(t, edited(), options(), headersEnd(FullDuplex), compressed, pieceEnd(editedBody))
	assert.Empty(t, got[1].Headers.Remove)
	assert.Equal(t, passedEnd(editedBody), readable(got)[2])
}

func TestRecordOfAnExchange(t *testing.T) {
	t.Parallel()
	var ticks time.Duration
	o := options()
	o.Now = func() time.Time {
		ticks += time.Second
		return noon.Add(ticks)
	}
	first := headers(FullDuplex)
	first.Request = Request{IncomingHeaders: request.IncomingHeaders{Path: "/v1/completions", ID: "id", TraceParent: "00-1-2-01"}}
	_, m := play(t, newOne(), o, first, body("ab"), bodyEnd("c"),
		Message{Kind: ResponseHeaders, Response: request.ResponseHeaders{Status: 200, Events: true, Served: address}},
		piece("data: 1\n\n"), piece(""), pieceEnd(`data: {"usage":{"prompt_tokens":3,"completion_tokens":4},"choices":[{"text":"a"}]}`+"\n"))
	r := m.close()
	assert.Same(t, m.requestContext.Endpoint, r.Endpoint)
	r.Endpoint = nil
	assert.Equal(t, &request.Record{
		PickRecord: request.PickRecord{Streaming: true},
		Outcome:    request.Completed, RequestID: "id", TraceParent: "00-1-2-01", Path: "/v1/completions", Served: address, Status: 200,
		StartTime: noon.Add(time.Second), ArrivalTime: noon.Add(2 * time.Second), FirstContent: noon.Add(3 * time.Second),
		LastContent: noon.Add(4 * time.Second), EndTime: noon.Add(5 * time.Second), Placed: true,
		RequestBytes: 3, ResponseBytes: 92, ContentPieces: 2, Usage: api.Usage{Known: true, Prompt: 3, Output: 4},
	}, r)
}

func TestRefusedStreamLetsItsBodyGo(t *testing.T) {
	t.Parallel()
	for _, late := range []Message{body("b"), bodyEnd("b"), trailers} {
		lent := &leakPool{}
		picker := newOne()
		_, m := play(t, picker, options(), headers(FullDuplex))
		first := Message{Kind: RequestBody, Body: lent.copy([]byte("a"))}
		_, err := m.Step(context.Background(), &first, nil)
		require.NoError(t, err)
		assert.Equal(t, &refused(request.TimedOut())[0], m.RefuseRequest(request.TimedOut()))
		assert.Zero(t, lent.lent())
		got, err := m.Step(context.Background(), &late, nil)
		require.NoError(t, err)
		assert.Empty(t, got)
		assert.Empty(t, picker.asked)
		assert.Equal(t, 408, m.close().Status)
	}
}

func TestConformanceTestsOfGatewaysGetTheEndpointThatServed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give request.ResponseHeaders
		want Headers
	}{
		{name: "gateway does not report it", give: request.ResponseHeaders{Status: 200}},
		{name: "gateway reports it", give: request.ResponseHeaders{Status: 200, Served: address}, want: Headers{
			Set: api.Headers{{Name: "x-conformance-test-served-endpoint", Value: address}},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			picker := newOne()
			picker.decision.Conformance = true
			got, _ := play(t, picker, options(), headersEnd(FullDuplex), Message{Kind: ResponseHeaders, Response: tt.give})
			assert.Equal(t, api.Headers{{Name: "x-echo-set-header", Value: "x-conformance-test-served-endpoint:" + address}}, got[0].Headers.Set)
			assert.Equal(t, tt.want, got[1].Headers)
		})
	}
}

// traced is a tracer of which every request is a part.
type traced struct{}

func (traced) StartSpan(traceparent string) (request.Span, string) {
	return request.Span{Sampled: true}, traceparent + "-ours"
}

func TestModelServerIsPartOfTheTrace(t *testing.T) {
	t.Parallel()
	o := options()
	o.Tracer = traced{}
	first := headersEnd(FullDuplex)
	first.Request.TraceParent = "theirs"
	got, m := play(t, newOne(), o, first)
	assert.Equal(t, api.Headers{{Name: "traceparent", Value: "theirs-ours"}}, got[0].Headers.Set)
	assert.True(t, m.close().Span.Sampled)
}

func TestScoresAreToldToGatewaysThatWantThem(t *testing.T) {
	t.Parallel()
	picker := newOne()
	picker.scores = []request.Score{{Endpoint: picker.endpoint, Total: 1}}
	got, _ := play(t, picker, options(), headersEnd(FullDuplex))
	assert.Nil(t, got[0].Scores)
	o := options()
	o.EmitScores = true
	got, _ = play(t, picker, o, headersEnd(FullDuplex))
	assert.Equal(t, picker.scores, got[0].Scores)
}
