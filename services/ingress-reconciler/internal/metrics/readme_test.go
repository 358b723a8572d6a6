package metrics

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/golden"
	"fairlead.dev/pkg/leader"
)

// reconcileFunc adapts a function to controller.Reconciler.
type reconcileFunc func(ctx context.Context, name cache.ObjectName) error

func (f reconcileFunc) Reconcile(ctx context.Context, name cache.ObjectName) error {
	return f(ctx, name)
}

// everything registers all metrics of the program, and creates a series of each.
func everything(t *testing.T, r prometheus.Registerer) {
	t.Helper()
	m := New(r)
	m.Configured("fairlead/ingress-reconciler", "")
	m.CountWrite("httproutes", "created")
	m.SetReason(chat, "Programmed")
	_, err := leader.New(leader.Params{Metrics: r, Log: zap.NewNop()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	c := controller.New(controller.Params{
		Options: controller.DefaultOptions(), Name: "inferenceservice", Log: zap.NewNop(), Metrics: controller.NewMetrics(r),
		Clock: clock.RealClock{},
		Reconciler: reconcileFunc(func(context.Context, cache.ObjectName) error {
			cancel()
			return nil
		}),
	})
	c.Enqueue(chat)
	c.Run(ctx, t.Context())
}

func TestPageHasAllMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	everything(t, r)
	golden.Metrics(t, "../../../../docs/reference/metrics/ingress-reconciler.md", r, func(string) string { return "" })
}
