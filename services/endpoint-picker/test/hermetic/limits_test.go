//go:build system

package hermetic

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

var tooLong = refusal{status: 413, text: "request body is over 1024 bytes: send a shorter one"}

func exhausted(why string) refusal {
	return refusal{status: 429, reason: "rejected-saturated", retry: "1", text: why + "; try again in 1 s"}
}

func longBody(n int) string {
	const begin, end = `{"model": "m", "prompt": "`, `"}`
	return begin + strings.Repeat("x", n-len(begin)-len(end)) + end
}

func TestBodiesOverTheLimit(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--max-request-body=1Ki", "--max-buffered-bytes=1Mi"}})
	for _, q := range []request{
		{body: longBody(1025)}, {body: longBody(1025), chunk: 100}, {body: longBody(1025), chunk: 100, trailers: true},
	} {
		assert.Equal(t, tooLong, r.ask(q).refused())
	}
	whole := request{body: longBody(1025), allModes: true, modes: both(buffered)}
	assert.Equal(t, tooLong, r.ask(whole).refused())
	for _, q := range []request{{body: longBody(1024)}, {body: longBody(1024), chunk: 100}, {body: longBody(1024), allModes: true, modes: both(buffered)}} {
		r.serve(q, response{})
	}
}

// buffers waits until the memory of gateways has a size.
func (r *rig) buffers(accept func(bytes float64) bool, what string) {
	r.t.Helper()
	r.await(func() bool {
		runtime.GC() // frames that gRPC did not return count until then
		return accept(r.metrics().sum(memoryOfGateways))
	}, what)
}

func atLeast(least float64) func(float64) bool {
	return func(bytes float64) bool { return bytes >= least }
}

// none reports that nothing is held but stray frames. A connection of gRPC keeps a pointer to its last frame, whose buffer may
// belong to another connection by then: a frame that no handler has read stays in memory until the connection gets another one.
func none(bytes float64) bool { return bytes <= 2*(16<<10) }

// hostile is the address of a gateway that harms.
const hostile = "127.0.0.9"

// TestBodiesOverTheBudget has a gateway that holds nearly all of the memory. It gets no more, and others get their share.
func TestBodiesOverTheBudget(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--max-request-body=1Mi", "--max-buffered-bytes=2Mi"}})
	greedy := r.from(hostile)
	slow, slower := greedy.ask(request{body: longBody(900 << 10), chunk: 60_000, continuous: true}), greedy.ask(request{body: longBody(900 << 10), chunk: 60_000, continuous: true})
	r.buffers(atLeast(1800<<10), "held")
	assert.Equal(t, exhausted("too many bytes of requests in memory"), greedy.ask(request{body: longBody(300 << 10)}).refused())
	for range 5 {
		r.serve(request{body: longBody(100 << 10)}, response{})
	}

	for _, s := range []*stream{slow, slower} {
		s.send(envoytest.RequestBody(whole("")))
		s.await(func(g *envoytest.Gateway) bool { return g.PickedEndpoint() != "" }, "picked")
		s.answered()
	}
	r.buffers(func(bytes float64) bool { return bytes < 100<<10 }, "let go when the bodies have gone on")
	for _, s := range []*stream{slow, slower} {
		s.respond(response{})
		s.end()
	}
}

// TestSilentStreams has a gateway that opens all streams, and says nothing on them.
func TestSilentStreams(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--max-streams=20", "--request-body-timeout=20s"}})
	silent := r.from(hostile)
	for range 20 {
		_, err := silent.gateway.Process(t.Context())
		require.NoError(t, err)
	}
	r.await(func() bool { return r.metrics().sum("fairlead_picker_streams_in_flight") == 20 }, "open")
	for range 5 {
		r.serve(request{body: ofModel}, response{})
	}
	assert.Equal(t, exhausted("too many open requests"), silent.ask(request{body: ofModel}).refused())
	r.await(func() bool { return r.metrics().sum("fairlead_picker_streams_in_flight") == 0 }, "ended by the timeout of headers")
	assert.Equal(t, 20.0, r.metrics().sum("fairlead_picker_gateway_limited_total", "limit", "time"))
}

// TestReaderThatStops has a gateway that sends bodies, and reads no reply. Others are served, and its memory ends with it.
func TestReaderThatStops(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--max-request-body=1Mi", "--max-buffered-bytes=2Mi"}})
	ctx, end := context.WithCancel(t.Context())
	defer end()
	deaf := r.from(hostile, grpc.WithStaticStreamWindowSize(65535), grpc.WithStaticConnWindowSize(65535))
	body := longBody(1 << 20)
	for range 3 {
		stream, err := deaf.gateway.Process(ctx)
		require.NoError(t, err)
		require.NoError(t, stream.Send(request{body: body}.first()))
		require.NoError(t, stream.Send(envoytest.RequestBody(whole(body))))
		r.buffers(atLeast(1<<20), "held") // before the next: three bodies at once could all be refused
	}
	for range 5 {
		r.serve(request{body: longBody(100 << 10)}, response{})
	}
	end()
	r.buffers(none, "let go")
}

// TestHalfMessages has a gateway that sends messages without their ends. They count, and end after the time for a request.
func TestHalfMessages(t *testing.T) {
	t.Parallel()
	const streams, sent = 20, 60_000
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{
		"--max-request-body=1Mi", "--max-buffered-bytes=4Mi", "--request-body-timeout=20s",
	}})
	for range streams {
		r.sendHalf(hostile, 1<<20, sent)
	}
	r.buffers(atLeast(streams*sent), "held, and counted")
	for range 5 {
		r.serve(request{body: longBody(100 << 10)}, response{})
	}
	r.settle()
	page := r.metrics()
	assert.Zero(t, page.sum("fairlead_picker_streams_in_flight"))
	assert.Equal(t, float64(streams), page.sum("fairlead_picker_gateway_limited_total", "limit", "time"))
}

// sendHalf opens a stream from an address, and sends a request up to the first bytes of a message of the body that has more.
func (r *rig) sendHalf(address string, size, sent int) {
	r.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := dialer.DialContext(r.t.Context(), "tcp", r.address("grpc-port"))
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, conn.Close()) })
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", extprocv3.ExternalProcessor_Process_FullMethodName}, {":authority", "picker"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		require.NoError(r.t, encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	_, err = conn.Write([]byte(http2.ClientPreface))
	require.NoError(r.t, err)
	framer := http2.NewFramer(conn, nil)
	require.NoError(r.t, framer.WriteSettings())
	require.NoError(r.t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true}))
	first, err := proto.Marshal(request{body: ofModel}.first())
	require.NoError(r.t, err)
	data := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(first))), first...)
	data = append(binary.BigEndian.AppendUint32(append(data, 0), uint32(size)), make([]byte, sent)...)
	for frame := range slices.Chunk(data, 16<<10) { // within the first window of HTTP/2
		require.NoError(r.t, framer.WriteData(1, false, frame))
	}
}

// TestIdleStreams has a gateway that never says how a request ended.
func TestIdleStreams(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--stream-idle-timeout=1s"}})
	s := r.ask(request{body: ofModel})
	assert.Equal(t, r.at(0), s.picked())
	<-s.done
	assert.Equal(t, codes.DeadlineExceeded, status.Code(s.err))
	r.settle()
}

// A client that goes away, or a gateway, in the middle of a body leaves nothing behind.
func TestBodiesThatEndInTheMiddle(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}})
	gone := r.ask(request{body: longBody(300 << 10), continuous: true})
	closed := r.ask(request{body: longBody(300 << 10), continuous: true})
	r.buffers(atLeast(600<<10), "held")
	gone.cancel()
	<-gone.done
	closed.end()
	r.settle()
	assert.Equal(t, 2.0, r.metrics().sum("fairlead_picker_streams_total", "outcome", "unpicked"))
}

// TestSlowBody expects that the picker frees the memory of a body that does not come, and refuses its request.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--request-body-timeout=5s"}})
	slow := r.ask(request{body: longBody(100 << 10), continuous: true})
	r.buffers(atLeast(100<<10), "held")
	assert.Equal(t, refusal{status: 408, text: "the request took too long to come: send it again"}, slow.refused())
	r.buffers(none, "let go")
}

func TestStreamsOverTheLimit(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--max-streams=2"}})
	one, two := r.ask(request{body: ofModel}), r.ask(request{body: ofModel})
	assert.Equal(t, exhausted("too many open requests"), r.ask(request{body: ofModel}).refused())
	two.respond(response{})
	two.end()
	r.serve(request{body: ofModel}, response{})
	one.respond(response{})
	one.end()
}

// A filter that goes by load and leaves nobody: the same answer as for a pool that is full.
func TestNobodyHasRoom(t *testing.T) {
	t.Parallel()
	config := strings.Replace(strings.Replace(upstreamConfig, "- type: queue-scorer",
		"- {type: concurrency-detector, parameters: {maxConcurrency: 2}}\n- type: queue-scorer", 1), "  plugins:\n  -", "  plugins:\n  - pluginRef: concurrency-detector\n  -", 1)
	r := start(t, world{pages: []string{pageOf(0, 9, 0, "")}, config: config})
	assert.Equal(t, exhausted("no endpoint has room for the request"), r.ask(request{body: ofModel}).refused())
}
