package config

import (
	"fmt"

	"github.com/spf13/pflag"
)

const (
	flagDebugPicks = "debug-picks"
	maxDebugPicks  = 10_000
)

// Telemetry configures telemetry of requests, beyond metrics.
type Telemetry struct {
	StreamMetrics bool
	LegacyMetrics bool
	Tracing       bool // if the environment configures an exporter
	LogRequests   bool
	DebugPicks    int
}

func (t *Telemetry) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&t.StreamMetrics, "enable-grpc-stream-metrics", t.StreamMetrics, "Export the llm_d_epp_extproc_* metrics.")
	fs.BoolVar(&t.LegacyMetrics, "legacy-metrics", t.LegacyMetrics,
		"Also export llm_d_epp_* metrics under their older names: inference_objective_*, inference_pool_*, inference_extension_*.")
	fs.BoolVar(&t.Tracing, "tracing", t.Tracing,
		"Trace requests if OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_ENDPOINT is set.")
	fs.BoolVar(&t.LogRequests, "log-requests", t.LogRequests, "Log one line for each request when it ends.")
	fs.IntVar(&t.DebugPicks, flagDebugPicks, t.DebugPicks, "Number of recent picks on /debug/pools, with the scores of all candidates.")
}

func (t Telemetry) validateFlags() error {
	if t.DebugPicks < 0 || t.DebugPicks > maxDebugPicks {
		return fmt.Errorf("--%s %d is out of range: give 0 to %d", flagDebugPicks, t.DebugPicks, maxDebugPicks)
	}
	return nil
}
