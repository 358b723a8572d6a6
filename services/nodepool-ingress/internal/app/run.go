package app

import (
	"context"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/run"
	"fairlead.dev/services/nodepool-ingress/internal/config"
	reconciler "fairlead.dev/services/nodepool-ingress/internal/controller"
)

// Run runs the program until ctx ends, or until a part of it fails.
func Run(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	p, err := newParts(cfg, log)
	if err != nil {
		return err
	}
	reconciler.RegisterHandlers(p.Informers, cfg.Policy.ClassPrefix, p.Queue.Enqueue)
	return run.Run(ctx, run.Params{
		Log: log, Server: p.HTTP, Parts: []run.Part{p.Informers, p.Events}, Caches: []run.Cache{p.Informers}, Elector: p.Elector,
		Lead: p.lead,
	})
}

// lead reconciles for one term.
func (p *parts) lead(ctx, lease context.Context) {
	c := controller.New(controller.Params{
		Options: p.Config.Work, Name: "yurtingress", Reconciler: p.Reconciler, Log: p.Log, Metrics: p.Metrics, Clock: clock.RealClock{},
	})
	p.Reconciler.Clear()
	defer p.Reconciler.Clear()
	p.Queue.Lead(ctx, lease, c, p.Reconciler.ReconcileAll)
}
