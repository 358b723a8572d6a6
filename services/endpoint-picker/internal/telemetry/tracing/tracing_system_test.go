//go:build system

package tracing

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// sink is a collector that keeps the names of spans.
type sink struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex
	names []string
}

func (s *sink) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == keyServiceName {
				s.names = append(s.names, a.GetValue().GetStringValue())
			}
		}
		for _, scoped := range resource.GetScopeSpans() {
			for _, span := range scoped.GetSpans() {
				s.names = append(s.names, span.GetName())
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// Over the real exporter, as the environment says.
func TestSpansReachACollector(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, received := grpc.NewServer(), &sink{}
	collector.RegisterTraceServiceServer(server, received)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	environment := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + listener.Addr().String(), "OTEL_SERVICE_NAME": "epp", "OTEL_TRACES_SAMPLER": "always_on",
	}
	for name, value := range environment {
		t.Setenv(name, value)
	}
	options, err := FromEnvironment(func(name string) string { return environment[name] })
	require.NoError(t, err)
	tr := New(options, zap.NewNop(), "")
	stop := start(t, tr)
	tr.ObserveRequest(streamed())
	stop()
	received.mu.Lock()
	defer received.mu.Unlock()
	assert.ElementsMatch(t, []string{"epp", spanRequest, spanOrchestration, spanScoring}, received.names)
}
