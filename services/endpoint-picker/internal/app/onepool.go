package app

import (
	"context"
	"sync"

	"fairlead.dev/services/endpoint-picker/internal/discovery/endpointsfile"
	"fairlead.dev/services/endpoint-picker/internal/discovery/informers"
	"fairlead.dev/services/endpoint-picker/internal/discovery/podset"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
)

// onePool is the pool of all streams.
type onePool struct {
	*runningPool

	source interface{ Run(ctx context.Context) }
	rules  *informers.Rules // nil without an InferencePool, because objectives and rewrites refer to one
}

// newFilePool returns the pool of an endpoints file.
func newFilePool(p discoveryParts) (*onePool, error) {
	from := p.Config.Pool
	source, err := endpointsfile.New(endpointsfile.Params{
		Log: p.Log.Named("endpointsfile"), Path: from.File, Once: from.Once, Observer: metrics.NewEndpointsFile(p.Registry),
	})
	if err != nil {
		return nil, err
	}
	return &onePool{runningPool: p.Pools.addPool(from.String(), "", fileSource{source}), source: source}, nil
}

// newOnePool returns the pool of an InferencePool, or of a selector of pods.
func newOnePool(p discoveryParts) (*onePool, error) {
	from, params := p.Config.Pool, informers.NamespaceParams{Namespace: p.Config.Pool.Name.Namespace}
	if from.Selector.Selector == nil {
		params.Inference, params.Pool = p.Clients.inference, from.Name.Name
	}
	namespace, err := p.newNamespace(params)
	if err != nil {
		return nil, err
	}
	if from.Selector.Selector != nil {
		selection := podset.Selection{Selector: from.Selector.Selector, Ports: from.TargetPorts}
		return &onePool{runningPool: p.Pools.addPool(from.String(), "", namespace.SelectionSource(selection)), source: namespace}, nil
	}
	running := p.Pools.addPool(from.String(), from.Name.Name, namespace.PoolSource(from.Name.Name))
	rules := p.newRules(from.Name.Namespace, metrics.NewRules(p.Registry).OfNamespace())
	rules.AddPool(from.Name.Name, running.Rules, running.Metrics.PinModels)
	return &onePool{runningPool: running, source: namespace, rules: rules}, nil
}

// FindPool returns the pool.
func (o *onePool) FindPool(context.Context) exchange.Pool { return o }

// FindTitle returns the pool if it has this title.
func (o *onePool) FindTitle(title string) exchange.Pool {
	if title != o.Title {
		return nil
	}
	return o
}

// FindHost returns the pool.
func (o *onePool) FindHost(string) exchange.Pool { return o }

// CheckReady returns an error while the pool, its rules or its caches are unknown.
func (o *onePool) CheckReady() error {
	if err := o.Pool.CheckReady(); err != nil {
		return err
	}
	if o.rules != nil {
		return o.rules.CheckReady()
	}
	return nil
}

// Run runs the pool until ctx ends.
func (o *onePool) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { o.source.Run(ctx) })
	if o.rules != nil {
		running.Go(func() { o.rules.Run(ctx) })
	}
	o.Pool.Run(ctx)
	running.Wait()
}
