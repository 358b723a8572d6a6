package controller

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
)

func TestReasons(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	r := NewReasons(registry, "services", "Services, by reason.")
	assertGauge := func(lines string) {
		t.Helper()
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader("# HELP services Services, by reason.\n# TYPE services gauge\n"+lines)))
	}
	a, b := cache.ObjectName{Namespace: "models", Name: "a"}, cache.ObjectName{Namespace: "models", Name: "b"}
	r.Set(a, "Pending")
	r.Set(a, "Pending")
	r.Set(b, "Pending")
	assertGauge("services{reason=\"Pending\"} 2\n")
	r.Set(a, "Programmed")
	assertGauge("services{reason=\"Pending\"} 1\nservices{reason=\"Programmed\"} 1\n")
	r.Forget(b)
	r.Forget(b)
	assertGauge("services{reason=\"Pending\"} 0\nservices{reason=\"Programmed\"} 1\n")
	r.Set(b, "Programmed")
	r.Clear()
	assertGauge("services{reason=\"Pending\"} 0\nservices{reason=\"Programmed\"} 0\n")
	r.Set(a, "Programmed")
	assertGauge("services{reason=\"Pending\"} 0\nservices{reason=\"Programmed\"} 1\n")
}
