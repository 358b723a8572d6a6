package app

import (
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/version"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/pools"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/debugpage"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/recorder"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/tracing"
)

func newTracer(cfg *config.Config, log *zap.Logger) (*tracing.Tracer, error) {
	options := tracing.Off()
	if cfg.Telemetry.Tracing {
		var err error
		if options, err = tracing.FromEnvironment(os.Getenv); err != nil {
			return nil, err
		}
	}
	return tracing.New(options, log.Named("tracing"), version.String()), nil
}

// enabledTracer returns the tracer, or nil if it is disabled.
func enabledTracer(t *tracing.Tracer) request.Tracer {
	if !t.IsEnabled() {
		return nil
	}
	return t
}

// newRecorder returns the recorder, or nil.
func newRecorder(cfg *config.Config, log *zap.Logger, c clock.RealClock, r *prometheus.Registry) *recorder.Recorder {
	if cfg.Recording.File == "" {
		return nil
	}
	return recorder.New(recorder.Params{
		Path: cfg.Recording.File, MaxBytes: int(cfg.Recording.MaxBytes), Log: log.Named("recorder"), Observer: metrics.NewRecording(r),
		Clock: c,
	})
}

// newGatherer returns the gatherer for /metrics.
func newGatherer(cfg *config.Config, r prometheus.Gatherer) prometheus.Gatherer {
	if cfg.Telemetry.LegacyMetrics {
		return metrics.LegacyNames(r)
	}
	return r
}

func newDebugPage(cfg *config.Config, log *zap.Logger, r *pools.Registry, c clock.RealClock) *debugpage.Page {
	return &debugpage.Page{
		Log: log.Named("debugpage"), Version: version.String(), Pools: r.DebugPools, StaleAfter: cfg.Scraping.StaleAfter,
		KeepsPicks: cfg.Telemetry.DebugPicks > 0, Clock: c,
	}
}
