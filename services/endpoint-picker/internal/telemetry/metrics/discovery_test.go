package metrics

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEndpointsFile(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	observe := NewEndpointsFile(r)
	successful := func() float64 {
		families, err := r.Gather()
		require.NoError(t, err)
		return families[0].GetMetric()[0].GetGauge().GetValue()
	}
	observe(nil)
	assert.Equal(t, 1.0, successful())
	observe(errors.New("line 1"))
	assert.Equal(t, 0.0, successful())
}

func TestRules(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	rules := NewRules(r)
	one, another := rules.OfNamespace(), rules.OfNamespace()
	one("inferenceobjectives", 2, 1)
	another("inferenceobjectives", 1, 0)
	one("inferenceobjectives", 3, 0)
	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(`
# HELP fairlead_picker_rule_objects InferenceObjectives and InferenceModelRewrites of the pool, by whether they are readable.
# TYPE fairlead_picker_rule_objects gauge
fairlead_picker_rule_objects{resource="inferenceobjectives",state="malformed"} 0
fairlead_picker_rule_objects{resource="inferenceobjectives",state="read"} 4
`)))
}

func TestPools(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	p := NewPools(r, "address", "conflict", "limit")
	p.ObservePools(4, map[string]int{"limit": 2, "conflict": 1})
	p.ObservePools(3, map[string]int{"conflict": 1})
	p.StreamWithoutPool()
	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(`
# HELP fairlead_picker_pools InferencePools that the picker serves.
# TYPE fairlead_picker_pools gauge
fairlead_picker_pools 3
# HELP fairlead_picker_pools_refused InferencePools that the picker does not serve, by reason: address, conflict, limit.
# TYPE fairlead_picker_pools_refused gauge
fairlead_picker_pools_refused{reason="address"} 0
fairlead_picker_pools_refused{reason="conflict"} 1
fairlead_picker_pools_refused{reason="limit"} 0
# HELP fairlead_picker_streams_without_pool_total Streams whose :authority names no pool that the picker serves.
# TYPE fairlead_picker_streams_without_pool_total counter
fairlead_picker_streams_without_pool_total 1
`)))
}
