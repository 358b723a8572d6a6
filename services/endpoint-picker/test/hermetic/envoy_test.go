//go:build system

package hermetic

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

type bodyMode = filterv3.ProcessingMode_BodySendMode

const (
	fullDuplex = filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	streamed   = filterv3.ProcessingMode_STREAMED
	buffered   = filterv3.ProcessingMode_BUFFERED
	noBody     = filterv3.ProcessingMode_NONE
)

// request is what a client sends, and how its gateway shows it.
type request struct {
	path       string   // /v1/completions if empty
	headers    []string // names and values in turns
	body       string   // none: the headers are all
	chunk      int      // bytes of a piece; 0 for one piece
	endApart   bool     // the end is a piece of its own, empty
	endTwice   bool     // the last piece is delivered again
	trailers   bool
	subset     *structpb.Value
	allModes   bool        // modes holds; else both directions are full duplex
	modes      [2]bodyMode // of the request and of the response
	rules      envoytest.Rules
	continuous bool // the body never ends
	anonymous  bool // without x-request-id, which Envoy adds by default
}

// response is what the model server answers.
type response struct {
	status   int      // 200 if zero
	headers  []string // names and values in turns
	pieces   []string // none: the headers are all
	trailers bool
	served   string // the endpoint that served, if the gateway says; "-" for a gateway that tells of its load balancing without it
}

// both is a mode of both directions.
func both(m bodyMode) [2]bodyMode { return [2]bodyMode{m, m} }

// whole is a body in one piece.
func whole(body string) *extprocv3.HttpBody {
	return &extprocv3.HttpBody{Body: []byte(body), EndOfStream: true}
}

// stream is one exchange in the hands of a gateway.
type stream struct {
	t      testing.TB
	stream extprocv3.ExternalProcessor_ProcessClient
	cancel context.CancelFunc

	mu      sync.Mutex
	gateway *envoytest.Gateway
	wrong   error // with a reply
	err     error // that ended the stream
	changed chan struct{}
	done    chan struct{} // closed when nothing is received any more
}

// open opens a stream, which is received from until it ends.
func (r *rig) open(rules envoytest.Rules) *stream {
	r.t.Helper()
	return openOn(r.t, r.gateway, rules)
}

// limited returns the context of a stream. It ends after a while, and has no deadline: gRPC would send that to the server, whose
// stopped timer would keep the stream and its frames in memory.
func limited() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(kubetest.Patience, cancel)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}

func openOn(t testing.TB, client extprocv3.ExternalProcessorClient, rules envoytest.Rules) *stream {
	t.Helper()
	ctx, cancel := limited()
	opened, err := client.Process(ctx)
	require.NoError(t, err)
	s := &stream{t: t, stream: opened, cancel: cancel, gateway: envoytest.New(rules), changed: make(chan struct{}), done: make(chan struct{})}
	go s.receive()
	t.Cleanup(func() {
		cancel()
		<-s.done
	})
	return s
}

func (s *stream) receive() {
	defer close(s.done)
	for {
		reply, err := s.stream.Recv()
		s.mu.Lock()
		if s.err = err; err == nil {
			s.wrong = s.gateway.CheckReply(reply)
		}
		over := s.err != nil || s.wrong != nil
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
		if over {
			return
		}
	}
}

// send sends a message. One that a picker which has ended the stream does not get is no error.
func (s *stream) send(m *extprocv3.ProcessingRequest) {
	s.t.Helper()
	s.mu.Lock()
	s.gateway.RecordSent(m)
	s.mu.Unlock()
	if err := s.stream.Send(m); err != nil {
		require.ErrorIs(s.t, err, io.EOF)
	}
}

// await waits for what the gateway has been told.
func (s *stream) await(condition func(g *envoytest.Gateway) bool, what string) {
	s.t.Helper()
	for {
		s.mu.Lock()
		met, wrong, err, changed := condition(s.gateway), s.wrong, s.err, s.changed
		s.mu.Unlock()
		switch {
		case wrong != nil:
			s.t.Fatalf("wrong reply: %v", wrong)
		case met:
			return
		case err != nil:
			s.t.Fatalf("never %s: %v (%v)", what, err, s.gateway.CheckFinished())
		}
		<-changed
	}
}

// answered waits until everything that was sent is answered.
func (s *stream) answered() {
	s.t.Helper()
	s.await(func(g *envoytest.Gateway) bool { return g.CheckFinished() == nil }, "answered")
}

// ask opens a stream and sends a request, up to the answer.
func (r *rig) ask(q request) *stream {
	r.t.Helper()
	s := r.open(q.rules)
	s.ask(q)
	return s
}

func (s *stream) ask(q request) {
	s.t.Helper()
	s.send(q.first())
	if q.body == "" && !q.trailers {
		s.answered()
		return
	}
	s.body(q)
	if q.trailers {
		s.send(envoytest.RequestTrailers("x-checksum", "1"))
	}
	if q.continuous {
		return
	}
	s.answered()
}

// first is the message with the headers.
func (q request) first() *extprocv3.ProcessingRequest {
	path, method := q.path, "POST"
	if path == "" {
		path = "/v1/completions"
	}
	if q.body == "" {
		method = "GET"
	}
	pairs := append([]string{":method", method, ":path", path, ":authority", "models.example.com", "content-type", "application/json"}, q.headers...)
	if !q.anonymous && !slices.Contains(q.headers, "x-request-id") {
		pairs = append(pairs, "x-request-id", "test")
	}
	m := envoytest.RequestHeaders(&extprocv3.HttpHeaders{Headers: envoytest.Headers(pairs...), EndOfStream: q.body == "" && !q.trailers})
	requestMode, responseMode := q.bodyModes()
	m.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: requestMode, ResponseBodyMode: responseMode}
	if q.subset != nil {
		m.MetadataContext = envoytest.Metadata(envoytest.NamespaceSubset, envoytest.KeySubset, q.subset)
	}
	return m
}

func (q request) bodyModes() (request, response bodyMode) {
	if !q.allModes {
		return fullDuplex, fullDuplex
	}
	return q.modes[0], q.modes[1]
}

// body sends the body as the mode wants it.
func (s *stream) body(q request) {
	s.t.Helper()
	mode, _ := q.bodyModes()
	if mode == noBody || q.body == "" {
		return
	}
	whole := []byte(q.body)
	pieces := [][]byte{whole}
	if q.chunk > 0 && mode != buffered {
		pieces = nil
		for ; len(whole) > q.chunk; whole = whole[q.chunk:] {
			pieces = append(pieces, whole[:q.chunk])
		}
		pieces = append(pieces, whole)
	}
	if q.endApart {
		pieces = append(pieces, nil)
	}
	for i, p := range pieces {
		if mode != fullDuplex {
			s.answered() // the gateway holds each piece until the one before is answered
		}
		end := i == len(pieces)-1 && !q.trailers && !q.continuous
		s.send(envoytest.RequestBody(&extprocv3.HttpBody{Body: p, EndOfStream: end}))
		if end && q.endTwice {
			s.send(envoytest.RequestBody(&extprocv3.HttpBody{Body: p, EndOfStream: true}))
		}
	}
}

// picked returns the destination.
func (s *stream) picked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gateway.PickedEndpoint()
}

// refusal is what the client gets instead of a model server's response.
type refusal struct {
	status int
	reason string
	retry  string
	text   string
}

// refused returns the picker's own response, and checks that the stream ends with it.
func (s *stream) refused() refusal {
	s.t.Helper()
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NoError(s.t, s.wrong)
	require.ErrorIs(s.t, s.err, io.EOF)
	i := s.gateway.ImmediateResponse()
	require.NotNil(s.t, i, "picked %s", s.gateway.PickedEndpoint())
	found := refusal{status: int(i.GetStatus().GetCode()), text: messageOf(s.t, i.GetBody())}
	for _, h := range i.GetHeaders().GetSetHeaders() {
		switch h.GetHeader().GetKey() {
		case "x-llm-d-request-dropped-reason":
			found.reason = string(h.GetHeader().GetRawValue())
		case "retry-after":
			found.retry = string(h.GetHeader().GetRawValue())
		case "content-type":
			assert.Equal(s.t, "application/json", string(h.GetHeader().GetRawValue()))
		default:
			s.t.Errorf("header %s", h)
		}
	}
	return found
}

// messageOf returns the message of a refusal.
func messageOf(t testing.TB, body []byte) string {
	t.Helper()
	var whole struct{ Error struct{ Message string } }
	require.NoError(t, json.Unmarshal(body, &whole), string(body))
	return whole.Error.Message
}

// respond shows a response, up to its last answer.
func (s *stream) respond(p response) {
	s.t.Helper()
	s.begin(p)
	for i, piece := range p.pieces {
		s.piece(piece, i == len(p.pieces)-1 && !p.trailers)
	}
	if p.trailers {
		s.send(envoytest.ResponseTrailers("grpc-status", "0"))
	}
	s.answered()
}

// begin shows the headers of a response.
func (s *stream) begin(p response) {
	s.t.Helper()
	s.await(func(g *envoytest.Gateway) bool { return g.ImmediateResponse() == nil }, "let through: refused")
	code := p.status
	if code == 0 {
		code = 200
	}
	pairs := append([]string{":status", strconv.Itoa(code)}, p.headers...)
	m := envoytest.ResponseHeaders(&extprocv3.HttpHeaders{Headers: envoytest.Headers(pairs...), EndOfStream: len(p.pieces) == 0 && !p.trailers})
	switch p.served {
	case "":
	case "-":
		m.MetadataContext = envoytest.Metadata(envoytest.NamespaceLB, "other", structpb.NewStringValue("x"))
	default:
		m.MetadataContext = envoytest.Metadata(envoytest.NamespaceLB, envoytest.KeyServed, structpb.NewStringValue(p.served))
	}
	s.send(m)
	s.await(func(g *envoytest.Gateway) bool { return g.ResponseHeadersAnswered() }, "answered to the response's headers")
}

func (s *stream) piece(b string, end bool) {
	s.t.Helper()
	s.send(envoytest.ResponseBody(&extprocv3.HttpBody{Body: []byte(b), EndOfStream: end}))
}

// end ends a stream as Envoy does when an exchange is over, and waits until the picker knows.
func (s *stream) end() {
	s.t.Helper()
	require.NoError(s.t, s.stream.CloseSend())
	select {
	case <-s.done:
	case <-time.After(kubetest.Patience):
		s.t.Fatal("the stream does not end")
	}
	require.NoError(s.t, s.wrong)
	require.ErrorIs(s.t, s.err, io.EOF)
}

// serve is a whole exchange: it returns where the request went.
func (r *rig) serve(q request, p response) string {
	r.t.Helper()
	s := r.ask(q)
	s.respond(p)
	s.end()
	return s.picked()
}
