package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
)

var (
	chat  = cache.ObjectName{Namespace: "models", Name: "chat"}
	embed = cache.ObjectName{Namespace: "models", Name: "embed"}
)

func assertMetrics(t *testing.T, r *prometheus.Registry, want string, names ...string) {
	t.Helper()
	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(want), names...))
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r)
	m.Configured("fairlead/ingress", "")
	m.Configured("ome/inferenceservice-config", "")
	m.Configured("ome/inferenceservice-config", "it is not JSON")
	m.CountWrite("httproutes", "created")
	m.CountWrite("httproutes", "created")
	m.SetReason(chat, "ParentStatusNotAvailable")
	m.SetReason(chat, "Programmed")
	m.SetReason(embed, "HostConflict")
	assertMetrics(t, r, `
# HELP fairlead_ingress_config_valid 1 if the text of a ConfigMap is in force, 0 if it is invalid or the ConfigMap was deleted.
# TYPE fairlead_ingress_config_valid gauge
fairlead_ingress_config_valid{config_map="fairlead/ingress"} 1
fairlead_ingress_config_valid{config_map="ome/inferenceservice-config"} 0
# HELP fairlead_ingress_services InferenceServices, by the reason of their condition.
# TYPE fairlead_ingress_services gauge
fairlead_ingress_services{reason="HostConflict"} 1
fairlead_ingress_services{reason="ParentStatusNotAvailable"} 0
fairlead_ingress_services{reason="Programmed"} 1
# HELP fairlead_ingress_writes_total Writes of objects, by resource and result: created, updated, deleted, marked, failed.
# TYPE fairlead_ingress_writes_total counter
fairlead_ingress_writes_total{resource="httproutes",result="created"} 2
`, "fairlead_ingress_config_valid", "fairlead_ingress_services", "fairlead_ingress_writes_total")
}

func TestHeldObjects(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r)
	assertHeld := func(want string) {
		t.Helper()
		assertMetrics(t, r, `
# HELP fairlead_ingress_held_objects Replaced objects that are kept until holdSeconds have passed.
# TYPE fairlead_ingress_held_objects gauge
fairlead_ingress_held_objects `+want+"\n", "fairlead_ingress_held_objects")
	}
	assertHeld("0")
	m.SetHeld(chat, 2)
	m.SetHeld(embed, 1)
	m.SetHeld(chat, 3)
	assertHeld("4")
	m.SetHeld(chat, 0)
	assertHeld("1")
	m.Forget(embed)
	assertHeld("0")
	m.SetHeld(chat, 2)
	m.Clear()
	assertHeld("0")
	m.SetHeld(chat, 2)
	assertHeld("2")
}

func TestForgetAndClear(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r)
	m.SetReason(chat, "Programmed")
	m.SetReason(embed, "Programmed")
	m.Forget(chat)
	require.InDelta(t, 1, value(t, r, "Programmed"), 0)
	m.Clear()
	require.InDelta(t, 0, value(t, r, "Programmed"), 0)
}

// value returns the number of services with a reason.
func value(t *testing.T, r *prometheus.Registry, reason string) float64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			if f.GetName() == "fairlead_ingress_services" && metric.GetLabel()[0].GetValue() == reason {
				return metric.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no series of reason %s", reason)
	return 0
}

func TestProgrammed(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r)
	for _, after := range []time.Duration{-time.Second, 0, time.Second, 4 * time.Second, time.Hour} {
		m.ObserveProgrammed(after)
	}
	assertMetrics(t, r, `
# HELP fairlead_ingress_time_to_programmed_seconds Time until the condition of a service becomes True, since a `+
		`component became ready or the condition last changed.
# TYPE fairlead_ingress_time_to_programmed_seconds histogram
fairlead_ingress_time_to_programmed_seconds_bucket{le="0.5"} 2
fairlead_ingress_time_to_programmed_seconds_bucket{le="1"} 3
fairlead_ingress_time_to_programmed_seconds_bucket{le="2"} 3
fairlead_ingress_time_to_programmed_seconds_bucket{le="3"} 3
fairlead_ingress_time_to_programmed_seconds_bucket{le="5"} 4
fairlead_ingress_time_to_programmed_seconds_bucket{le="10"} 4
fairlead_ingress_time_to_programmed_seconds_bucket{le="20"} 4
fairlead_ingress_time_to_programmed_seconds_bucket{le="30"} 4
fairlead_ingress_time_to_programmed_seconds_bucket{le="60"} 4
fairlead_ingress_time_to_programmed_seconds_bucket{le="120"} 4
fairlead_ingress_time_to_programmed_seconds_bucket{le="300"} 4
fairlead_ingress_time_to_programmed_seconds_bucket{le="+Inf"} 5
fairlead_ingress_time_to_programmed_seconds_sum 3605
fairlead_ingress_time_to_programmed_seconds_count 5
`, "fairlead_ingress_time_to_programmed_seconds")
}
