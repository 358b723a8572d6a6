package app

import (
	"context"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/run"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	reconciler "fairlead.dev/services/ingress-reconciler/internal/controller"
)

// Run runs the reconciler until ctx ends, or until a part of it fails.
func Run(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	p, err := newParts(cfg, log)
	if err != nil {
		return err
	}
	reconciler.RegisterHandlers(p.Informers, p.Dependents, p.Queue.Enqueue)
	own, ome := p.ConfigMaps.own, p.ConfigMaps.ome
	own.OnChange(p.reconfigure)
	ome.OnChange(p.reconfigure)
	return run.Run(ctx, run.Params{
		Log: log, Server: p.HTTP, Parts: []run.Part{p.Informers, own, ome, p.Events}, Caches: []run.Cache{p.Informers, own, ome},
		Elector: p.Elector, Lead: p.lead,
	})
}

// lead reconciles for one term.
func (p *parts) lead(ctx, lease context.Context) {
	c := controller.New(controller.Params{
		Options: p.Config.Work, Name: "inferenceservice", Reconciler: p.Reconciler, Log: p.Log, Metrics: p.Metrics,
		Clock: clock.RealClock{},
	})
	p.Reconciler.Clear() // the configuration may have changed since the last term
	defer p.Reconciler.Clear()
	p.Queue.Lead(ctx, lease, c, p.Reconciler.ReconcileAll)
}

// reconfigure enqueues every service after a change of the configuration. A replica that does not lead enqueues them when it becomes
// the leader.
func (p *parts) reconfigure() {
	if p.Queue.Leads() {
		p.Reconciler.ReconcileAll()
	}
}
