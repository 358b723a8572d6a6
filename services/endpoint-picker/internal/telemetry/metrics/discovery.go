package metrics

import "github.com/prometheus/client_golang/prometheus"

// States of objects with rules.
const (
	stateRead      = "read"
	stateMalformed = "malformed"
)

// NewEndpointsFile exports whether the last change of the endpoints file was valid. It returns the observer of the result of reading the
// file. Pickers without such a file must not export it, because its 0 is an alarm.
func NewEndpointsFile(r prometheus.Registerer) (observe func(err error)) {
	successful := ownMetrics(r).newGauge("endpoints_file_last_reload_successful",
		"1 if the last change of the endpoints file was valid, 0 if older endpoints stay.")
	return func(err error) {
		if err != nil {
			successful.Set(0)
			return
		}
		successful.Set(1)
	}
}

// Rules exports the numbers of objects with rules for requests.
type Rules struct{ objects *prometheus.GaugeVec }

// NewRules creates and registers the gauges, for pickers that read such objects.
func NewRules(r prometheus.Registerer) *Rules {
	return &Rules{objects: ownMetrics(r).newGaugeVec("rule_objects",
		"InferenceObjectives and InferenceModelRewrites of the pool, by whether they are readable.", "resource", "state")}
}

// OfNamespace returns the observer of the numbers of one kind in one namespace, for one goroutine at a time. The gauges are the sums of all
// namespaces.
func (v *Rules) OfNamespace() func(resource string, read, malformed int) {
	last := map[[2]string]int{} // by resource and state
	return func(resource string, read, malformed int) {
		for state, now := range map[string]int{stateRead: read, stateMalformed: malformed} {
			key := [2]string{resource, state}
			v.objects.WithLabelValues(resource, state).Add(float64(now - last[key]))
			last[key] = now
		}
	}
}

// Pools exports the numbers of pools of a picker that serves several of them.
type Pools struct {
	served  prometheus.Gauge
	refused *prometheus.GaugeVec
	reasons []string
	lost    prometheus.Counter
}

// NewPools creates and registers the metrics. The reasons are those of refused pools.
func NewPools(r prometheus.Registerer, reasons ...string) *Pools {
	own := ownMetrics(r)
	p := &Pools{
		reasons: reasons,
		served:  own.newGauge("pools", "InferencePools that the picker serves."),
		refused: own.newGaugeVec("pools_refused", "InferencePools that the picker does not serve, by reason: address, conflict, limit.",
			"reason"),
		lost: own.newCounter("streams_without_pool_total", "Streams whose :authority names no pool that the picker serves."),
	}
	p.ObservePools(0, nil)
	return p
}

// ObservePools records the current pools.
func (p *Pools) ObservePools(served int, refused map[string]int) {
	p.served.Set(float64(served))
	for _, reason := range p.reasons {
		p.refused.WithLabelValues(reason).Set(float64(refused[reason]))
	}
}

// StreamWithoutPool counts a stream.
func (p *Pools) StreamWithoutPool() { p.lost.Inc() }
