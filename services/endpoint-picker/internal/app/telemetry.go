package app

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/dig"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/datastore"
	"fairlead.dev/services/endpoint-picker/internal/metrics"
	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
)

func newMetrics(cfg *config.Config, r *prometheus.Registry) *metrics.Metrics {
	return metrics.New(r, metrics.Options{Streams: cfg.Telemetry.StreamMetrics})
}

// poolCollectorParts are what newPoolCollector needs.
type poolCollectorParts struct {
	dig.In

	Config   *config.Config
	Registry *prometheus.Registry
	Store    *datastore.Store
	Metrics  *metrics.Metrics
	Learner  *predict.Learner
	Prefixes *prefix.Index
	Clock    clock.RealClock
}

func newPoolCollector(p poolCollectorParts) *metrics.PoolCollector {
	return metrics.NewPoolCollector(metrics.PoolParams{
		Pool:       p.Config.Pool.Name.Name,
		Snapshots:  p.Store,
		Metrics:    p.Metrics,
		Learner:    p.Learner,
		Prefixes:   p.Prefixes,
		StaleAfter: p.Config.Scraping.StaleAfter,
		Clock:      p.Clock,
	}, p.Registry)
}

// newGatherer returns what /metrics shows.
func newGatherer(cfg *config.Config, r *prometheus.Registry) prometheus.Gatherer {
	if cfg.Telemetry.LegacyMetrics {
		return metrics.LegacyNames(r)
	}
	return r
}
