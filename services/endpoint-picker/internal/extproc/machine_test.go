package extproc

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"

	"fairlead.dev/pkg/depcheck"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const address = "10.0.0.1:8000"

// one is a picker that knows one endpoint, or none and why.
type one struct {
	endpoint *endpoint.Endpoint
	err      error
	asked    []*scheduling.Subset
	shown    []string // path and body
}

func newOne() *one {
	return &one{endpoint: endpoint.New(endpoint.Description{Identity: endpoint.Identity{Address: netip.MustParseAddrPort(address)}}, noon, predict.NewLearner().NewServer())}
}

func (o *one) Pick(in request.Incoming, s *scheduling.Subset) (*endpoint.Lease, error) {
	o.asked = append(o.asked, s)
	o.shown = append(o.shown, in.Path+" "+string(in.Body))
	if o.err != nil {
		return nil, o.err
	}
	return o.endpoint.Place(noon, 1000), nil
}

func (o *one) inFlight() int { return int(o.endpoint.Stats(noon).InFlight) }

// Messages, short.
func headers(m BodyMode) Message    { return Message{Kind: RequestHeaders, Modes: Modes{m, m}} }
func headersEnd(m BodyMode) Message { h := headers(m); h.EndOfStream = true; return h }
func body(s string) Message         { return Message{Kind: RequestBody, Body: buffer(s)} }
func bodyEnd(s string) Message      { b := body(s); b.EndOfStream = true; return b }
func answer() Message               { return Message{Kind: ResponseHeaders, Status: 200} }
func piece(s string) Message        { return Message{Kind: ResponseBody, Body: buffer(s)} }
func pieceEnd(s string) Message     { p := piece(s); p.EndOfStream = true; return p }

var (
	trailers       = Message{Kind: RequestTrailers}
	answerTrailers = Message{Kind: ResponseTrailers}
)

// Replies, short.
func picked(k Kind) Reply        { return Reply{Kind: k, Destination: address} }
func goOn(k Kind) Reply          { return Reply{Kind: k} }
func echo(s string) Reply        { return Reply{Kind: RequestBody, Streamed: true, Body: buffer(s)} }
func echoEnd(s string) Reply     { e := echo(s); e.EndOfStream = true; return e }
func passed(s string) Reply      { return Reply{Kind: ResponseBody, Streamed: true, Body: buffer(s)} }
func passedEnd(s string) Reply   { p := passed(s); p.EndOfStream = true; return p }
func refused(r *Refusal) []Reply { return []Reply{{Kind: Immediate, Refusal: r}} }

// none is the list of no replies.
var none []Reply

func options() MachineOptions { return MachineOptions{MaxBody: 100, Now: now} }

func now() time.Time { return noon }

func TestMachine(t *testing.T) {
	t.Parallel()
	type step struct {
		give Message
		want []Reply
	}
	unseen := Outcome{Kind: Unseen}
	completed := Outcome{Kind: Completed, Status: 200}
	tests := []struct {
		name    string
		steps   []step
		want    Outcome
		wantErr error
	}{
		{name: "nothing at all", want: Outcome{Kind: Unpicked}},
		{name: "header-only request", want: unseen, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
		}},
		{name: "full duplex holds the header reply", want: unseen, steps: []step{
			{headers(FullDuplex), none},
			{body("a"), none},
			{body("bc"), none},
			{bodyEnd("d"), []Reply{picked(RequestHeaders), echoEnd("abcd")}},
		}},
		{name: "end in an empty message", want: unseen, steps: []step{
			{headers(FullDuplex), none},
			{body("abc"), none},
			{bodyEnd(""), []Reply{picked(RequestHeaders), echoEnd("abc")}},
		}},
		{name: "empty body", want: unseen, steps: []step{
			{headers(FullDuplex), none},
			{body(""), none},
			{bodyEnd(""), []Reply{picked(RequestHeaders), {Kind: RequestBody, Streamed: true, EndOfStream: true}}},
		}},
		{name: "end delivered twice (envoy#46237)", want: unseen, steps: []step{
			{headers(FullDuplex), none},
			{bodyEnd("abc"), []Reply{picked(RequestHeaders), echoEnd("abc")}},
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
			{headers(Streamed), []Reply{picked(RequestHeaders)}},
			{body("abc"), []Reply{goOn(RequestBody)}},
			{bodyEnd("abc"), []Reply{goOn(RequestBody)}},
			{bodyEnd("abc"), none},
		}},
		{name: "streamed with trailers", want: unseen, steps: []step{
			{headers(Streamed), []Reply{picked(RequestHeaders)}},
			{body("abc"), []Reply{goOn(RequestBody)}},
			{trailers, []Reply{goOn(RequestTrailers)}},
			{trailers, none},
		}},
		{name: "whole exchange, each piece echoed as it comes", want: completed, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{answer(), []Reply{goOn(ResponseHeaders)}},
			{piece("data: a\n\n"), []Reply{passed("data: a\n\n")}},
			{piece(""), []Reply{passed("")}},
			{pieceEnd(""), []Reply{passedEnd("")}},
			{pieceEnd(""), none},
		}},
		{name: "response with trailers", want: completed, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{answer(), []Reply{goOn(ResponseHeaders)}},
			{piece("a"), []Reply{passed("a")}},
			{answerTrailers, []Reply{goOn(ResponseTrailers)}},
			{answerTrailers, none},
		}},
		{name: "response without a body", want: completed, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{Message{Kind: ResponseHeaders, Status: 200, EndOfStream: true}, []Reply{goOn(ResponseHeaders)}},
		}},
		{name: "streamed response", want: completed, steps: []step{
			{headersEnd(Streamed), []Reply{picked(RequestHeaders)}},
			{answer(), []Reply{goOn(ResponseHeaders)}},
			{piece("a"), []Reply{goOn(ResponseBody)}},
			{pieceEnd("b"), []Reply{goOn(ResponseBody)}},
		}},
		{name: "buffered response, its trailers not shown", want: completed, steps: []step{
			{headersEnd(Buffered), []Reply{picked(RequestHeaders)}},
			{answer(), []Reply{goOn(ResponseHeaders)}},
			{piece("abc"), []Reply{goOn(ResponseBody)}},
		}},
		{name: "buffered response with trailers", want: completed, steps: []step{
			{headersEnd(Buffered), []Reply{picked(RequestHeaders)}},
			{answer(), []Reply{goOn(ResponseHeaders)}},
			{piece("abc"), []Reply{goOn(ResponseBody)}},
			{answerTrailers, []Reply{goOn(ResponseTrailers)}},
		}},
		{name: "response body is not shown", want: Outcome{Kind: Unseen, Status: 200}, steps: []step{
			{headersEnd(None), []Reply{picked(RequestHeaders)}},
			{answer(), []Reply{goOn(ResponseHeaders)}},
		}},
		{name: "stream ends in the middle of the response", want: Outcome{Kind: Interrupted, Status: 200}, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{answer(), []Reply{goOn(ResponseHeaders)}},
			{piece("a"), []Reply{passed("a")}},
		}},
		{name: "another endpoint served", want: Outcome{Kind: Completed, Status: 502, Moved: true}, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{Message{Kind: ResponseHeaders, Status: 502, Served: "10.0.0.2:8000", EndOfStream: true}, []Reply{goOn(ResponseHeaders)}},
		}},
		{name: "the picked endpoint served", want: Outcome{Kind: Completed, Status: 200}, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{Message{Kind: ResponseHeaders, Status: 200, Served: address, EndOfStream: true}, []Reply{goOn(ResponseHeaders)}},
		}},
		{name: "the gateway's own response, before the pick", want: Outcome{Kind: Unpicked, Status: 408}, steps: []step{
			{headers(FullDuplex), none},
			{body("abc"), none},
			{Message{Kind: ResponseHeaders, Status: 408}, []Reply{goOn(ResponseHeaders)}},
			{bodyEnd("d"), none},
			{trailers, none},
			{pieceEnd("timeout"), []Reply{passedEnd("timeout")}},
		}},
		{name: "body over the limit", want: Outcome{Kind: Refused, Status: 413}, steps: []step{
			{headers(FullDuplex), none},
			{body(string(make([]byte, 100))), none},
			{body("x"), refused(tooLarge(100))},
			{bodyEnd("y"), none},
			{trailers, none},
			{answer(), none},
			{headers(FullDuplex), none},
		}},
		{name: "body at the limit", want: unseen, steps: []step{
			{headers(FullDuplex), none},
			{body(string(make([]byte, 100))), none},
			{bodyEnd(""), []Reply{picked(RequestHeaders), echoEnd(string(make([]byte, 100)))}},
		}},
		{name: "buffered body over the limit", want: Outcome{Kind: Refused, Status: 413}, steps: []step{
			{headers(Buffered), []Reply{goOn(RequestHeaders)}},
			{bodyEnd(string(make([]byte, 101))), refused(tooLarge(100))},
		}},
		{name: "body first", want: Outcome{Kind: Refused, Status: 400}, steps: []step{
			{bodyEnd("abc"), refused(badRequest("request body before the request headers"))},
		}},
		{name: "trailers first", want: Outcome{Kind: Refused, Status: 400}, steps: []step{
			{trailers, refused(badRequest("request trailers before the request headers"))},
		}},
		{name: "response first", want: Outcome{Kind: Unpicked, Status: 200}, steps: []step{
			{answer(), []Reply{goOn(ResponseHeaders)}},
		}},
		{name: "message about nothing", want: unseen, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{Message{}, none},
		}},
		{name: "second headers", want: unseen, wantErr: errOrder, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{headersEnd(FullDuplex), none},
		}},
		{name: "headers after the response", want: Outcome{Kind: Unpicked, Status: 200}, wantErr: errOrder, steps: []step{
			{answer(), []Reply{goOn(ResponseHeaders)}},
			{headersEnd(FullDuplex), none},
		}},
		{name: "second response headers", want: Outcome{Kind: Interrupted, Status: 200}, wantErr: errOrder, steps: []step{
			{headersEnd(FullDuplex), []Reply{picked(RequestHeaders)}},
			{answer(), []Reply{goOn(ResponseHeaders)}},
			{answer(), none},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			picker := newOne()
			m := NewMachine(picker, options())
			var err error
			for i, s := range tt.steps {
				require.NoError(t, err)
				var got []Reply
				got, err = m.Step(&s.give, nil)
				require.Equal(t, s.want, got, "step %d", i+1)
			}
			require.ErrorIs(t, err, tt.wantErr)
			assert.Equal(t, tt.want, m.Close(noon))
			picker.endpoint.Record(picker.endpoint.BeginScrape(noon), endpoint.Gauges{})
			assert.Zero(t, picker.inFlight(), "at rest nothing is counted")
		})
	}
}

func TestRefusedPicks(t *testing.T) {
	t.Parallel()
	refusal := &Refusal{
		Code: 503, Reason: "rejected-no-endpoints", Text: "inference error: ServiceUnavailable - no ready endpoints in the pool",
	}
	tests := []struct {
		name  string
		steps []Message
		want  []Reply
	}{
		{name: "header-only", steps: []Message{headersEnd(FullDuplex)}, want: refused(refusal)},
		{name: "full duplex", steps: []Message{headers(FullDuplex), body("a"), bodyEnd("b")}, want: refused(refusal)},
		{name: "full duplex, trailers", steps: []Message{headers(FullDuplex), body("a"), trailers}, want: refused(refusal)},
		{name: "streamed", steps: []Message{headers(Streamed), bodyEnd("a")}, want: refused(refusal)},
		{name: "buffered", steps: []Message{headers(Buffered), bodyEnd("a")}, want: append([]Reply{goOn(RequestHeaders)}, refused(refusal)...)},
		{name: "buffered, trailers", steps: []Message{headers(Buffered), trailers}, want: append([]Reply{goOn(RequestHeaders)}, refused(refusal)...)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			picker := newOne()
			picker.err = scheduling.ErrNoEndpoints
			m := NewMachine(picker, options())
			var got []Reply
			for _, s := range tt.steps {
				var err error
				got, err = m.Step(&s, got)
				require.NoError(t, err)
			}
			assert.Equal(t, tt.want, got)
			assert.Len(t, picker.asked, 1)
			assert.Equal(t, Outcome{Kind: Refused, Status: 503}, m.Close(noon))
		})
	}
}

func TestLargeMessagesAreCut(t *testing.T) {
	t.Parallel()
	pool := &leakPool{}
	large := bytes.Repeat([]byte("x"), 2*maxChunk+1)
	m := NewMachine(newOne(), MachineOptions{MaxBody: 1 << 20, Now: now})
	_, err := m.Step(&Message{Kind: RequestHeaders}, nil)
	require.NoError(t, err)
	got, err := m.Step(&Message{Kind: RequestBody, Body: pool.copy(large), EndOfStream: true}, nil)
	require.NoError(t, err)
	assert.Equal(t, []Reply{
		picked(RequestHeaders),
		{Kind: RequestBody, Streamed: true, Body: mem.SliceBuffer(large[:maxChunk])},
		{Kind: RequestBody, Streamed: true, Body: mem.SliceBuffer(large[:maxChunk])},
		{Kind: RequestBody, Streamed: true, Body: mem.SliceBuffer(large[:1]), EndOfStream: true},
	}, readable(got))
	assert.Same(t, &pool.last()[0], &got[1].Body.ReadOnlyData()[0], "referred to, not copied")
	assert.Equal(t, 1, pool.lent(), "until it is sent")
	sendAll(got)
	assert.Zero(t, pool.lent())

	got, err = m.Step(&Message{Kind: ResponseBody, Body: pool.copy(large[:maxChunk+1]), EndOfStream: true}, nil)
	require.NoError(t, err)
	assert.Equal(t, []Reply{
		{Kind: ResponseBody, Streamed: true, Body: mem.SliceBuffer(large[:maxChunk])},
		{Kind: ResponseBody, Streamed: true, Body: mem.SliceBuffer(large[:1]), EndOfStream: true},
	}, readable(got))
	sendAll(got)
	assert.Zero(t, pool.lent())
}

func TestMachineReportsTheEndpointOnRequest(t *testing.T) {
	t.Parallel()
	m := NewMachine(newOne(), MachineOptions{ReportEndpoint: true, Now: now})
	for _, in := range []Message{headersEnd(FullDuplex), answer()} {
		got, err := m.Step(&in, nil)
		require.NoError(t, err)
		if in.Kind == ResponseHeaders {
			assert.Equal(t, []Reply{{Kind: ResponseHeaders, Picked: address}}, got)
		}
	}
	m = NewMachine(newOne(), MachineOptions{ReportEndpoint: true, Now: now})
	in := answer()
	got, err := m.Step(&in, nil)
	require.NoError(t, err)
	assert.Equal(t, []Reply{goOn(ResponseHeaders)}, got, "nothing was picked")
}

func TestMachineAsksWithTheSubset(t *testing.T) {
	t.Parallel()
	subset := scheduling.ParseSubset([]string{address})
	picker := newOne()
	m := NewMachine(picker, options())
	_, err := m.Step(&Message{Kind: RequestHeaders, Subset: subset}, nil)
	require.NoError(t, err)
	_, err = m.Step(&Message{Kind: RequestBody, EndOfStream: true}, nil)
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
		{name: "streamed", steps: []Message{headers(Streamed), bodyEnd("abc")}, want: "/v1/completions "},
		{name: "header-only", steps: []Message{headersEnd(FullDuplex)}, want: "/v1/completions "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			picker := newOne()
			m := NewMachine(picker, options())
			for _, s := range tt.steps {
				if s.Kind == RequestHeaders {
					s.Path = "/v1/completions"
				}
				_, err := m.Step(&s, nil)
				require.NoError(t, err)
			}
			assert.Equal(t, []string{tt.want}, picker.shown)
		})
	}
}

func TestMachineRefusesABodyThatCannotBeRead(t *testing.T) {
	t.Parallel()
	picker := newOne()
	picker.err = fmt.Errorf("%w: at byte 1", request.ErrMalformed)
	m := NewMachine(picker, options())
	_, err := m.Step(&Message{Kind: RequestHeaders}, nil)
	require.NoError(t, err)
	in := bodyEnd("{")
	got, err := m.Step(&in, nil)
	require.NoError(t, err)
	assert.Equal(t, refused(&Refusal{Code: 400, Text: "inference error: BadRequest - parse request body: at byte 1"}), got)
}

func TestFirstPieceOfAnAnswerIsItsFirstToken(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		steps []Message
		want  bool
	}{
		{name: "headers", steps: []Message{answer()}},
		{name: "a piece without anything", steps: []Message{answer(), piece("")}},
		{name: "a piece", steps: []Message{answer(), piece("data: ")}, want: true},
		{name: "an error", steps: []Message{{Kind: ResponseHeaders, Status: 503}, piece("no")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			picker := newOne()
			m := NewMachine(picker, options())
			wait := func() float64 { return picker.endpoint.Wait(noon, predict.NewLearner().Speed(), 1) }
			for _, s := range append([]Message{headersEnd(FullDuplex)}, tt.steps...) {
				_, err := m.Step(&s, nil)
				require.NoError(t, err)
			}
			assert.Equal(t, tt.want, wait() < 0.03, "1000 tokens are owed until it comes")
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
		{name: "in the response", steps: []Message{headersEnd(FullDuplex), answer(), piece("a")}, open: 1, abandoned: 0},
		{name: "after the response", steps: []Message{headersEnd(FullDuplex), answer(), pieceEnd("a")}, open: 0, abandoned: 0},
		{name: "response body not shown", steps: []Message{headersEnd(None), answer()}, open: 1, abandoned: 1},
		{name: "collecting", steps: []Message{headers(FullDuplex), body("a")}, open: 0, abandoned: 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			picker := newOne()
			m := NewMachine(picker, options())
			for _, s := range tt.steps {
				_, err := m.Step(&s, nil)
				require.NoError(t, err)
			}
			assert.Equal(t, tt.open, picker.inFlight())
			m.Close(noon)
			assert.Equal(t, tt.abandoned, picker.inFlight())
		})
	}
}

func TestCoreIsWithoutIO(t *testing.T) {
	t.Parallel()
	depcheck.AssertNoDependency(t, ".", "k8s.io/client-go/...", "k8s.io/api/...", "go.uber.org/dig/...", "github.com/prometheus/...")
}
