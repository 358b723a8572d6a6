//go:build system

package hermetic

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

const inFlight = "fairlead_picker_endpoint_requests_in_flight"

// held starts a picker with one model server, whose pages come when they are let go. One scrape has begun.
func held(t *testing.T, flags ...string) (r *rig, next, release func()) {
	t.Helper()
	r = start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: append(flags, "--refresh-metrics-timeout=20s")})
	before, next, release := r.servers[0].hold()
	r.await(func() bool { return r.servers[0].asked() > before }, "a scrape has begun")
	return r, next, release
}

// step lets one page go and waits until it has been read: the next scrape has begun.
func (r *rig) step(next func()) {
	r.t.Helper()
	asked := r.servers[0].asked()
	next()
	r.await(func() bool { return r.servers[0].asked() > asked }, "the next scrape has begun")
}

// A stream that ends after the pick says nothing of its request: it counts until a scrape that began after it.
func TestStreamsThatEndEarly(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		flags []string
		end   func(s *stream)
	}{
		{name: "half-closed by the gateway", end: (*stream).end},
		{name: "cancelled by the gateway", end: func(s *stream) { s.cancel(); <-s.done }},
		{name: "by --early-close", flags: []string{"--early-close"}, end: func(s *stream) { <-s.done }},
		{name: "behind the headers of the response, as it shows no body", end: func(s *stream) {
			s.begin(response{pieces: []string{"x"}})
			s.end()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, next, release := held(t, tt.flags...)
			s := r.ask(request{body: ofModel, allModes: true, modes: [2]bodyMode{fullDuplex, noBody}})
			assert.Equal(t, r.at(0), s.picked())
			tt.end(s)
			r.await(func() bool { return r.metrics().sum("fairlead_picker_streams_total", "outcome", "unseen") == 1 }, "ended")
			assert.Equal(t, 1.0, r.metrics().sum(inFlight))
			r.step(next)
			assert.Equal(t, 1.0, r.metrics().sum(inFlight), "that scrape had begun before")
			r.step(next)
			r.await(func() bool { return r.metrics().sum(inFlight) == 0 }, "in the sample")
			release()
		})
	}
}

// In the middle of a response the client has gone: its request is over, which no scrape need say.
func TestClientThatGoesAway(t *testing.T) {
	t.Parallel()
	r, _, release := held(t)
	s := r.ask(request{body: ofModel})
	s.begin(response{headers: []string{"content-type", "text/event-stream"}, pieces: []string{"x"}})
	s.piece("data: {}\n\n", false)
	s.answered()
	assert.Equal(t, 1.0, r.metrics().sum(inFlight))
	s.cancel()
	<-s.done
	r.await(func() bool { return r.metrics().sum(inFlight) == 0 }, "over")
	r.settle()
	assert.Equal(t, 1.0, r.metrics().sum("fairlead_picker_streams_total", "outcome", "interrupted"))
	release()
}

// The gateway answers in the model server's place before the request has come: nothing is picked.
func TestGatewayThatAnswersItself(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}})
	s := r.ask(request{body: ofModel, continuous: true})
	s.respond(response{status: 408, pieces: []string{"too slow"}})
	s.end()
	assert.Empty(t, s.picked())
	assert.Equal(t, 1.0, r.metrics().sum("fairlead_picker_streams_total", "outcome", "unpicked"))
}

// The picker distinguishes requests by their streams: clients may give them the same name.
func TestRequestsOfOneID(t *testing.T) {
	t.Parallel()
	r, _, release := held(t)
	id := []string{"x-request-id", "same"}
	one := r.ask(request{body: ofModel, headers: id})
	two := r.ask(request{body: longBody(200 << 10), headers: id})
	assert.Equal(t, 2.0, r.metrics().sum(inFlight))
	one.respond(response{pieces: completion})
	one.end()
	r.await(func() bool { return r.metrics().sum(inFlight) == 1 }, "one has ended")
	two.respond(response{pieces: []string{`{"usage": {"prompt_tokens": 1000, "completion_tokens": 500}}`}})
	two.end()
	r.await(func() bool { return r.metrics().sum(inFlight) == 0 }, "both have ended")
	page := r.metrics()
	assert.Equal(t, 1007.0, page.sampled("llm_d_epp_request_input_tokens"))
	assert.Equal(t, 510.0, page.sampled("llm_d_epp_request_output_tokens"))
	release()
}

func TestRequestsWithoutAnID(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}})
	ids := map[string]bool{}
	for range 3 {
		s := r.ask(request{body: ofModel, anonymous: true, rules: envoytest.Rules{Set: []string{"x-request-id"}}})
		got := s.gateway.RequestHeaders()["x-request-id"]
		require.Len(t, got, 1)
		require.Len(t, got[0], 36)
		ids[got[0]] = true
		s.respond(response{pieces: completion})
		s.end()
	}
	assert.Len(t, ids, 3)
}

func TestNoLinesOfRequests(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}})
	before := r.logs.Len()
	for range 5 {
		r.serve(request{body: ofModel, headers: []string{"x-request-id", "id"}}, response{pieces: completion})
		r.serve(request{body: ofModel}, response{status: 500, pieces: []string{"broken"}})
		r.ask(unreadable("{no JSON")).refused()
		r.ask(request{body: ofModel, subset: list()}).refused()
		r.ask(request{body: ofModel}).end()
	}
	assert.Equal(t, before, r.logs.Len(), "%v", r.logs.All()[before:])
}

// NGINX Gateway Fabric shows no path, writes headers in its own way, sends a body in one message however long it is, and
// half-closes behind it, on a connection for each request.
func TestNGINXGatewayFabric(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 6 << 20} {
		r, next, release := held(t)
		s := openOn(t, extprocv3.NewExternalProcessorClient(r.dial("grpc-port")), envoytest.Rules{Remove: []string{"x-prefiller-host-port"}})
		s.send(envoytest.RequestHeaders(&extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			{Key: "Host", Value: "models.example.com"}, {Key: "Content-Type", Value: "application/json"}, {Key: "X-Request-Id", Value: "id"},
			{Key: "X-Gateway-Destination-Endpoint", Value: "169.254.169.254:80"}, {Key: "X-Prefiller-Host-Port", Value: "169.254.169.254:80"},
		}}}))
		s.send(envoytest.RequestBody(whole(longBody(size))))
		s.answered()
		s.end()
		assert.Equal(t, r.at(0), s.picked())
		assert.Equal(t, []string{r.at(0)}, s.gateway.RequestHeaders()["x-gateway-destination-endpoint"])
		page := r.metrics()
		assert.Equal(t, 1.0, page.sum("llm_d_epp_request_total", "model_name", "m"), "the body says which API it is")
		assert.Equal(t, 1.0, page.sum(inFlight))
		r.step(next)
		assert.Equal(t, 1.0, r.metrics().sum(inFlight))
		release()
		r.settle()
	}
}

// Bodies that are not full duplex come through as well, and say what the others say.
func TestBodyModes(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}})
	want := 0.0
	for _, requestMode := range []bodyMode{fullDuplex, streamed, buffered, noBody} {
		for _, responseMode := range []bodyMode{fullDuplex, streamed, buffered, noBody} {
			for _, trailers := range []bool{false, true} {
				answer := response{pieces: completion, trailers: trailers}
				switch responseMode {
				case buffered:
					answer.pieces = []string{strings.Join(completion, "")}
				case noBody:
					answer.pieces = nil
				}
				if responseMode != noBody {
					want++
				}
				r.serve(request{body: longBody(100_000), chunk: 16 << 10, trailers: trailers, allModes: true, modes: [2]bodyMode{requestMode, responseMode}}, answer)
			}
		}
	}
	assert.Equal(t, 10*want, r.metrics().sampled("llm_d_epp_request_output_tokens"))
}

// Gateways that do not tell their mode go by a flag.
func TestBodyModeOfTheFlag(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]bodyMode{"full-duplex": fullDuplex, "streamed": streamed, "buffered": buffered, "none": noBody} {
		r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--body-mode=" + name}})
		q := request{body: ofModel, allModes: true, modes: both(mode)}
		s := r.open(envoytest.Rules{})
		s.gateway.SetModes(mode, mode)
		first := q.first()
		first.ProtocolConfig = nil
		s.send(first)
		s.body(q)
		s.answered()
		assert.Equal(t, r.at(0), s.picked(), name)
		s.respond(response{})
		s.end()
	}
}
