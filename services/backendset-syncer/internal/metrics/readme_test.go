package metrics

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/golden"
	"fairlead.dev/pkg/leader"
	"fairlead.dev/services/backendset-syncer/internal/actor"
)

var (
	chat = cache.ObjectName{Namespace: "models", Name: "chat"}
	key  = actor.Key{LoadBalancer: "lb", Set: "chat"}
)

// reconcileFunc adapts a function to controller.Reconciler.
type reconcileFunc func(ctx context.Context, name cache.ObjectName) error

func (f reconcileFunc) Reconcile(ctx context.Context, name cache.ObjectName) error {
	return f(ctx, name)
}

// everything registers all metrics of the program, and creates a series of each.
func everything(t *testing.T, r prometheus.Registerer) *Metrics {
	t.Helper()
	m := New(r)
	m.Configured("fairlead/backendset-syncer", "")
	m.ObserveRequest("GetLoadBalancer", "OK", time.Second)
	m.SetRateLimit(10)
	m.ObserveWorkRequest("UpdateBackendSet", "succeeded", time.Second)
	m.ObserveWrite(time.Second)
	m.ObserveInService(time.Second)
	m.CountConflict("NoEtagMatch")
	m.ObserveReport(key, &actor.Report{Known: true, Active: 2, Draining: 1, Since: time.Unix(1, 0)})
	m.CountReview("gated")
	m.CountAnswer(404)
	WatchCertificate(r, time.Now)
	m.Bindings.Set(chat, "Synced")
	m.SetGatewayCounts("lb", map[string]int{"Programmed": 1}, map[string]int{"Programmed": 2},
		map[string]int{"Synced": 3, "HostConflict": 1})
	_, err := leader.New(leader.Params{Metrics: r, Log: zap.NewNop()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	c := controller.New(controller.Params{
		Options: controller.DefaultOptions(), Name: "backendsetbinding", Log: zap.NewNop(), Metrics: controller.NewMetrics(r),
		Clock: clock.RealClock{},
		Reconciler: reconcileFunc(func(context.Context, cache.ObjectName) error {
			cancel()
			return nil
		}),
	})
	c.Enqueue(chat)
	c.Run(ctx, t.Context())
	return m
}

func TestPageHasAllMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	everything(t, r)
	golden.Metrics(t, "../../../../docs/reference/metrics/backendset-syncer.md", r, func(string) string { return "" })
}

func TestBackendSets(t *testing.T) {
	t.Parallel()
	m := everything(t, prometheus.NewPedanticRegistry())
	assert.Equal(t, 5, testutil.CollectAndCount(m.backends))
	assert.InDelta(t, 1, testutil.ToFloat64(m.backends.WithLabelValues("lb", "chat", "draining")), 0)
	m.ObserveReport(key, &actor.Report{})
	assert.Zero(t, testutil.CollectAndCount(m.backends), "the state is not known")
	assert.Zero(t, testutil.CollectAndCount(m.behind), "no change waits")
	m.ObserveReport(key, &actor.Report{Since: time.Unix(7, 0)})
	assert.InDelta(t, 7, testutil.ToFloat64(m.behind.WithLabelValues("lb", "chat")), 0, "it waits although the load balancer was not read")
	m.ObserveReport(key, &actor.Report{Known: true})
	m.ObserveReport(key, nil)
	assert.Zero(t, testutil.CollectAndCount(m.backends)+testutil.CollectAndCount(m.behind))
}

func TestGateways(t *testing.T) {
	t.Parallel()
	m := everything(t, prometheus.NewPedanticRegistry())
	routes := func(lb, reason string) float64 { return testutil.ToFloat64(m.routes.gauge.WithLabelValues(lb, reason)) }
	m.SetGatewayCounts("lb", nil, nil, map[string]int{"Synced": 4})
	m.SetGatewayCounts("other", nil, nil, map[string]int{"Synced": 7})
	assert.InDelta(t, 4, routes("lb", "Synced"), 0)
	assert.Zero(t, routes("lb", "HostConflict"), "graphs show the drop")
	assert.Zero(t, testutil.ToFloat64(m.gateways.gauge.WithLabelValues("lb", "Programmed")))
	m.ForgetGateways("lb")
	assert.Equal(t, 1, testutil.CollectAndCount(m.routes.gauge), "the other load balancer stays")
	assert.InDelta(t, 7, routes("other", "Synced"), 0)
	m.SetGatewayCounts("lb", nil, nil, map[string]int{"Synced": 1})
	assert.Equal(t, 2, testutil.CollectAndCount(m.routes.gauge), "old reasons do not come back")
	m.ClearGateways()
	assert.Zero(t, testutil.CollectAndCount(m.routes.gauge))
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	m := everything(t, prometheus.NewPedanticRegistry())
	assert.InDelta(t, 1, testutil.ToFloat64(m.configValid.WithLabelValues("fairlead/backendset-syncer")), 0)
	m.Configured("fairlead/backendset-syncer", "invalid")
	assert.Zero(t, testutil.ToFloat64(m.configValid.WithLabelValues("fairlead/backendset-syncer")))
}
