package metrics

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/golden"
	"fairlead.dev/pkg/leader"
)

// reconcileFunc adapts a function to controller.Reconciler.
type reconcileFunc func(ctx context.Context, name cache.ObjectName) error

func (f reconcileFunc) Reconcile(ctx context.Context, name cache.ObjectName) error {
	return f(ctx, name)
}

func pool(name string, status metav1.ConditionStatus, reason string) v1alpha1.PoolStatus {
	return v1alpha1.PoolStatus{
		Name: name, Nodes: 3, ReadyNodes: 2, Replicas: 2, ReadyReplicas: 1,
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: reason}},
	}
}

// everything registers all metrics of the program, and creates a series of each.
func everything(t *testing.T, r prometheus.Registerer) {
	t.Helper()
	m := New(r)
	m.CountWrite("deployments", "created")
	m.SetStatus("edge", &v1alpha1.YurtIngressStatus{Pools: []v1alpha1.PoolStatus{pool("a", metav1.ConditionTrue, "Ready")}})
	_, err := leader.New(leader.Params{Metrics: r, Log: zap.NewNop()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	c := controller.New(controller.Params{
		Options: controller.DefaultOptions(), Name: "yurtingress", Log: zap.NewNop(), Metrics: controller.NewMetrics(r),
		Clock: clock.RealClock{},
		Reconciler: reconcileFunc(func(context.Context, cache.ObjectName) error {
			cancel()
			return nil
		}),
	})
	c.Enqueue(cache.ObjectName{Name: "edge"})
	c.Run(ctx, t.Context())
}

func TestPageHasAllMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	everything(t, r)
	golden.Metrics(t, "../../../../docs/reference/metrics/nodepool-ingress.md", r, func(string) string { return "" })
}

func TestSeriesOfPools(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r)
	expect := func(want string) {
		t.Helper()
		require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(want), "fairlead_nodepool_pool_ready", "fairlead_nodepool_pools"))
	}
	removing := v1alpha1.PoolStatus{Name: "c"}
	m.SetStatus("edge", &v1alpha1.YurtIngressStatus{Pools: []v1alpha1.PoolStatus{
		pool("a", metav1.ConditionTrue, "Ready"), pool("b", metav1.ConditionFalse, "Waiting"), removing,
	}})
	const header = "# HELP fairlead_nodepool_pool_ready 1 if the condition Ready of a pool is True, else 0.\n# TYPE " +
		"fairlead_nodepool_pool_ready gauge\n"
	const reasons = "# HELP fairlead_nodepool_pools Pools, by the reason of their condition Ready.\n# TYPE fairlead_nodepool_pools gauge\n"
	expect(header + `fairlead_nodepool_pool_ready{pool="a",yurtingress="edge"} 1
fairlead_nodepool_pool_ready{pool="b",yurtingress="edge"} 0
` + reasons + `fairlead_nodepool_pools{reason="Ready"} 1
fairlead_nodepool_pools{reason="Waiting"} 1
`)
	m.SetStatus("edge", &v1alpha1.YurtIngressStatus{Pools: []v1alpha1.PoolStatus{pool("a", metav1.ConditionTrue, "Ready")}})
	expect(header + `fairlead_nodepool_pool_ready{pool="a",yurtingress="edge"} 1
` + reasons + `fairlead_nodepool_pools{reason="Ready"} 1
fairlead_nodepool_pools{reason="Waiting"} 0
`)
	m.Forget("edge")
	expect(reasons + `fairlead_nodepool_pools{reason="Ready"} 0
fairlead_nodepool_pools{reason="Waiting"} 0
`)
	m.SetStatus("edge", &v1alpha1.YurtIngressStatus{Pools: []v1alpha1.PoolStatus{pool("a", metav1.ConditionTrue, "Ready")}})
	m.Clear()
	expect(reasons + `fairlead_nodepool_pools{reason="Ready"} 0
fairlead_nodepool_pools{reason="Waiting"} 0
`)
}
