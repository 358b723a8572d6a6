// Package pools is the registry of the pools that the process serves. The pools are one of a file, of a selector of pods or of an
// InferencePool, which gets all requests; or the InferencePools that the flags select, while they exist. The Registry starts and stops
// them, finds the pool of a request, and knows when the pools are ready. They share the configuration of the plugins, the budget of
// scrapes and the memory for prefixes.
//
// Gateways do not send the name of a pool. They reach the picker through the Service and port of the pool's
// endpointPickerRef, and send these as the :authority of the stream. So pools of one picker have different Services, which
// select the same pods, or different ports of one Service.
package pools

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/wake"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/discovery"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/replicas"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/recorder"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/tracing"
)

var errPoolsNotRead = errors.New("InferencePools have not been read yet")

// Params are the parameters of New.
type Params struct {
	Config   *config.Config
	Log      *zap.Logger
	Clock    clock.WithTicker
	Registry *prometheus.Registry // of the process
	Clients  Clients
	Events   *Events
	Plugins  func() *pluginconfig.Config // their configuration
	Tracer   *tracing.Tracer
	Recorder *recorder.Recorder  // nil without a recording
	Replicas *replicas.Node      // nil: this replica of the picker hears of no other
	State    *replicas.StateFile // nil: the next process knows nothing
}

// Registry contains the pools of the process. It is safe for concurrent use.
type Registry struct {
	*finder

	params   Params
	scrapes  *modelserver.Budget       // of all pools
	prefixes *prefixindex.MemoryBudget // of all pools

	only       *Pool                     // of all streams; nil if streams select a pool
	servers    *discovery.ServerSource   // nil without --servers
	sources    []func(context.Context)   // run the sources of endpoints and of rules
	namespaces map[string]*poolNamespace // of InferencePools and pods, by name

	mu        sync.RWMutex
	plan      *modelserver.Plan // of scraping; nil before ApplyPlan
	cacheSize estimate.CacheSize
	pools     map[string]*Pool // by title

	// If streams select a pool:
	observer *metrics.Pools
	changed  wake.Signal   // InferencePools have changed
	read     chan struct{} // closed when the InferencePools have been read
	starting startingPools
	refused  map[types.NamespacedName]string // used only by followPools
}

// New returns a Registry with the pool of all streams, or with pools that streams select. Run starts them.
func New(p Params) (*Registry, error) {
	r := &Registry{
		params: p, scrapes: modelserver.NewBudget(p.Config.Scraping.Budget),
		prefixes:   prefixindex.NewMemoryBudget(int(p.Config.Prefixes.MaxBytes)),
		namespaces: map[string]*poolNamespace{}, pools: map[string]*Pool{}, changed: wake.NewSignal(), read: make(chan struct{}),
	}
	if p.Events != nil {
		p.Events.references = r.poolReferences // pools report Events, and other Events are about all pools
	}
	if p.Config.Pool.IsMultiPool() {
		r.observer = metrics.NewPools(p.Registry, unaddressed, shadowed, excess)
		r.finder = newFinder(missingPool{r.observer.StreamWithoutPool}, p.Config.Proxy.ListenPort(), p.Config.Decision.ListenPort())
		return r, r.addNamespaces()
	}
	var err error
	if r.only, err = r.addOnlyPool(); err != nil {
		return nil, err
	}
	r.finder = newFinder(r.only)
	r.replaceMembers([]member{{title: r.only.title, pool: r.only}})
	return r, nil
}

// CheckReady returns an error while the pool of all streams is unknown. If streams select a pool, it returns an error until the pools have
// been read, and for up to startLimit while pools that were there from the start wait for their pods or for what other replicas know of the
// caches: a pool that is missing, or that appears later, must not make the others unready. Rules that have not been read are an error in
// both cases.
func (r *Registry) CheckReady() error {
	if r.only != nil {
		if err := r.only.CheckReady(); err != nil {
			return err
		}
	} else {
		select {
		case <-r.read:
		default:
			return errPoolsNotRead
		}
	}
	for _, n := range r.namespaces {
		if n.rules == nil {
			continue
		}
		if err := n.rules.CheckReady(); err != nil {
			return err
		}
	}
	return r.starting.CheckReady()
}

// Synced returns a channel that is closed when the endpoints of the pool of all streams, or the InferencePools, have been read.
func (r *Registry) Synced() <-chan struct{} {
	if r.only != nil {
		return r.only.store.Synced()
	}
	return r.read
}

// Run runs the pools until ctx ends.
func (r *Registry) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, run := range r.sources {
		running.Go(func() { run(ctx) })
	}
	if r.only != nil {
		r.only.Run(ctx)
		return
	}
	r.followPools(ctx, &running)
}

// ApplyPlan makes a plan of scraping and a size of caches effective in all pools, present and future.
func (r *Registry) ApplyPlan(plan *modelserver.Plan, size estimate.CacheSize) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan, r.cacheSize = plan, size
	for _, p := range r.pools {
		p.applyPlan(plan, size)
	}
}

// CloseQueues refuses the requests that wait for an endpoint.
func (r *Registry) CloseQueues() {
	for _, p := range r.sortedPools() {
		p.Queue().Close()
	}
}

// addPool adds a pool. Its title is unique, and it has the name of its InferencePool, if there is one. The caller runs it.
func (r *Registry) addPool(title string, name types.NamespacedName, from endpointSource) *Pool {
	r.mu.Lock()
	defer r.mu.Unlock()
	added := r.newPool(title, name, from)
	if r.plan != nil {
		added.applyPlan(r.plan, r.cacheSize)
	}
	r.pools[title] = added
	return added
}

// removePool forgets a pool.
func (r *Registry) removePool(title string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pools, title)
	r.params.State.LeavePool(title)
}

// sortedPools returns the pools, sorted by title.
func (r *Registry) sortedPools() []*Pool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var sorted []*Pool
	for _, title := range slices.Sorted(maps.Keys(r.pools)) {
		sorted = append(sorted, r.pools[title])
	}
	return sorted
}
