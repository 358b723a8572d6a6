package extproc

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/listener/grpcserver"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

const maxBodyHere = 4 << 20

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a Server on a real gRPC connection.
type rig struct {
	*Server

	peers  *grpcserver.Server
	picker *one
	logs   *zaptest.ObservedLogs
	client extprocv3.ExternalProcessorClient
}

// ended returns the results of all streams once none is open.
func (o *one) ended(t *testing.T, n int) []result {
	t.Helper()
	var results []result
	require.Eventually(t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		results = nil
		for _, r := range o.records {
			results = append(results, resultOf(r))
		}
		return o.began == n && len(results) == n
	}, kubetest.Patience, time.Millisecond)
	return results
}

func newRig(t testing.TB, o Options) *rig {
	t.Helper()
	core, logs := zaptest.New(zap.DebugLevel)
	if o.MaxRequestBody == 0 {
		o.MaxRequestBody = maxBodyHere
	}
	r := &rig{picker: newOne(), logs: logs}
	o.Now, o.Wanted = now, &request.WantedHeaders{}
	r.Server = NewServer(Params{Options: o, Log: zap.New(core), Pools: r.picker})
	r.dial(t)
	return r
}

// dial serves s until the test ends.
func (r *rig) dial(t testing.TB) {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	r.peers = grpcserver.New(grpcserver.Params{Log: zap.NewNop(), Ledger: limits.NewLedger(limits.Limits{}), Register: r.Register})
	r.peers.AttachListener(listener)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.peers.Run()
	}()
	conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listener.Dial() }))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		r.peers.Close()
		<-done
	})
	r.client = extprocv3.NewExternalProcessorClient(conn)
}

// gateway plays Envoy on one stream: it sends what it is given and checks every reply as it comes.
type gateway struct {
	*envoytest.Gateway

	t      *testing.T
	stream extprocv3.ExternalProcessor_ProcessClient
	cancel context.CancelFunc
}

func (r *rig) open(t *testing.T) *gateway {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), kubetest.Patience)
	t.Cleanup(cancel)
	stream, err := r.client.Process(ctx)
	require.NoError(t, err)
	return &gateway{Gateway: strictGateway(), t: t, stream: stream, cancel: cancel}
}

// send sends messages; a message too many for a stream that was closed is not an error.
func (g *gateway) send(messages ...Message) {
	g.t.Helper()
	for i := range messages {
		out := toEnvoy(&messages[i])
		g.RecordSent(out)
		if err := g.stream.Send(out); err != nil {
			require.ErrorIs(g.t, err, io.EOF)
		}
	}
}

// receive takes n replies.
func (g *gateway) receive(n int) {
	g.t.Helper()
	for range n {
		out, err := g.stream.Recv()
		require.NoError(g.t, err)
		require.NoError(g.t, g.CheckReply(out))
	}
}

// receiveAll takes replies until everything that was sent is answered.
func (g *gateway) receiveAll() {
	g.t.Helper()
	for g.CheckFinished() != nil {
		g.receive(1)
	}
}

// end half-closes and expects nothing more but a clean end.
func (g *gateway) end() {
	g.t.Helper()
	require.NoError(g.t, g.stream.CloseSend())
	out, err := g.stream.Recv()
	require.Nil(g.t, out)
	require.ErrorIs(g.t, err, io.EOF)
}

// strictGateway allows what the picker of these tests does.
func strictGateway() *envoytest.Gateway {
	return envoytest.New(envoytest.Rules{Allowed: func(endpoint string) bool { return endpoint == address }})
}

// toEnvoy is the opposite of decodeMessage: it writes a message as Envoy does.
func toEnvoy(m *Message) *extprocv3.ProcessingRequest {
	out := &extprocv3.ProcessingRequest{}
	switch m.Kind {
	case RequestHeaders:
		out.Request = &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
			Headers: envoytest.Headers(":method", "POST", ":path", "/v1/completions", "x-request-id", "id-1", request.HeaderDestination, "1.1.1.1:1"), EndOfStream: m.EndOfStream,
		}}
		out.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: envoyMode(m.Modes.Request), ResponseBodyMode: envoyMode(m.Modes.Response)}
	case RequestBody:
		out.Request = &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: content(m.Body), EndOfStream: m.EndOfStream}}
	case RequestTrailers:
		out.Request = &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{Trailers: envoytest.Headers("x", "y")}}
	case ResponseHeaders:
		out.Request = &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{
			Headers: envoytest.Headers(":status", "200", "content-type", "text/event-stream"), EndOfStream: m.EndOfStream,
		}}
		if m.Response.Served != "" {
			out.MetadataContext = envoytest.Metadata(lbNamespace, keyServed, structpb.NewStringValue(m.Response.Served))
		}
	case ResponseBody:
		out.Request = &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: content(m.Body), EndOfStream: m.EndOfStream}}
	case ResponseTrailers:
		out.Request = &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{Trailers: envoytest.Headers("x", "y")}}
	case Immediate:
	}
	return out
}

func envoyMode(m BodyMode) filterv3.ProcessingMode_BodySendMode {
	return map[BodyMode]filterv3.ProcessingMode_BodySendMode{
		FullDuplex: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED, Chunked: filterv3.ProcessingMode_STREAMED,
		Buffered: filterv3.ProcessingMode_BUFFERED, None: filterv3.ProcessingMode_NONE,
	}[m]
}

// inChunks cuts a body as Envoy does, the end on the last piece.
func inChunks(b []byte, size int) []Message {
	var list []Message
	for len(b) > size {
		list = append(list, Message{Kind: RequestBody, Body: mem.SliceBuffer(b[:size])})
		b = b[size:]
	}
	return append(list, Message{Kind: RequestBody, Body: buffer(string(b)), EndOfStream: true})
}

// noise is n bytes without a pattern.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(b) // never fails
	return b
}

func TestBodiesComeBackByteForByte(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		pieces []Message
	}{
		{name: "empty", pieces: []Message{bodyEnd("")}},
		{name: "5 kB and an empty end", pieces: []Message{body(string(noise(5000))), bodyEnd("")}},
		{name: "200 kB in pieces", pieces: inChunks(noise(200_000), 16<<10)},
		{name: "3 MB in pieces", pieces: inChunks(noise(3<<20), 16<<10)},
		{name: "3 MB in one message", pieces: inChunks(noise(3<<20), 4<<20)},
		{name: "at the limit", pieces: inChunks(noise(maxBodyHere), 1<<20)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Options{})
			g := r.open(t)
			g.send(headers(FullDuplex))
			g.send(tt.pieces...)
			g.receiveAll()
			g.send(reply())
			g.receive(1)
			for range 20 { // as tokens come: each is answered before the next
				g.send(piece("data: {\"token\": 1}\n\n"))
				g.receive(1)
			}
			g.send(pieceEnd("data: [DONE]\n\n"))
			g.receiveAll()
			assert.Equal(t, address, g.PickedEndpoint())
			g.end()
			assert.Equal(t, []result{{Outcome: request.Completed, Status: 200}}, r.picker.ended(t, 1))
			assert.Zero(t, r.picker.inFlight())
		})
	}
}

func TestEndOfAStream(t *testing.T) {
	t.Parallel()
	whole := []Message{headersEnd(FullDuplex), reply(), pieceEnd("x")}
	tests := []struct {
		name  string
		steps []Message
		end   func(g *gateway)
		want  request.Outcome
	}{
		{name: "Envoy ends a finished stream in Canceled", steps: whole, end: func(g *gateway) { g.cancel() }, want: request.Completed},
		{name: "half-close of a finished stream", steps: whole, end: (*gateway).end, want: request.Completed},
		{name: "NGF half-closes after the body", steps: []Message{headers(FullDuplex), bodyEnd("abc")}, end: (*gateway).end, want: request.Unseen},
		{name: "client gone in the response", steps: whole[:2], end: func(g *gateway) { g.cancel() }, want: request.Interrupted},
		{name: "client gone before the pick", steps: []Message{headers(FullDuplex), body("a")}, end: func(g *gateway) { g.cancel() }, want: request.Unpicked},
		{name: "nothing was sent", end: (*gateway).end, want: request.Unpicked},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Options{})
			g := r.open(t)
			g.send(tt.steps...)
			if g.RequestEnded() {
				g.receiveAll()
			}
			tt.end(g)
			assert.Equal(t, tt.want, r.picker.ended(t, 1)[0].Outcome)
			require.Eventually(t, func() bool { return r.InFlight() == 0 }, kubetest.Patience, time.Millisecond, "the handler returns after that")
			settle(t, r.picker)
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	big := string(make([]byte, maxBodyHere))
	tests := []struct {
		name    string
		steps   []Message
		refusal *request.Refusal
		code    int
		reason  string
		text    string
	}{
		{
			name: "no endpoints", steps: []Message{headers(FullDuplex), bodyEnd("a")}, refusal: request.Unavailable(scheduling.ErrNoEndpoints),
			code: 503, reason: request.ReasonNoEndpoints, text: "no ready endpoints in the pool; try again in 1 s",
		},
		{
			name: "none in the subset, header-only", steps: []Message{headersEnd(FullDuplex)}, refusal: request.Unavailable(scheduling.ErrNoneInSubset),
			code: 503, reason: request.ReasonNoEndpoints, text: "no ready endpoint in the subset that the gateway allows; try again in 1 s",
		},
		{
			name: "body over the limit", steps: []Message{headers(FullDuplex), body(big), body("x")},
			code: 413, text: "request body is over 4194304 bytes: send a shorter one",
		},
		{
			name: "body over the limit, in one message", steps: []Message{headers(FullDuplex), bodyEnd(big + "x")},
			code: 413, text: "request body is over 4194304 bytes: send a shorter one",
		},
		{
			name: "body far over the limit, in one message", steps: []Message{headers(FullDuplex), bodyEnd(string(make([]byte, maxBodyHere+1<<20)))},
			code: 413, text: "request body is over 4194304 bytes: send a shorter one",
		},
		{
			name: "body before the headers", steps: []Message{bodyEnd("x")},
			code: 400, text: "request body before the request headers",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Options{})
			r.picker.refusal = tt.refusal
			g := r.open(t)
			g.send(tt.steps...)
			g.receive(1)
			require.NotNil(t, g.ImmediateResponse())
			assert.EqualValues(t, tt.code, g.ImmediateResponse().GetStatus().GetCode())
			var body struct{ Error request.Error }
			require.NoError(t, json.Unmarshal(g.ImmediateResponse().GetBody(), &body))
			assert.Equal(t, tt.text, body.Error.Message)
			set := map[string]string{}
			for _, h := range g.ImmediateResponse().GetHeaders().GetSetHeaders() {
				set[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
			}
			want := map[string]string{headerContentType: "application/json"}
			if tt.reason != "" {
				want[request.HeaderDropped], want["retry-after"] = tt.reason, "1"
			}
			assert.Equal(t, want, set)
			_, err := g.stream.Recv()
			require.ErrorIs(t, err, io.EOF, "closed cleanly")
			assert.Equal(t, request.Refused, r.picker.ended(t, 1)[0].Outcome)
		})
	}
}

func TestBrokenProtocolEndsTheStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	g := r.open(t)
	g.send(headersEnd(FullDuplex))
	g.receive(1)
	g.send(headersEnd(FullDuplex))
	_, err := g.stream.Recv()
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	assert.Contains(t, err.Error(), "request headers: message out of order")
	assert.Equal(t, request.Failed, r.picker.ended(t, 1)[0].Outcome)
	settle(t, r.picker)
}

func TestBodyModeOfGatewaysThatDoNotTell(t *testing.T) {
	t.Parallel()
	for _, mode := range []BodyMode{FullDuplex, Chunked, Buffered, None} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Options{BodyMode: mode})
			g := r.open(t)
			first := headers(mode)
			in := toEnvoy(&first)
			in.ProtocolConfig = nil
			g.SetModes(envoyMode(mode), envoyMode(mode))
			g.RecordSent(in)
			require.NoError(t, g.stream.Send(in))
			if mode != None {
				g.send(bodyEnd("abc"))
			}
			g.receiveAll()
			assert.Equal(t, address, g.PickedEndpoint())
			g.end()
		})
	}
}

func TestSubsetHint(t *testing.T) {
	t.Parallel()
	list := structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue("10.0.0.1:8000"), structpb.NewStringValue("10.0.0.2:8000")}})
	tests := []struct {
		name string
		give *corev3.Metadata
		want *scheduling.Subset
	}{
		{name: "none", give: nil, want: nil},
		{name: "another namespace", give: envoytest.Metadata(lbNamespace, keySubset, list), want: nil},
		{name: "list", give: envoytest.Metadata(subsetNamespace, keySubset, list), want: scheduling.ParseSubset([]string{"10.0.0.1:8000", "10.0.0.2:8000"})},
		{
			name: "string", give: envoytest.Metadata(subsetNamespace, keySubset, structpb.NewStringValue("10.0.0.1:8000,10.0.0.2:8000")),
			want: scheduling.ParseSubset([]string{"10.0.0.1:8000", "10.0.0.2:8000"}),
		},
		{name: "empty list", give: envoytest.Metadata(subsetNamespace, keySubset, structpb.NewListValue(nil)), want: &scheduling.Subset{}},
		{name: "empty string", give: envoytest.Metadata(subsetNamespace, keySubset, structpb.NewStringValue("")), want: &scheduling.Subset{}},
		{name: "neither", give: envoytest.Metadata(subsetNamespace, keySubset, structpb.NewNumberValue(7)), want: &scheduling.Subset{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			first := headersEnd(FullDuplex)
			in := toEnvoy(&first)
			in.MetadataContext = tt.give
			assert.Equal(t, tt.want, decoded(t, decoder{wanted: &request.WantedHeaders{}}, in).Request.Subset)
			assert.Nil(t, decoded(t, decoder{ignoreSubset: true, wanted: &request.WantedHeaders{}}, in).Request.Subset)
		})
	}
}

func TestHeadersOfGatewaysWithTheirOwnStyle(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give []*corev3.HeaderValue
		want string
	}{
		{name: "none", want: ""},
		{name: "as Envoy", give: []*corev3.HeaderValue{{Key: "x-request-id", RawValue: []byte("id")}}, want: "id"},
		{name: "as NGINX", give: []*corev3.HeaderValue{{Key: "X-Other", Value: "1"}, {Key: "X-Request-Id", Value: "id"}}, want: "id"},
		{name: "both values", give: []*corev3.HeaderValue{{Key: "x-request-id", Value: "old", RawValue: []byte("raw")}}, want: "raw"},
		{name: "twice", give: []*corev3.HeaderValue{{Key: "x-request-id", Value: "first"}, {Key: "x-request-id", Value: "second"}}, want: "first"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
				RequestHeaders: &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: tt.give}},
			}}
			assert.Equal(t, tt.want, decoded(t, decoder{wanted: &request.WantedHeaders{}}, in).Request.ID)
		})
	}
}

func TestServedEndpointAndStatus(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Options: request.Options{ReportEndpoint: true}})
	g := r.open(t)
	g.send(headersEnd(FullDuplex))
	g.receive(1)
	g.send(Message{Kind: ResponseHeaders, Response: request.ResponseHeaders{Served: "10.0.0.9:8000"}, EndOfStream: true})
	out, err := g.stream.Recv()
	require.NoError(t, err)
	set := out.GetResponseHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()
	require.Len(t, set, 1)
	assert.Equal(t, request.HeaderPicked, set[0].GetHeader().GetKey())
	assert.Equal(t, address, string(set[0].GetHeader().GetRawValue()))
	g.end()
	assert.Equal(t, []result{{Outcome: request.Completed, Status: 200, Moved: true}}, r.picker.ended(t, 1))
}

func TestPicksAreLoggedAtDebugOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	g := r.open(t)
	g.send(headers(FullDuplex), bodyEnd("abc"))
	g.receiveAll()
	g.end()
	r.picker.ended(t, 1)
	require.Len(t, r.logs.All(), 1)
	entry := r.logs.All()[0]
	assert.Equal(t, zap.DebugLevel, entry.Level)
	assert.Equal(t, map[string]any{"requestID": "id-1", "endpoint": address}, entry.ContextMap())
}

func TestManyStreamsAtOnce(t *testing.T) {
	t.Parallel()
	const streams = 100
	r := newRig(t, Options{})
	var wg sync.WaitGroup
	for range streams {
		wg.Go(func() {
			g := r.open(t)
			g.send(headers(FullDuplex))
			g.send(inChunks(noise(70_000), 16<<10)...)
			g.receiveAll()
			g.send(reply(), piece("a"), pieceEnd("b"))
			g.receiveAll()
			g.end()
		})
	}
	wg.Wait()
	for _, o := range r.picker.ended(t, streams) {
		assert.Equal(t, request.Completed, o.Outcome)
	}
	assert.Zero(t, r.picker.inFlight())
	assert.Zero(t, r.InFlight())
	assert.Equal(t, []int{streams, streams}, []int{r.picker.placed, len(r.picker.responded)})
}

func TestBodyModeNames(t *testing.T) {
	t.Parallel()
	for _, name := range strings.Fields("full-duplex streamed buffered none") {
		var m BodyMode
		require.NoError(t, m.Set(name))
		assert.Equal(t, name, m.String())
	}
	m := Buffered
	require.EqualError(t, m.Set("half-duplex"), `"half-duplex" is not one of full-duplex, streamed, buffered, none`)
	assert.Equal(t, Buffered, m)
	assert.Equal(t, "mode", m.Type())
}

func TestServiceName(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "envoy.service.ext_proc.v3.ExternalProcessor", ServiceName)
}

// TestConnectionThatBreaks has a gateway that leaves while its request waits for a place, so that the reply cannot be sent.
func TestConnectionThatBreaks(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	g := r.open(t)
	r.picker.deciding = func(ctx context.Context) {
		g.cancel()
		<-ctx.Done()
	}
	g.send(headers(FullDuplex), bodyEnd(string(noise(3*maxChunk))))
	assert.NotEqual(t, request.Completed, r.picker.ended(t, 1)[0].Outcome)
	assert.Zero(t, r.picker.placed, "the gateway does not have the pick")
	assert.Zero(t, r.picker.inFlight())
	require.Eventually(t, func() bool { s := r.peers.GatewayStats(); return s.Bytes == 0 && s.Streams == 0 }, kubetest.Patience,
		time.Millisecond)
}
