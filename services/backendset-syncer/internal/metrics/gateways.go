package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	labelBalancer = "load_balancer"
	labelReason   = "reason"
)

// byReason is a gauge of objects of load balancers by their reasons. A reason that no object has anymore stays with the value 0, so that
// graphs show the drop, until the load balancer is gone.
type byReason struct {
	gauge *prometheus.GaugeVec

	mu    sync.Mutex
	known map[string]map[string]bool // reasons by load balancers
}

func newByReason(r prometheus.Registerer, name, help string) *byReason {
	b := &byReason{
		known: map[string]map[string]bool{},
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{labelBalancer, labelReason}),
	}
	r.MustRegister(b.gauge)
	return b
}

// setCounts replaces the numbers of a load balancer.
func (b *byReason) setCounts(loadBalancer string, counts map[string]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.known[loadBalancer]
	if known == nil {
		known = map[string]bool{}
		b.known[loadBalancer] = known
	}
	for reason := range counts {
		known[reason] = true
	}
	for reason := range known {
		b.gauge.WithLabelValues(loadBalancer, reason).Set(float64(counts[reason]))
	}
}

// forgetCounts removes the numbers of a load balancer.
func (b *byReason) forgetCounts(loadBalancer string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.known, loadBalancer)
	b.gauge.DeletePartialMatch(prometheus.Labels{labelBalancer: loadBalancer})
}

func (b *byReason) clearCounts() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.known)
	b.gauge.Reset()
}

// SetGatewayCounts replaces the numbers of Gateways, listeners and routes of a load balancer by their reasons.
func (m *Metrics) SetGatewayCounts(loadBalancer string, gateways, listeners, routes map[string]int) {
	m.gateways.setCounts(loadBalancer, gateways)
	m.listeners.setCounts(loadBalancer, listeners)
	m.routes.setCounts(loadBalancer, routes)
}

// ForgetGateways removes the numbers of a load balancer that has no Gateway any longer.
func (m *Metrics) ForgetGateways(loadBalancer string) {
	for _, b := range []*byReason{m.gateways, m.listeners, m.routes} {
		b.forgetCounts(loadBalancer)
	}
}

// ClearGateways removes all numbers, because a replica that does not lead has no current state.
func (m *Metrics) ClearGateways() {
	for _, b := range []*byReason{m.gateways, m.listeners, m.routes} {
		b.clearCounts()
	}
}
