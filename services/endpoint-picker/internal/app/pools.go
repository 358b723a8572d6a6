package app

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/dig"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/version"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig/reload"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/pool/balancer"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/serving/holds"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/debugpage"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/recorder"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/requestlog"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/tracing"
)

// poolParts are the parts that pools need.
type poolParts struct {
	dig.In

	Config   *config.Config
	Log      *zap.Logger
	Registry *prometheus.Registry
	Reloader *reload.Reloader
	Tracer   *tracing.Tracer
	Replicas replicaNode
	Recorder *recorder.Recorder // nil without a recording
	Clock    clock.RealClock
}

// runningPools contains the pools of the process, by title. It is safe for concurrent use.
type runningPools struct {
	parts    poolParts
	scrapes  *modelserver.Budget       // of all pools
	prefixes *prefixindex.MemoryBudget // of all pools

	mu        sync.RWMutex
	plan      *modelserver.Plan // of scraping; nil before use
	cacheSize estimate.CacheSize
	members   map[string]*runningPool
}

// runningPool is one pool, and what else belongs to it.
type runningPool struct {
	*pool.Pool

	picks     *debugpage.Picks
	reference func() (corev1.ObjectReference, bool) // of the InferencePool, if there is one
}

func newRunningPools(p poolParts) *runningPools {
	return &runningPools{
		parts: p, scrapes: modelserver.NewBudget(p.Config.Scraping.Budget),
		prefixes: prefixindex.NewMemoryBudget(int(p.Config.Prefixes.MaxBytes)),
		members:  map[string]*runningPool{},
	}
}

// poolSource provides the endpoints of one pool.
type poolSource interface {
	pool.Source

	// Reference returns the reference to the InferencePool, if there is one.
	Reference() (corev1.ObjectReference, bool)
}

// addPool makes a pool. Its title is unique. The caller runs it.
func (r *runningPools) addPool(title, name string, from poolSource) *runningPool {
	r.mu.Lock()
	defer r.mu.Unlock()
	picks := debugpage.NewPicks(r.parts.Config.Telemetry.DebugPicks)
	added := &runningPool{picks: picks, reference: from.Reference}
	added.Pool = pool.New(pool.Params{
		Options: pool.Options{
			Picks: balancer.Options{
				Scores:  r.parts.Config.ExtProc.EmitScores || r.parts.Config.Telemetry.DebugPicks > 0,
				Explain: r.parts.Config.ExtProc.Explain, Prefixes: r.parts.Recorder != nil,
			},
			Scraping: r.parts.Config.Scraping, Outliers: r.parts.Config.Outliers, LeaseTimeout: r.parts.Config.Leases.Timeout,
			StreamMetrics: r.parts.Config.Telemetry.StreamMetrics,
		},
		Title: title, Name: name, Source: from, Configs: r.parts.Reloader, Observers: r.enabledObservers(title, picks),
		Replicas: r.parts.Replicas.Node,
		Scrapes:  r.scrapes, Prefixes: r.prefixes, Log: r.parts.Log, Clock: r.parts.Clock,
	})
	if r.plan != nil {
		added.ApplyPlan(r.plan, r.cacheSize)
	}
	r.members[title] = added
	return added
}

// removePool forgets a pool.
func (r *runningPools) removePool(title string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.members, title)
}

// enabledObservers returns the enabled observers of a pool's exchanges.
func (r *runningPools) enabledObservers(title string, picks *debugpage.Picks) []pool.Observer {
	var enabled []pool.Observer
	if r.parts.Tracer.IsEnabled() {
		enabled = append(enabled, r.parts.Tracer)
	}
	if picks.IsEnabled() {
		enabled = append(enabled, picks)
	}
	if r.parts.Config.Telemetry.LogRequests {
		enabled = append(enabled, requestlog.New(r.parts.Log.Named("requests")))
	}
	if r.parts.Recorder != nil {
		if !r.parts.Config.Pool.IsMultiPool() {
			title = "" // all lines are of one pool
		}
		enabled = append(enabled, r.parts.Recorder.ForPool(title))
	}
	return enabled
}

// sortedPools returns the pools, sorted by title.
func (r *runningPools) sortedPools() []*runningPool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var sorted []*runningPool
	for _, title := range slices.Sorted(maps.Keys(r.members)) {
		sorted = append(sorted, r.members[title])
	}
	return sorted
}

// applyPlan makes a plan of scraping and a size of caches effective in all pools, present and future.
func (r *runningPools) applyPlan(plan *modelserver.Plan, size estimate.CacheSize) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan, r.cacheSize = plan, size
	for _, member := range r.members {
		member.ApplyPlan(plan, size)
	}
}

// Gather returns the metrics of the process and of all pools.
func (r *runningPools) Gather() ([]*dto.MetricFamily, error) {
	gatherers, labeled := prometheus.Gatherers{r.parts.Registry}, metrics.OwnMetrics
	if r.parts.Config.Pool.IsMultiPool() {
		labeled = metrics.AllMetrics
	}
	for _, member := range r.sortedPools() {
		gatherers = append(gatherers, metrics.WithPool(member.Registry, member.Title, labeled))
	}
	return gatherers.Gather()
}

// DebugPools returns the pools for the debug page.
func (r *runningPools) DebugPools() []debugpage.Pool {
	var views []debugpage.Pool
	for _, member := range r.sortedPools() {
		title := member.Title
		if r.parts.Config.Pool.File != "" {
			title = filepath.Base(title)
		}
		views = append(views, debugpage.Pool{Title: title, Snapshots: member.Store, Estimator: member.Estimator, Picks: member.picks})
	}
	return views
}

// closeQueues refuses the requests that wait for an endpoint.
func (r *runningPools) closeQueues() {
	for _, member := range r.sortedPools() {
		member.Queue().Close()
	}
}

// PoolQueues returns the queues of the pools.
func (r *runningPools) PoolQueues() []holds.Pool {
	var queues []holds.Pool
	for _, member := range r.sortedPools() {
		p := holds.Pool{Name: member.Title, Queue: member.Queue()}
		if reference, ok := member.reference(); ok {
			p.Namespace, p.Name = reference.Namespace, reference.Name
		}
		queues = append(queues, p)
	}
	return queues
}

// PoolReferences returns the references to the InferencePools.
func (r *runningPools) PoolReferences() []corev1.ObjectReference {
	var found []corev1.ObjectReference
	for _, member := range r.sortedPools() {
		if reference, ok := member.reference(); ok {
			found = append(found, reference)
		}
	}
	return found
}

// finder finds the pool of a stream, and runs the pools.
type finder interface {
	FindPool(ctx context.Context) exchange.Pool
	// FindTitle returns the pool with a title, or nil.
	FindTitle(title string) exchange.Pool
	// FindHost returns the pool of an HTTP request, by its host. It returns a pool that refuses all requests if there is none.
	FindHost(host string) exchange.Pool
	// CheckReady returns an error while requests cannot be placed for a reason that passes.
	CheckReady() error
	Run(ctx context.Context)
}

func newDebugPage(cfg *config.Config, log *zap.Logger, r *runningPools, c clock.RealClock) *debugpage.Page {
	return debugpage.New(debugpage.Params{
		Log: log.Named("debugpage"), Version: version.String(), Pools: r.DebugPools, StaleAfter: cfg.Scraping.StaleAfter,
		KeepsPicks: cfg.Telemetry.DebugPicks > 0, Clock: c,
	})
}
