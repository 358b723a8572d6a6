package app

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/informers"
	"fairlead.dev/services/endpoint-picker/internal/metrics"
	"fairlead.dev/services/endpoint-picker/internal/pools"
)

// reasonShadowed is the reason of Events for pools whose endpointPickerRef an older pool has.
const reasonShadowed = "EndpointPickerRefConflict"

const kindService = "Service"

var errPoolsNotRead = errors.New("InferencePools have not been read yet")

// servedPools runs the InferencePools that the flags select, while they exist. A stream selects one by its :authority.
type servedPools struct {
	*pools.Set

	parts discoveryParts

	namespaces map[string]*servedNamespace
	changed    chan struct{}
	read       chan struct{} // closed when the pools have been read
	readOnce   sync.Once

	// Used only by follow.
	running  map[cache.ObjectName]context.CancelFunc
	members  map[cache.ObjectName]pools.Member
	shadowed []string
}

// servedNamespace contains the caches of one namespace.
type servedNamespace struct {
	*informers.Namespace

	rules *informers.Rules
}

func newServedPools(p discoveryParts) (*servedPools, error) {
	s := &servedPools{
		Set: pools.NewSet(pools.Missing{}), parts: p, namespaces: map[string]*servedNamespace{},
		changed: make(chan struct{}, 1), read: make(chan struct{}),
		running: map[cache.ObjectName]context.CancelFunc{}, members: map[cache.ObjectName]pools.Member{},
	}
	observer := metrics.NewRules(p.Registry)
	for _, name := range namespacesOf(&p.Config.Pool) {
		caches, err := p.newNamespace(informers.NamespaceParams{Inference: p.Clients.inference, Namespace: name, Changed: s.markChanged})
		if err != nil {
			return nil, err
		}
		s.namespaces[name] = &servedNamespace{Namespace: caches, rules: p.newRules(name, observer.OfNamespace())}
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

// Ready returns an error until the pools and their rules have been read. Pools that are missing, or that appear later, do not
// make it unready, because they are not the concern of the others.
func (s *servedPools) Ready() error {
	select {
	case <-s.read:
	default:
		return errPoolsNotRead
	}
	for _, n := range s.namespaces {
		if err := n.rules.Ready(); err != nil {
			return err
		}
	}
	return nil
}

// Run runs the pools until ctx ends.
func (s *servedPools) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, n := range s.namespaces {
		running.Go(func() { n.Namespace.Run(ctx) })
		running.Go(func() { n.rules.Run(ctx) })
	}
	s.follow(ctx, &running)
}

func (s *servedPools) markChanged() {
	select {
	case s.changed <- struct{}{}:
	default: // a pending reading includes this change
	}
}

// follow starts and stops pools until ctx ends.
func (s *servedPools) follow(ctx context.Context, running *sync.WaitGroup) {
	var synced []cache.InformerSynced
	for _, n := range s.namespaces {
		synced = append(synced, n.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	for {
		s.update(ctx, running)
		s.readOnce.Do(func() { close(s.read) })
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
	}
}

// update stops the pools that are gone, publishes the addresses of the others, and runs those that have appeared.
func (s *servedPools) update(ctx context.Context, running *sync.WaitGroup) {
	found := s.selected()
	var appeared []func()
	for name := range s.running {
		if found[name] == nil {
			s.stop(name)
		}
	}
	for name, object := range found {
		if s.running[name] == nil {
			appeared = append(appeared, s.start(ctx, name))
		}
		member := s.members[name]
		member.Created, member.Address = object.CreationTimestamp.Time, addressOf(object)
		s.members[name] = member
	}
	s.publish()
	for _, run := range appeared {
		running.Go(run)
	}
}

// selected returns the InferencePools that exist and that the flags select.
func (s *servedPools) selected() map[cache.ObjectName]*inferencev1.InferencePool {
	from := &s.parts.Config.Pool
	wanted := map[cache.ObjectName]bool{}
	for i := range from.Names {
		wanted[from.Names[i].ObjectName] = true
	}
	found := map[cache.ObjectName]*inferencev1.InferencePool{}
	for _, n := range s.namespaces {
		for _, object := range n.Pools() {
			name, address := cache.MetaObjectToName(object), addressOf(object)
			if wanted[name] || from.Service.Name != "" && address.Service == from.Service.Name && address.Namespace == from.Service.Namespace {
				found[name] = object
			}
		}
	}
	return found
}

// start makes a pool. It returns the function that runs it.
func (s *servedPools) start(ctx context.Context, name cache.ObjectName) (run func()) {
	n, log := s.namespaces[name.Namespace], s.parts.Log.With(zap.String(logging.KeyPool, name.String()))
	source := n.Pool(name.Name)
	made := s.parts.Pools.add(name.String(), name.Name, source)
	n.rules.Add(name.Name, made.Rules, made.Metrics.Pin)
	ctx, stop := context.WithCancel(ctx)
	s.running[name] = func() {
		stop()
		source.Close()
	}
	s.members[name] = pools.Member{Name: name.String(), Pool: made}
	log.Info("Started pool")
	return func() { made.Pool.Run(ctx) }
}

// stop ends a pool. Open streams end with their endpoints.
func (s *servedPools) stop(name cache.ObjectName) {
	s.running[name]()
	s.namespaces[name.Namespace].rules.Remove(name.Name)
	s.parts.Pools.remove(name.String())
	delete(s.running, name)
	delete(s.members, name)
	s.parts.Log.Info("Stopped pool", zap.String(logging.KeyPool, name.String()))
}

// publish replaces the pools that streams can select, and reports pools that none can.
func (s *servedPools) publish() {
	members := make([]pools.Member, 0, len(s.members))
	for _, m := range s.members {
		members = append(members, m)
	}
	shadowed := s.Replace(members)
	for _, name := range shadowed {
		if !slices.Contains(s.shadowed, name) {
			s.reportShadowed(name)
		}
	}
	s.shadowed = shadowed
}

func (s *servedPools) reportShadowed(title string) {
	const message = "An older InferencePool has the same endpointPickerRef and gets its requests: give each pool its own Service or port"
	s.parts.Log.Warn("Pool gets no requests, because an older pool has the same endpointPickerRef", zap.String(logging.KeyPool, title))
	for _, one := range s.parts.Pools.list() {
		if reference, ok := one.reference(); ok && one.Title == title {
			s.parts.Events.about(&reference, corev1.EventTypeWarning, reasonShadowed, message)
		}
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
