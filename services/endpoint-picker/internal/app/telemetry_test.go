package app

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
)

func TestOlderNamesIfWanted(t *testing.T) {
	t.Parallel()
	for _, legacy := range []bool{false, true} {
		cfg := config.Default()
		cfg.Telemetry.LegacyMetrics = legacy
		registry := prometheus.NewRegistry()
		metrics.New(registry, metrics.Options{})
		families, err := newGatherer(cfg, registry).Gather()
		require.NoError(t, err)
		shown := false
		for _, f := range families {
			shown = shown || strings.HasPrefix(f.GetName(), "inference_extension_")
		}
		assert.Equal(t, legacy, shown)
	}
}

func TestTracerOfTheEnvironment(t *testing.T) {
	tests := []struct {
		name, variable, value string
		off                   bool // by the flag
		want                  bool
	}{
		{name: "by default"},
		{name: "exporter", variable: "OTEL_TRACES_EXPORTER", value: "console", want: true},
		{name: "endpoint", variable: "OTEL_EXPORTER_OTLP_ENDPOINT", value: "http://127.0.0.1:4317", want: true},
		{name: "no traces, whatever the environment says", variable: "OTEL_TRACES_EXPORTER", value: "console", off: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.variable != "" {
				t.Setenv(tt.variable, tt.value)
			}
			cfg := config.Default()
			cfg.Telemetry.Tracing = cfg.Telemetry.Tracing && !tt.off
			tracer, err := newTracer(cfg, zap.NewNop())
			require.NoError(t, err)
			assert.Equal(t, tt.want, tracer.IsEnabled())
		})
	}
}

func TestEnvironmentOfTracesThatCannotBeUsed(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "zipkin")
	cfg := config.Default()
	_, err := newTracer(cfg, zap.NewNop())
	require.ErrorContains(t, err, `OTEL_TRACES_EXPORTER "zipkin" is not one of`)
	cfg.Telemetry.Tracing = false
	_, err = newTracer(cfg, zap.NewNop())
	require.NoError(t, err)
}
