//go:build system

package hermetic

import (
	"context"
	"encoding/hex"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

// spans is a collector that keeps them, by name.
type spans struct {
	collector.UnimplementedTraceServiceServer

	mu   sync.Mutex
	kept map[string]*tracev1.Span
}

func (s *spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				s.kept[span.GetName()] = span
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// collect starts a collector.
func collect(t *testing.T) (found *spans, address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, found := grpc.NewServer(), &spans{kept: map[string]*tracev1.Span{}}
	collector.RegisterTraceServiceServer(server, found)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return found, "http://" + l.Addr().String()
}

func attribute(s *tracev1.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().String()
		}
	}
	return ""
}

// A request of a trace is a part of it, and the model server's part is below that.
func TestSpans(t *testing.T) {
	found, address := collect(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}})

	unsampled := r.ask(request{body: ofModel, headers: []string{"traceparent", "00-" + trace + "-" + parent + "-00"}, rules: envoytest.Rules{Set: []string{"traceparent"}}})
	unsampled.respond(response{pieces: completion})
	unsampled.end()

	s := r.ask(request{
		body: ofModel, headers: []string{"traceparent", "00-" + trace + "-" + parent + "-01", "x-request-id", "id-1"},
		rules: envoytest.Rules{Set: []string{"traceparent"}},
	})
	s.respond(response{pieces: completion})
	s.end()
	names := []string{"gateway.request", "gateway.request_orchestration", "llm_d.epp.scoring"}
	r.await(func() bool {
		found.mu.Lock()
		defer found.mu.Unlock()
		return len(found.kept) == len(names)
	}, "all spans")
	found.mu.Lock()
	defer found.mu.Unlock()
	whole, orchestration, scoring := found.kept[names[0]], found.kept[names[1]], found.kept[names[2]]
	for _, span := range found.kept {
		assert.Equal(t, trace, hex.EncodeToString(span.GetTraceId()))
	}
	assert.Equal(t, parent, hex.EncodeToString(whole.GetParentSpanId()))
	assert.Equal(t, whole.GetSpanId(), orchestration.GetParentSpanId())
	assert.Equal(t, orchestration.GetSpanId(), scoring.GetParentSpanId())
	assert.Equal(t, "00-"+trace+"-"+hex.EncodeToString(whole.GetSpanId())+"-01", strings.Join(s.gateway.RequestHeaders()["traceparent"], ","))
	for key, want := range map[string]string{
		"gen_ai.request.model": "my-model", "gen_ai.request.id": "id-1", "http.response.status_code": "200", "url.path": "/v1/completions",
		"gen_ai.usage.input_tokens": "7", "gen_ai.usage.output_tokens": "10", "fairlead.outcome": "completed",
	} {
		assert.Contains(t, attribute(whole, key), want, key)
	}
	assert.Contains(t, attribute(scoring, "fairlead.pod"), "ns/model-0")
	assert.Contains(t, attribute(scoring, "server.address"), r.servers[0].address.Addr().String())
}
