package metrics

import "github.com/prometheus/client_golang/prometheus"

// States of objects with rules.
const (
	stateRead      = "read"
	stateMalformed = "malformed"
)

// EndpointsFile exports whether the last change of the endpoints file was valid.
type EndpointsFile struct{ successful prometheus.Gauge }

// NewEndpointsFile creates and registers the gauge. Pickers without such a file must not export it, because its 0 is an
// alarm.
func NewEndpointsFile(r prometheus.Registerer) *EndpointsFile {
	return &EndpointsFile{successful: ownMetrics(r).newGauge("endpoints_file_last_reload_successful",
		"1 if the last change of the endpoints file was valid, 0 if older endpoints stay.")}
}

// ObserveEndpointsFile records the result of reading the file.
func (f *EndpointsFile) ObserveEndpointsFile(err error) {
	if err != nil {
		f.successful.Set(0)
		return
	}
	f.successful.Set(1)
}

// Rules exports the numbers of objects with rules for requests.
type Rules struct{ objects *prometheus.GaugeVec }

// NewRules creates and registers the gauges, for pickers that read such objects.
func NewRules(r prometheus.Registerer) *Rules {
	return &Rules{objects: ownMetrics(r).newGaugeVec("rule_objects",
		"InferenceObjectives and InferenceModelRewrites of the pool, by whether they are readable.", "resource", "state")}
}

// OfNamespace returns the observer of one namespace. The gauges are the sums of all namespaces.
func (v *Rules) OfNamespace() *NamespaceRules {
	return &NamespaceRules{objects: v.objects, last: map[[2]string]int{}}
}

// NamespaceRules is the part of one namespace in Rules. One goroutine at a time may use it.
type NamespaceRules struct {
	objects *prometheus.GaugeVec
	last    map[[2]string]int // by resource and state
}

// ObserveRules records the numbers of one kind.
func (n *NamespaceRules) ObserveRules(resource string, read, malformed int) {
	n.setCount(resource, stateRead, read)
	n.setCount(resource, stateMalformed, malformed)
}

func (n *NamespaceRules) setCount(resource, state string, now int) {
	key := [2]string{resource, state}
	n.objects.WithLabelValues(resource, state).Add(float64(now - n.last[key]))
	n.last[key] = now
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
