package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/scheduling/plugins"
)

// roleEndpoint is an endpoint with a role and learned values.
func roleEndpoint(pod, role string, of endpoint.Estimates) *endpoint.Endpoint {
	d := *newEndpoint(pod).Description()
	d.Labels = map[string]string{plugins.RoleLabel: role}
	return endpoint.New(d, noon, learned{of})
}

func TestSumsByRole(t *testing.T) {
	t.Parallel()
	slow := endpoint.Estimates{Slowdown: 1, Backlog: 9000, PrefillRate: 3000, BacklogTime: 3 * time.Second, BatchCapacity: 16}
	fast := endpoint.Estimates{Slowdown: 1, Backlog: 1000, PrefillRate: 5000, BacklogTime: time.Second / 5, BatchCapacity: 32}
	all := []*endpoint.Endpoint{
		roleEndpoint("a", "prefill", slow), roleEndpoint("b", "prefill", fast), roleEndpoint("c", "decode", endpoint.Estimates{Slowdown: 1}),
		roleEndpoint("d", "a tenant's own", fast), learnedEndpoint("e", slow),
	}
	var snapshot *pool.Snapshot
	r := prometheus.NewPedanticRegistry()
	RegisterEndpoints(func() *pool.Snapshot { return snapshot }, clocktesting.NewFakePassiveClock(noon), r)

	snapshot = &pool.Snapshot{Endpoints: all}
	assertMetrics(t, r, `
# HELP fairlead_picker_pool_backlog_seconds Sum over the endpoints of a role: time for the prompt tokens that they owe to this picker.
# TYPE fairlead_picker_pool_backlog_seconds gauge
fairlead_picker_pool_backlog_seconds{role=""} 3
fairlead_picker_pool_backlog_seconds{role="decode"} 0
fairlead_picker_pool_backlog_seconds{role="other"} 0.2
fairlead_picker_pool_backlog_seconds{role="prefill"} 3.2
# HELP fairlead_picker_pool_batch_capacity Sum over the endpoints of a role whose capacity is known: learned number of requests that run at once.
# TYPE fairlead_picker_pool_batch_capacity gauge
fairlead_picker_pool_batch_capacity{role=""} 16
fairlead_picker_pool_batch_capacity{role="other"} 32
fairlead_picker_pool_batch_capacity{role="prefill"} 48
# HELP fairlead_picker_pool_endpoints Endpoints of the pool, by role.
# TYPE fairlead_picker_pool_endpoints gauge
fairlead_picker_pool_endpoints{role=""} 1
fairlead_picker_pool_endpoints{role="decode"} 1
fairlead_picker_pool_endpoints{role="other"} 1
fairlead_picker_pool_endpoints{role="prefill"} 2
# HELP fairlead_picker_pool_prefill_tokens_per_second Sum over the endpoints of a role whose speed is known: learned prompt tokens per second.
# TYPE fairlead_picker_pool_prefill_tokens_per_second gauge
fairlead_picker_pool_prefill_tokens_per_second{role=""} 3000
fairlead_picker_pool_prefill_tokens_per_second{role="other"} 5000
fairlead_picker_pool_prefill_tokens_per_second{role="prefill"} 8000
# HELP fairlead_picker_pool_prompt_tokens_owed Sum over the endpoints of a role: prompt tokens sent by this picker that are neither cached nor computed yet.
# TYPE fairlead_picker_pool_prompt_tokens_owed gauge
fairlead_picker_pool_prompt_tokens_owed{role=""} 9000
fairlead_picker_pool_prompt_tokens_owed{role="decode"} 0
fairlead_picker_pool_prompt_tokens_owed{role="other"} 1000
fairlead_picker_pool_prompt_tokens_owed{role="prefill"} 10000
`, "fairlead_picker_pool_backlog_seconds", "fairlead_picker_pool_batch_capacity", "fairlead_picker_pool_endpoints",
		"fairlead_picker_pool_prefill_tokens_per_second", "fairlead_picker_pool_prompt_tokens_owed")
}

// Series of a pod, and of a role without pods, end with the pods.
func TestSeriesEndWithPods(t *testing.T) {
	t.Parallel()
	estimates := endpoint.Estimates{Slowdown: 1, PrefillRate: 1, BatchCapacity: 1}
	a, b := roleEndpoint("a", "prefill", estimates), roleEndpoint("b", "decode", estimates)
	var snapshot *pool.Snapshot
	r := prometheus.NewPedanticRegistry()
	RegisterEndpoints(func() *pool.Snapshot { return snapshot }, clocktesting.NewFakePassiveClock(noon), r)
	count := func(endpoints ...*endpoint.Endpoint) int {
		snapshot = &pool.Snapshot{Endpoints: endpoints}
		n, err := testutil.GatherAndCount(r)
		assert.NoError(t, err)
		return n
	}
	ofPool := count()
	assert.Equal(t, 2, ofPool)
	ofOne := count(a)
	assert.Equal(t, 2*(ofOne-ofPool), count(a, b)-ofPool)
	assert.Equal(t, ofOne, count(b))
	assert.Equal(t, ofPool, count())
}
