package app

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"

	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/debugpage"
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

// TestObservers counts the observers of exchanges besides the metrics.
func TestObservers(t *testing.T) {
	tests := []struct {
		name        string
		change      func(c *config.Config)
		environment map[string]string
		wantOthers  int
		wantLines   int
	}{
		{name: "by default"},
		{name: "log", change: func(c *config.Config) { c.Telemetry.LogRequests = true }, wantOthers: 1, wantLines: 1},
		{name: "picks", change: func(c *config.Config) { c.Telemetry.DebugPicks = 1 }, wantOthers: 1},
		{name: "traces", environment: map[string]string{"OTEL_TRACES_EXPORTER": "console"}, wantOthers: 1},
		{
			name: "no traces, whatever the environment says", environment: map[string]string{"OTEL_TRACES_EXPORTER": "console"},
			change: func(c *config.Config) { c.Telemetry.Tracing = false },
		},
		{
			name: "all", environment: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}, wantOthers: 3, wantLines: 1,
			change: func(c *config.Config) { c.Telemetry.DebugPicks, c.Telemetry.LogRequests = 1, true },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.environment {
				t.Setenv(name, value)
			}
			cfg := config.Default()
			if tt.change != nil {
				tt.change(cfg)
			}
			core, logs := zaptest.New(zap.InfoLevel)
			tracer, err := newTracer(cfg, zap.New(core))
			require.NoError(t, err)
			pools := newRunningPools(poolParts{Config: cfg, Log: zap.New(core), Tracer: tracer})
			enabled := pools.enabledObservers("ns/pool", debugpage.NewPicks(cfg.Telemetry.DebugPicks))
			assert.Len(t, enabled, tt.wantOthers)
			for _, o := range enabled {
				o.ObserveRequest(&exchange.Record{Outcome: exchange.Refused, Status: http.StatusServiceUnavailable, StartTime: time.Now(),
					EndTime: time.Now()})
			}
			assert.Equal(t, tt.wantLines, logs.FilterMessage("Handled request").Len())
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
