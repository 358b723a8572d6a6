package metrics

import "fairlead.dev/services/endpoint-picker/internal/endpoint"

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

// newRoleSums returns the series of a pool for autoscalers. An HPA with a target of type AverageValue divides a sum by the replicas.
func newRoleSums() figures[roleTotals] {
	return figures[roleTotals]{
		gaugeOf("pool_endpoints", "Endpoints of the pool, by role.", func(t *roleTotals) float64 { return t.endpoints }, labelRole),
		gaugeOf("pool_requests_waiting", "Sum over the endpoints of a role: queued requests, as of the last scrapes.",
			func(t *roleTotals) float64 { return t.waiting }, labelRole),
		gaugeOf("pool_requests_running", "Sum over the endpoints of a role: running requests, as of the last scrapes.",
			func(t *roleTotals) float64 { return t.running }, labelRole),
		gaugeOf("pool_prompt_tokens_owed",
			"Sum over the endpoints of a role: prompt tokens sent by this picker that are neither cached nor computed yet.",
			func(t *roleTotals) float64 { return t.owed }, labelRole),
		gaugeOf("pool_backlog_seconds", "Sum over the endpoints of a role: time for the prompt tokens that they owe to this picker.",
			func(t *roleTotals) float64 { return t.backlog }, labelRole),
		learnedOf("pool_prefill_tokens_per_second",
			"Sum over the endpoints of a role whose speed is known: learned prompt tokens per second.",
			func(t *roleTotals) float64 { return t.prefill }, labelRole),
		learnedOf("pool_batch_capacity",
			"Sum over the endpoints of a role whose capacity is known: learned number of requests that run at once.",
			func(t *roleTotals) float64 { return t.batch }, labelRole),
	}
}
