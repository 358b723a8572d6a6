package config

import (
	"fmt"

	"github.com/spf13/pflag"
)

const (
	flagStreamMetrics = "enable-grpc-stream-metrics"
	flagLegacyMetrics = "legacy-metrics"
	flagTracing       = "tracing"
	flagLogRequests   = "log-requests"
	flagDebugPicks    = "debug-picks"

	maxDebugPicks = 10_000
)

// Telemetry says what the picker tells of requests, beyond its metrics.
type Telemetry struct {
	StreamMetrics bool
	LegacyMetrics bool
	Tracing       bool // if the environment says where to
	LogRequests   bool
	DebugPicks    int
}

func (t *Telemetry) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&t.StreamMetrics, flagStreamMetrics, t.StreamMetrics, "Collect the llm_d_epp_extproc_* metrics.")
	fs.BoolVar(&t.LegacyMetrics, flagLegacyMetrics, t.LegacyMetrics,
		"Show llm_d_epp_* metrics under their older names too: inference_objective_*, inference_pool_*, inference_extension_*.")
	fs.BoolVar(&t.Tracing, flagTracing, t.Tracing,
		"Trace requests, if OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_ENDPOINT say where to.")
	fs.BoolVar(&t.LogRequests, flagLogRequests, t.LogRequests, "Log each request when it has ended, in one line.")
	fs.IntVar(&t.DebugPicks, flagDebugPicks, t.DebugPicks, "How many of the last picks /debug/pools shows, with the scores of all candidates.")
}

func (t Telemetry) validate() error {
	if t.DebugPicks < 0 || t.DebugPicks > maxDebugPicks {
		return fmt.Errorf("--%s %d is out of range: give 0 to %d", flagDebugPicks, t.DebugPicks, maxDebugPicks)
	}
	return nil
}
