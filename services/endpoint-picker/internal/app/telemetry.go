package app

import (
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/dig"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/version"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/datastore"
	"fairlead.dev/services/endpoint-picker/internal/debugpage"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/metrics"
	"fairlead.dev/services/endpoint-picker/internal/requestlog"
	"fairlead.dev/services/endpoint-picker/internal/tracing"
)

// observers receive all exchanges: the metrics, and other telemetry that is enabled.
type observers struct {
	*metrics.Metrics

	others []interface{ ObserveExchange(r *exchange.Record) }
}

// ObserveExchange passes a finished exchange to all observers.
func (o *observers) ObserveExchange(r *exchange.Record) {
	o.Metrics.ObserveExchange(r)
	for _, other := range o.others {
		other.ObserveExchange(r)
	}
}

func newObservers(cfg *config.Config, log *zap.Logger, m *metrics.Metrics, t *tracing.Tracer, p *debugpage.Picks) *observers {
	o := &observers{Metrics: m}
	if t.Enabled() {
		o.others = append(o.others, t)
	}
	if p.Enabled() {
		o.others = append(o.others, p)
	}
	if cfg.Telemetry.LogRequests {
		o.others = append(o.others, requestlog.New(log.Named("requests")))
	}
	return o
}

func newTracer(cfg *config.Config, log *zap.Logger) (*tracing.Tracer, error) {
	options := tracing.Off()
	if cfg.Telemetry.Tracing {
		var err error
		if options, err = tracing.FromEnvironment(os.Getenv); err != nil {
			return nil, err
		}
	}
	return tracing.New(tracing.Params{Options: options, Log: log.Named("tracing"), Version: version.String()}), nil
}

func newPicks(cfg *config.Config) *debugpage.Picks {
	return debugpage.NewPicks(cfg.Telemetry.DebugPicks)
}

// debugPageParts are the parameters of newDebugPage.
type debugPageParts struct {
	dig.In

	Config    *config.Config
	Log       *zap.Logger
	Store     *datastore.Store
	Estimator *estimate.Estimator
	Picks     *debugpage.Picks
	Clock     clock.RealClock
}

func newDebugPage(p debugPageParts) *debugpage.Page {
	pool := p.Config.Pool.String()
	if p.Config.Pool.File != "" {
		pool = filepath.Base(pool)
	}
	return debugpage.New(debugpage.Params{
		Log:        p.Log.Named("debugpage"),
		Pool:       pool,
		Version:    version.String(),
		Snapshots:  p.Store,
		Estimator:  p.Estimator,
		StaleAfter: p.Config.Scraping.StaleAfter,
		Picks:      p.Picks,
		Clock:      p.Clock,
	})
}

func newMetrics(cfg *config.Config, r *prometheus.Registry) *metrics.Metrics {
	return metrics.New(r, metrics.Options{Streams: cfg.Telemetry.StreamMetrics})
}

// poolCollectorParts are the parameters of newPoolCollector.
type poolCollectorParts struct {
	dig.In

	Config    *config.Config
	Registry  *prometheus.Registry
	Store     *datastore.Store
	Metrics   *metrics.Metrics
	Estimator *estimate.Estimator
	Clock     clock.RealClock
}

func newPoolCollector(p poolCollectorParts) *metrics.PoolCollector {
	return metrics.NewPoolCollector(metrics.PoolParams{
		Pool:       p.Config.Pool.Name.Name,
		Snapshots:  p.Store,
		Metrics:    p.Metrics,
		Estimator:  p.Estimator,
		StaleAfter: p.Config.Scraping.StaleAfter,
		Clock:      p.Clock,
	}, p.Registry)
}

// newGatherer returns the gatherer for /metrics.
func newGatherer(cfg *config.Config, r *prometheus.Registry) prometheus.Gatherer {
	if cfg.Telemetry.LegacyMetrics {
		return metrics.LegacyNames(r)
	}
	return r
}
