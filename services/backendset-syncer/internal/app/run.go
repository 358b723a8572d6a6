package app

import (
	"context"
	"sync"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/run"
	"fairlead.dev/services/backendset-syncer/internal/bindings"
	"fairlead.dev/services/backendset-syncer/internal/config"
	"fairlead.dev/services/backendset-syncer/internal/gateways"
	"fairlead.dev/services/backendset-syncer/internal/readinessgate"
)

// Run runs the syncer until ctx ends, or until a part of it fails.
func Run(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	p, err := newParts(cfg, log)
	if err != nil {
		return err
	}
	bindings.AddHandlers(p.Informers, p.Reconciler, p.Queues.Bindings.Enqueue)
	bindings.HandleAddresses(p.Informers, p.Actors.RecheckAddresses)
	readinessgate.AddHandlers(p.Informers, p.Queues.Pods.Enqueue)
	gateways.AddHandlers(p.Informers, p.Gateways)
	p.Configuration.OnChange(p.enqueueAll)
	return run.Run(ctx, run.Params{
		Log: log, Server: p.HTTP, Parts: []run.Part{p.Informers, p.Events, p.Webhook, p.Responder, p.Configuration},
		Caches: []run.Cache{p.Configuration, p.Informers}, Elector: p.Elector, Lead: p.runTerm,
	})
}

// runTerm works for one term.
func (p *parts) runTerm(ctx, lease context.Context) {
	p.Reconciler.ClearTerm() // the configuration may have changed since the last term
	defer p.Reconciler.ClearTerm()
	p.Gateways.ClearTerm()
	defer p.Gateways.ClearTerm()
	wait := p.Actors.StartTerm(ctx, lease)
	var workers sync.WaitGroup
	workers.Go(func() {
		p.Queues.Bindings.Lead(ctx, lease, p.newController("backendsetbinding", p.Reconciler), p.Reconciler.ReconcileAll)
	})
	workers.Go(func() {
		p.Queues.Pods.Lead(ctx, lease, p.newController("readinessgate", p.Gates), func() { p.Gates.ReconcileAll(p.Queues.Pods.Enqueue) })
	})
	if p.Config.Gateways.Enabled && p.Config.RecordNamespace() != "" {
		workers.Go(func() {
			p.Queues.Balancers.Lead(ctx, lease, p.newController("loadbalancer", p.Gateways), p.Gateways.ReconcileAll)
		})
	}
	workers.Wait()
	wait()
}

func (p *parts) newController(name string, r controller.Reconciler) *controller.Controller {
	return controller.New(controller.Params{
		Options: p.Config.Work, Name: name, Reconciler: r, Log: p.Log, Metrics: p.Metrics, Clock: clock.RealClock{},
	})
}

// enqueueAll enqueues every binding after a change of the configuration. A replica that does not lead enqueues them when it becomes
// the leader.
func (p *parts) enqueueAll() {
	if p.Queues.Bindings.Leads() {
		p.Reconciler.ReconcileAll()
	}
	if p.Queues.Balancers.Leads() {
		p.Gateways.ReconcileAll()
	}
}
