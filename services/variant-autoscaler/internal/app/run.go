package app

import (
	"context"
	"errors"

	"go.uber.org/zap"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/run"
	"fairlead.dev/services/variant-autoscaler/internal/config"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// Run runs the variant-autoscaler until ctx ends, or until a part of it fails.
func Run(ctx context.Context, cfg *config.Config, log *zap.Logger) (err error) {
	p, err := newParts(cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Records.Close()) }()
	handler := p.Trigger.Handler(sources.IsRelevant)
	for _, i := range []kit.Informer{
		p.Informers.VariantAutoscalings, p.Informers.HorizontalPodAutoscalers, p.Informers.ScaledObjects, p.Informers.Namespaces,
	} {
		i.AddEventHandler(handler)
	}
	p.Store.OnChange(p.Trigger.ConfigMapChanged)
	p.Store.OnLoad(func(s *settings.Settings) {
		if s.Limiter() {
			p.Informers.WatchInventory()
		}
	})
	if cfg.Limiter {
		p.Informers.WatchInventory()
	}
	p.Table.OnHold(p.Waker.OnHold)
	return run.Run(ctx, run.Params{
		Log: log, Server: p.HTTP, Elector: p.Elector, Lead: p.leadTerm,
		Parts: []run.Part{p.Informers, p.Store, p.Events, p.Readiness.crd, p.Readiness.prometheus, p.Scaler, p.Waker, p.Queues, p.Holds,
			p.Starter},
		Caches: []run.Cache{p.Informers, p.Store},
	})
}

// leadTerm runs passes for one term. It begins without the memory of earlier terms.
func (p *parts) leadTerm(ctx, lease context.Context) {
	p.Passes.Reset()
	defer p.Passes.Reset()
	p.Trigger.Lead(ctx, lease)
}
