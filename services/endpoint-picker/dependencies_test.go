//go:build system

package main

import (
	"testing"

	"fairlead.dev/pkg/depcheck"
)

const internal = "fairlead.dev/services/endpoint-picker/internal/"

// TestDependencies checks what packages do not import, directly or indirectly: pure packages know no client, container or metrics.
func TestDependencies(t *testing.T) {
	t.Parallel()
	const (
		clients   = "k8s.io/client-go/..."
		container = "go.uber.org/dig/..."
		logger    = "go.uber.org/zap/..."
		metrics   = "github.com/prometheus/client_golang/..."
		gRPC      = "google.golang.org/grpc/..."
		envoy     = "github.com/envoyproxy/go-control-plane/..."
	)
	tests := []struct {
		pattern string
		want    []string // not to be imported
	}{
		{pattern: "./internal/endpoint", want: []string{internal + "estimate", internal + "scheduling", internal + "prefixindex"}}, // algorithms know endpoints
		{pattern: "./internal/listener/extproc", want: []string{clients, "k8s.io/api/...", container, "github.com/prometheus/..."}},
		{pattern: "./internal/pluginconfig", want: []string{clients, container, metrics, envoy}},
		{pattern: "./internal/pool", want: []string{clients, container, metrics, envoy, internal + "discovery"}}, // it does not know the source of endpoints and rules
		{pattern: "./internal/scheduling", want: []string{clients, "k8s.io/api/...", logger, container, gRPC, metrics, envoy}},
		{pattern: "./internal/telemetry/recorder", want: []string{clients, container, metrics, envoy}}, // the simulator reads recordings
		{pattern: "./internal/scheduling/plugins", want: []string{clients, container, gRPC, metrics, envoy}},
	}
	for _, tt := range tests {
		t.Run(tt.pattern, func(t *testing.T) {
			t.Parallel()
			depcheck.AssertNoDependency(t, tt.pattern, tt.want...)
		})
	}
}
