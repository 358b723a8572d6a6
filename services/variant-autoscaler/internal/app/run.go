package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/run"
	"fairlead.dev/services/variant-autoscaler/internal/config"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/metrics"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
	"fairlead.dev/services/variant-autoscaler/internal/trigger"
)

// Run runs the variant-autoscaler until ctx ends, or until a part of it fails.
func Run(ctx context.Context, cfg *config.Config, log *zap.Logger) (err error) {
	p, err := newParts(cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Records.Close()) }()
	handler := p.Trigger.Handler(sources.IsRelevant)
	for _, i := range []*kube.OptionalInformer{
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

// variants counts the variants of all sources.
type variants struct{ informers.Caches }

// CountVariants implements the source of a trigger.
func (v variants) CountVariants() (total int, first string) {
	for _, reader := range []kit.Reader{v.VariantAutoscalings, v.ScaledObjects, v.HorizontalPodAutoscalers} {
		for _, d := range informers.ListAll[informers.Declaration](reader) {
			if d.Spec == nil {
				continue
			}
			total++
			if name := fmt.Sprintf("%s/%s", d.Namespace, d.Name); first == "" || name < first {
				first = name
			}
		}
	}
	return total, first
}

// observer records passes.
type observer struct {
	metrics *metrics.Metrics
	clock   clock.PassiveClock
}

// CountPass implements the observer of a trigger.
func (o *observer) CountPass(result trigger.Result, took time.Duration) {
	o.metrics.Passed(string(result), took)
	if result == trigger.Succeeded || result == trigger.Idle {
		o.metrics.MarkSuccess(o.clock.Now())
	}
}

// SetDelay implements the observer of a trigger.
func (o *observer) SetDelay(d time.Duration) { o.metrics.SetInterval(d) }
