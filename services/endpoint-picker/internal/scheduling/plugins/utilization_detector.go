package plugins

import (
	"time"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// newUtilizationDetector returns one with upstream's defaults, but for the threshold of staleness.
func newUtilizationDetector(e Environment) Plugin {
	return &utilizationDetector{QueueDepthThreshold: 5, KVCacheUtilThreshold: 0.8, MetricsStalenessThreshold: e.StaleAfter}
}

// staleCapacity is the assumed capacity, in requests, of an endpoint without current metrics: the default of the
// concurrency-detector.
const staleCapacity = 100

// utilizationDetector uses the metrics of endpoints: the queue or the KV cache, whichever is fuller. For an endpoint with a
// stale sample it uses this picker's requests: a late page is no reason to refuse requests.
type utilizationDetector struct {
	QueueDepthThreshold       int           `yaml:"queueDepthThreshold"`  // queue length of a full endpoint
	KVCacheUtilThreshold      float64       `yaml:"kvCacheUtilThreshold"` // of a full endpoint
	MetricsStalenessThreshold time.Duration `yaml:"metricsStalenessThreshold"`
	Headroom                  float64       `yaml:"headroom"` // how much fuller an endpoint may be for the filter: 0.2 is a fifth
}

// Validate checks the parameters.
func (d *utilizationDetector) Validate(c *Check) {
	c.Positive("queueDepthThreshold", float64(d.QueueDepthThreshold))
	c.Require(d.KVCacheUtilThreshold > 0 && d.KVCacheUtilThreshold <= 1, "kvCacheUtilThreshold",
		"%v is out of range: give more than 0, at most 1", d.KVCacheUtilThreshold)
	c.Positive("metricsStalenessThreshold", d.MetricsStalenessThreshold.Seconds())
	c.NotNegative("headroom", d.Headroom)
}

// Saturation returns the mean over the endpoints.
func (d *utilizationDetector) Saturation(now time.Time, pool []scheduling.Candidate) float64 {
	return meanFullness(pool, func(l *scheduling.Load) float64 { return d.fullness(l, now) })
}

// Filter prefers the endpoints that are not full.
func (d *utilizationDetector) Filter(r *scheduling.Request, candidates []scheduling.Candidate) []scheduling.Candidate {
	return scheduling.PreferAccepted(candidates, func(c *scheduling.Candidate) bool { return d.fullness(&c.Load, r.Now) < 1+d.Headroom })
}

// fullness returns the load of an endpoint divided by its capacity.
func (d *utilizationDetector) fullness(l *scheduling.Load, now time.Time) float64 {
	if l.Stale(now, d.MetricsStalenessThreshold) {
		return l.Open / staleCapacity
	}
	return max(l.Waiting/float64(d.QueueDepthThreshold), l.KVUsage/d.KVCacheUtilThreshold)
}
