package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestWithPool(t *testing.T) {
	t.Parallel()
	registry := func(value float64) *prometheus.Registry {
		r := prometheus.NewRegistry()
		ownMetrics(r).newCounterVec("a_total", "Own.", "result", "zone").WithLabelValues("ok", "z").Add(value)
		upstreamMetrics(r).newCounterVec("b_total", "Upstream's.", "name").WithLabelValues("n").Add(value)
		return r
	}
	one := registry(1)
	for range 2 { // the collectors keep their labels
		require.NoError(t, testutil.GatherAndCompare(WithPool(one, "ns/a", OwnMetrics), strings.NewReader(`
# HELP fairlead_picker_a_total Own.
# TYPE fairlead_picker_a_total counter
fairlead_picker_a_total{pool="ns/a",result="ok",zone="z"} 1
# HELP llm_d_epp_b_total Upstream's.
# TYPE llm_d_epp_b_total counter
llm_d_epp_b_total{name="n"} 1
`)))
	}
	several := prometheus.Gatherers{WithPool(one, "ns/a", AllMetrics), WithPool(registry(2), "ns/b", AllMetrics)}
	require.NoError(t, testutil.GatherAndCompare(several, strings.NewReader(`
# HELP fairlead_picker_a_total Own.
# TYPE fairlead_picker_a_total counter
fairlead_picker_a_total{pool="ns/a",result="ok",zone="z"} 1
fairlead_picker_a_total{pool="ns/b",result="ok",zone="z"} 2
# HELP llm_d_epp_b_total Upstream's.
# TYPE llm_d_epp_b_total counter
llm_d_epp_b_total{name="n",pool="ns/a"} 1
llm_d_epp_b_total{name="n",pool="ns/b"} 2
`)))
}
