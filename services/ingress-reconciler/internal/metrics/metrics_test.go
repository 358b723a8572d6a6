package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r)
	m.Configured("fairlead/ingress", "")
	m.Configured("ome/inferenceservice-config", "")
	m.Configured("ome/inferenceservice-config", "it is not JSON")
	m.Write("httproutes", "created")
	m.Write("httproutes", "created")
	m.Moved("", "ParentStatusNotAvailable")
	m.Moved("", "Programmed")
	m.Moved("ParentStatusNotAvailable", "Programmed")
	m.Moved("Programmed", "Programmed")
	m.Moved("Programmed", "")
	m.Held(4)
	m.Held(-1)
	m.Conflicting(1)
	m.Programmed(3 * time.Second)
	require.Equal(t, 1, testutil.CollectAndCount(m.programmed))
	require.True(t, r.Unregister(m.programmed))
	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(`
# HELP fairlead_ingress_config_valid 1 if the configuration in a ConfigMap is in force, 0 if it is invalid or gone.
# TYPE fairlead_ingress_config_valid gauge
fairlead_ingress_config_valid{config_map="fairlead/ingress"} 1
fairlead_ingress_config_valid{config_map="ome/inferenceservice-config"} 0
# HELP fairlead_ingress_conflicts Hosts and paths that InferenceServices want and other InferenceServices own.
# TYPE fairlead_ingress_conflicts gauge
fairlead_ingress_conflicts 1
# HELP fairlead_ingress_held_objects Objects that other objects have replaced and that wait out the hold.
# TYPE fairlead_ingress_held_objects gauge
fairlead_ingress_held_objects 3
# HELP fairlead_ingress_services InferenceServices, by the reason of their condition.
# TYPE fairlead_ingress_services gauge
fairlead_ingress_services{reason="ParentStatusNotAvailable"} 0
fairlead_ingress_services{reason="Programmed"} 1
# HELP fairlead_ingress_writes_total Writes, by resource and result: created, updated, deleted, marked, failed.
# TYPE fairlead_ingress_writes_total counter
fairlead_ingress_writes_total{resource="httproutes",result="created"} 2
`)))
}
