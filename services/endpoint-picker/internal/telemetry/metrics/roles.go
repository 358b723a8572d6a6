package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// roleTotals are the sums over the endpoints of a pool that have one role.
type roleTotals struct {
	endpoints, waiting, running, owed, backlog float64
	prefill, batch                             float64 // 0 while no endpoint has shown it
}

func (t *roleTotals) addEndpoint(s *endpoint.Stats) {
	t.endpoints++
	t.waiting += s.Gauges.Waiting
	t.running += s.Gauges.Running
	t.owed += float64(s.Backlog)
	t.backlog += s.BacklogTime.Seconds()
	t.prefill += s.PrefillRate
	t.batch += s.BatchCapacity
}

// roleSum is one sum.
type roleSum struct {
	desc    *prometheus.Desc
	value   func(t *roleTotals) float64
	learned bool // 0 means that the value is not known
}

// roleSums are the series of a pool for autoscalers. An HPA with a target of type AverageValue divides a sum by the replicas.
type roleSums []roleSum

func newRoleSums() roleSums {
	return []roleSum{
		{desc: newDesc("pool_endpoints", "Endpoints of the pool, by role.", labelRole),
			value: func(t *roleTotals) float64 { return t.endpoints }},
		{desc: newDesc("pool_requests_waiting", "Sum over the endpoints of a role: queued requests, as of the last scrapes.", labelRole),
			value: func(t *roleTotals) float64 { return t.waiting }},
		{desc: newDesc("pool_requests_running", "Sum over the endpoints of a role: running requests, as of the last scrapes.", labelRole),
			value: func(t *roleTotals) float64 { return t.running }},
		{desc: newDesc("pool_prompt_tokens_owed",
			"Sum over the endpoints of a role: prompt tokens sent by this picker that are neither cached nor computed yet.", labelRole),
			value: func(t *roleTotals) float64 { return t.owed }},
		{desc: newDesc("pool_backlog_seconds", "Sum over the endpoints of a role: time for the prompt tokens that they owe to this picker.",
			labelRole),
			value: func(t *roleTotals) float64 { return t.backlog }},
		{desc: newDesc("pool_prefill_tokens_per_second",
			"Sum over the endpoints of a role whose speed is known: learned prompt tokens per second.", labelRole),
			value: func(t *roleTotals) float64 { return t.prefill }, learned: true},
		{desc: newDesc("pool_batch_capacity", "Sum over the endpoints of a role whose capacity is known: learned number of requests that run at once.", labelRole),
			value: func(t *roleTotals) float64 { return t.batch }, learned: true},
	}
}

func (r roleSums) collectSums(out chan<- prometheus.Metric, byRole map[string]*roleTotals) {
	for role, totals := range byRole {
		for _, s := range r {
			if value := s.value(totals); value != 0 || !s.learned {
				out <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, value, role)
			}
		}
	}
}
