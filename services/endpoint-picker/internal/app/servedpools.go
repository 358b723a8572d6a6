package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/discovery/informers"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/pool/pools"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
)

// The reasons of Events for pools that the picker does not serve.
const (
	reasonUnaddressed = "InvalidEndpointPickerRef"
	reasonShadowed    = "EndpointPickerRefConflict"
	reasonExcess      = "TooManyPools"
)

const kindService = "Service"

var errPoolsNotRead = errors.New("InferencePools have not been read yet")

// servedPools runs the InferencePools that the flags select, while they exist. A stream selects one by its :authority.
type servedPools struct {
	*pools.Set

	parts    discoveryParts
	observer *metrics.Pools

	namespaces map[string]*servedNamespace
	changed    chan struct{}
	read       chan struct{} // closed when the pools have been read
	readOnce   sync.Once
	starting   startingPools

	// Used only by followPools.
	running map[cache.ObjectName]*servedPool
	refused map[cache.ObjectName]pools.Refusal
}

// servedPool is a pool that runs.
type servedPool struct {
	*runningPool

	stop func()
}

// servedNamespace contains the caches of one namespace.
type servedNamespace struct {
	*informers.Namespace

	rules *informers.Rules
}

func newServedPools(p discoveryParts) (*servedPools, error) {
	observer, rules := metrics.NewPools(p.Registry), metrics.NewRules(p.Registry)
	s := &servedPools{
		Set: pools.NewSet(pools.MissingPool{Observe: observer.StreamWithoutPool}), parts: p, observer: observer,
		namespaces: map[string]*servedNamespace{}, changed: make(chan struct{}, 1), read: make(chan struct{}),
		running: map[cache.ObjectName]*servedPool{},
	}
	for _, name := range namespacesOf(&p.Config.Pool) {
		caches, err := p.newNamespace(informers.NamespaceParams{Inference: p.Clients.inference, Namespace: name, Changed: s.markChanged})
		if err != nil {
			return nil, err
		}
		s.namespaces[name] = &servedNamespace{Namespace: caches, rules: p.newRules(name, rules.OfNamespace())}
	}
	return s, nil
}

// namespacesOf returns the namespaces of the selected pools, each once.
func namespacesOf(p *config.Pool) []string {
	names := []string{}
	if p.Service.Name != "" {
		names = append(names, p.Service.Namespace)
	}
	for i := range p.Names {
		names = append(names, p.Names[i].Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// FindHost returns the pool of an HTTP request.
func (s *servedPools) FindHost(host string) exchange.Pool {
	return s.Set.FindHost(host, s.parts.Config.Proxy.ListenPort(), s.parts.Config.Decision.ListenPort())
}

// CheckReady returns an error until the pools and their rules have been read, and while pools that were there from the start wait for
// what other replicas know of the caches. A pool that is missing, or that
// appears later, must not make the others unready.
func (s *servedPools) CheckReady() error {
	select {
	case <-s.read:
	default:
		return errPoolsNotRead
	}
	for _, n := range s.namespaces {
		if err := n.rules.CheckReady(); err != nil {
			return err
		}
	}
	return s.starting.CheckReady()
}

// Run runs the pools until ctx ends.
func (s *servedPools) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, n := range s.namespaces {
		running.Go(func() { n.Namespace.Run(ctx) })
		running.Go(func() { n.rules.Run(ctx) })
	}
	s.followPools(ctx, &running)
}

func (s *servedPools) markChanged() {
	select {
	case s.changed <- struct{}{}:
	default: // a pending reading includes this change
	}
}

// followPools starts and stops pools until ctx ends.
func (s *servedPools) followPools(ctx context.Context, running *sync.WaitGroup) {
	var synced []cache.InformerSynced
	for _, n := range s.namespaces {
		synced = append(synced, n.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	for {
		s.updatePools(ctx, running)
		s.readOnce.Do(func() {
			for name, p := range s.running {
				s.starting.addPool(name.String(), p)
			}
			close(s.read)
		})
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
	}
}

// updatePools stops the pools that are not served anymore, runs those that are served now, and publishes their addresses.
func (s *servedPools) updatePools(ctx context.Context, running *sync.WaitGroup) {
	served, refused := pools.ChoosePools(s.selectedPools(), s.parts.Config.Pool.MaxPools())
	wanted := map[cache.ObjectName]bool{}
	for _, c := range served {
		wanted[c.Name] = true
	}
	for name := range s.running {
		if !wanted[name] {
			s.stopPool(name)
		}
	}
	members, appeared := make([]pools.Member, 0, len(served)), map[cache.ObjectName]func(){}
	for _, c := range served {
		if s.running[c.Name] == nil {
			appeared[c.Name] = s.startPool(ctx, c.Name)
		}
		members = append(members, pools.Member{Title: c.Name.String(), Address: c.Address, Pool: s.running[c.Name]})
	}
	s.refreshRules(appeared)
	s.ReplaceMembers(members)
	s.reportPools(len(served), refused)
	for _, run := range appeared {
		running.Go(run)
	}
}

// selectedPools returns the InferencePools that exist and that the flags select.
func (s *servedPools) selectedPools() []pools.Candidate {
	from := &s.parts.Config.Pool
	wanted := map[cache.ObjectName]bool{}
	for i := range from.Names {
		wanted[from.Names[i].ObjectName] = true
	}
	var found []pools.Candidate
	for _, n := range s.namespaces {
		for _, object := range n.AllPools() {
			c := pools.Candidate{Name: cache.MetaObjectToName(object), Created: object.CreationTimestamp.Time, Address: addressOf(object)}
			namesService := from.Service.Name != "" && c.Address.Service == from.Service.Name && c.Address.Namespace == from.Service.Namespace
			if namesService || wanted[c.Name] {
				found = append(found, c)
			}
		}
	}
	return found
}

// startPool makes a pool, whose rules are not read yet. It returns the function that runs it.
func (s *servedPools) startPool(ctx context.Context, name cache.ObjectName) (run func()) {
	n := s.namespaces[name.Namespace]
	source := n.PoolSource(name.Name)
	added := s.parts.Pools.addPool(name.String(), name.Name, source)
	n.rules.AddPool(name.Name, added.Rules, added.Metrics.PinModels)
	ctx, stop := context.WithCancel(ctx)
	s.running[name] = &servedPool{runningPool: added, stop: func() {
		stop()
		source.Close()
	}}
	s.parts.Log.Info("Started pool", zap.String(logging.KeyPool, name.String()))
	return func() { added.Pool.Run(ctx) }
}

// stopPool ends a pool. Open streams end with their endpoints.
func (s *servedPools) stopPool(name cache.ObjectName) {
	s.running[name].stop()
	s.starting.removePool(name.String())
	s.namespaces[name.Namespace].rules.RemovePool(name.Name)
	s.parts.Pools.removePool(name.String())
	delete(s.running, name)
	s.parts.Log.Info("Stopped pool", zap.String(logging.KeyPool, name.String()))
}

// refreshRules reads the rules of pools that have appeared, once for each namespace.
func (s *servedPools) refreshRules(appeared map[cache.ObjectName]func()) {
	namespaces := map[string]bool{}
	for name := range appeared {
		namespaces[name.Namespace] = true
	}
	for name := range namespaces {
		s.namespaces[name].rules.Refresh()
	}
}

// reportPools reports the numbers of pools, and each pool that is not served for a new reason.
func (s *servedPools) reportPools(served int, refused map[cache.ObjectName]pools.Refusal) {
	numbers := map[pools.Refusal]int{}
	for name, reason := range refused {
		numbers[reason]++
		if s.refused[name] != reason {
			s.reportRefused(name, reason)
		}
	}
	s.refused = refused
	s.observer.ObservePools(served, numbers)
}

func (s *servedPools) reportRefused(name cache.ObjectName, reason pools.Refusal) {
	var event, message string
	switch reason {
	case pools.Unaddressed:
		event, message = reasonUnaddressed, "The endpoint picker cannot serve the InferencePool, because its endpointPickerRef is not the port of a Service: "+
			"name a Service of the picker and a port"
	case pools.Shadowed:
		event, message = reasonShadowed, "An older InferencePool has the same endpointPickerRef and gets its requests: give each pool its own Service or port"
	case pools.Excess:
		event, message = reasonExcess, fmt.Sprintf("The endpoint picker serves the %d oldest InferencePools that refer to it, and not this one: "+
			"raise its --max-pools, or run another picker", s.parts.Config.Pool.Max)
	}
	s.parts.Log.Warn("Pool gets no requests", zap.String(logging.KeyPool, name.String()), zap.String("reason", event), zap.String("message", message))
	if reference, ok := s.namespaces[name.Namespace].PoolSource(name.Name).Reference(); ok {
		s.parts.Events.reportAbout(&reference, corev1.EventTypeWarning, event, message)
	}
}

// addressOf returns the address of the picker in a pool's endpointPickerRef, zero if it is not a Service.
func addressOf(p *inferencev1.InferencePool) pools.Address {
	ref := p.Spec.EndpointPickerRef
	if ref == nil || ref.Kind != "" && ref.Kind != kindService || ref.Group != nil && *ref.Group != "" || ref.Port == nil {
		return pools.Address{}
	}
	return pools.Address{Namespace: p.Namespace, Service: string(ref.Name), Port: int(ref.Port.Number)}
}
