package hermetic

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/envoytest"
)

var tooLong = refusal{status: 413, text: "inference error: PayloadTooLarge - request body is over 1024 bytes"}

func exhausted(why string) refusal {
	return refusal{status: 429, reason: "rejected-saturated", retry: "1", text: "inference error: ResourceExhausted - " + why}
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

// What others hold is no concern of who fits in.
func TestBodiesOverTheBudget(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--max-request-body=1Mi", "--max-buffered-bytes=1Mi"}})
	slow := r.ask(request{body: longBody(900 << 10), continuous: true})
	r.await(func() bool { return r.metrics().sum("fairlead_picker_request_bytes_buffered") == 900<<10 }, "held")
	assert.Equal(t, exhausted("too many request bodies are buffered"), r.ask(request{body: longBody(200 << 10)}).refused())
	r.serve(request{body: longBody(100 << 10)}, response{})

	slow.send(envoytest.RequestBody(whole("")))
	slow.await(func(g *envoytest.Gateway) bool { return g.Picked() != "" }, "picked")
	slow.answered()
	r.await(func() bool { return r.metrics().sum("fairlead_picker_request_bytes_buffered") == 0 }, "let go when the body has gone on")
	r.serve(request{body: longBody(900 << 10)}, response{})
	slow.respond(response{})
	slow.end()
}

// A client that goes away, or a gateway, in the middle of a body leaves nothing behind.
func TestBodiesThatEndInTheMiddle(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}})
	gone := r.ask(request{body: longBody(300 << 10), continuous: true})
	closed := r.ask(request{body: longBody(300 << 10), continuous: true})
	r.await(func() bool { return r.metrics().sum("fairlead_picker_request_bytes_buffered") == 600<<10 }, "held")
	gone.cancel()
	<-gone.done
	closed.end()
	r.settle()
	assert.Equal(t, 2.0, r.metrics().sum("fairlead_picker_streams_total", "outcome", "unpicked"))
}

// TestSlowBody expects that the picker frees the memory of a body that does not come, and refuses its request.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--request-body-timeout=1s"}})
	slow := r.ask(request{body: longBody(100 << 10), continuous: true})
	began := time.Now()
	r.await(func() bool { return r.metrics().sum("fairlead_picker_request_bytes_buffered") == 100<<10 }, "held")
	r.await(func() bool { return r.metrics().sum("fairlead_picker_request_bytes_buffered") == 0 }, "let go")
	assert.Greater(t, time.Since(began), 900*time.Millisecond)
	assert.Equal(t, 1.0, r.metrics().sum("fairlead_picker_streams_in_flight"))
	slow.send(envoytest.RequestBody(whole("}")))
	assert.Equal(t, refusal{status: 408, text: "inference error: RequestTimeout - the request body took too long to come"}, slow.refused())
}

func TestStreamsOverTheLimit(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--max-streams=2"}})
	one, two := r.ask(request{body: ofModel}), r.ask(request{body: ofModel})
	assert.Equal(t, exhausted("too many requests are open"), r.ask(request{body: ofModel}).refused())
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
