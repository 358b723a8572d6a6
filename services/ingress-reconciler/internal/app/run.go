package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/version"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	reconciler "fairlead.dev/services/ingress-reconciler/internal/controller"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
)

// Run runs the reconciler until ctx ends, or until a part of it fails.
func Run(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	p, err := newParts(cfg, log)
	if err != nil {
		return err
	}
	reconciler.Handle(p.Informers, p.Uses, p.Queue.Enqueue)
	p.ConfigMaps.OnChange(p.reconfigure)
	if err := p.HTTP.Listen(); err != nil {
		return fmt.Errorf("start http server: %w", err)
	}
	log.Info("Started", zap.String(logging.KeyVersion, version.String()))
	if err := p.run(ctx); err != nil {
		return err
	}
	log.Info("Stopped")
	return nil
}

// run starts every part, leads when it is elected, and ends what it started when ctx ends: who leads finishes what is in
// hand and lets go of the Lease, while the caches still turn.
func (p *parts) run(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, work := errgroup.WithContext(work)
	for _, part := range []func(context.Context){p.Informers.Run, p.ConfigMaps.Run, p.Events.Run} {
		group.Go(func() error {
			part(work)
			return nil
		})
	}
	group.Go(func() error { return p.HTTP.Run(work) })

	ending, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(work, cancel) // a part has failed
	if p.waitForCaches(ending) {
		if err := p.Elector.Run(ending, func(lease context.Context) { p.lead(ending, lease) }); err != nil {
			stop()
			return errors.Join(err, group.Wait())
		}
	}
	stop()
	return group.Wait()
}

// syncInterval is how often caches are asked whether they have synced.
const syncInterval = 20 * time.Millisecond

// waitForCaches waits until all is known, and reports whether it is.
func (p *parts) waitForCaches(ctx context.Context) bool {
	ticker := time.NewTicker(syncInterval)
	defer ticker.Stop()
	for synced(p.Informers, p.ConfigMaps)(ctx) != nil {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
	return true
}

// synced returns the check that all is known.
func synced(i *informers.Informers, c *configMaps) func(context.Context) error {
	return func(context.Context) error {
		if waiting := i.Unsynced(); len(waiting) > 0 {
			slices.Sort(waiting)
			return fmt.Errorf("not listed yet: %s", strings.Join(waiting, ", "))
		}
		if !c.HasSynced() {
			return errors.New("ConfigMaps are not read yet")
		}
		return nil
	}
}

// lead reconciles until ctx ends, or the lease does.
func (p *parts) lead(ctx, lease context.Context) {
	c := controller.New(controller.Params{
		Options: p.Config.Work, Name: "inferenceservice", Reconciler: p.Reconciler, Log: p.Log, Metrics: p.Metrics, Clock: clock.RealClock{},
	})
	p.Reconciler.Clear() // a change of the configuration may have come in between the end of the last term and this one
	p.Queue.current.Store(c)
	defer p.Reconciler.Clear()
	defer p.Queue.current.Store(nil)
	p.Reconciler.ReconcileAll()
	c.Run(ctx, lease)
}

// reconfigure has every service looked at under another configuration. Who does not lead begins with that anyway.
func (p *parts) reconfigure() {
	if p.Queue.current.Load() != nil {
		p.Reconciler.ReconcileAll()
	}
}
