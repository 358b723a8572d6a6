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
	f := NewEndpointsFile(prometheus.NewRegistry())
	f.ObserveEndpointsFile(nil)
	assert.Equal(t, 1.0, testutil.ToFloat64(f.successful))
	f.ObserveEndpointsFile(errors.New("line 1"))
	assert.Equal(t, 0.0, testutil.ToFloat64(f.successful))
}

func TestRules(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	rules := NewRules(r)
	one, another := rules.OfNamespace(), rules.OfNamespace()
	one.ObserveRules("inferenceobjectives", 2, 1)
	another.ObserveRules("inferenceobjectives", 1, 0)
	one.ObserveRules("inferenceobjectives", 3, 0)
	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(`
# HELP fairlead_picker_rule_objects InferenceObjectives and InferenceModelRewrites of the pool, by whether they are readable.
# TYPE fairlead_picker_rule_objects gauge
fairlead_picker_rule_objects{resource="inferenceobjectives",state="malformed"} 0
fairlead_picker_rule_objects{resource="inferenceobjectives",state="read"} 4
`)))
}
