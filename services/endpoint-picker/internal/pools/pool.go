package pools

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/pick"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/replicas"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/debugpage"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/recorder"
)

// A Pool is one pool of model servers with all its parts: its endpoints and their load, the rules for its requests, its metrics, and the
// picks. It implements request.Pool.
type Pool struct {
	*pick.Balancer

	title     string               // for people: namespace/name, the selector of the endpoints, or "servers"
	name      types.NamespacedName // of the InferencePool, if there is one
	rules     *pool.Rules
	store     *pool.Store
	estimator *estimate.Estimator
	picks     *debugpage.Picks
	metrics   *metrics.Metrics
	registry  *prometheus.Registry // of the pool's metrics
	scraper   *modelserver.Scraper
	timeout   time.Duration    // of abandoned leases
	member    *replicas.Member // nil without other replicas
	stop      func()           // ends a pool that streams select
}

// newPool returns a pool without endpoints. Run starts it.
func (r *Registry) newPool(title string, name types.NamespacedName, from endpointSource) *Pool {
	cfg, log, clock := r.params.Config, r.params.Log, r.params.Clock
	p := &Pool{
		title: title, name: name, rules: pool.NewRules(), estimator: estimate.New(r.prefixes),
		picks: debugpage.NewPicks(cfg.Telemetry.DebugPicks), registry: prometheus.NewRegistry(),
		timeout: cfg.Leases.Timeout,
	}
	p.metrics = metrics.New(p.registry, metrics.Options{Streams: cfg.Telemetry.StreamMetrics})
	outliers := pool.NewDetector(cfg.Outliers, log.Named("outlier"), p.metrics.ObserveEjection, clock)
	p.scraper = modelserver.NewScraper(modelserver.ScraperParams{
		Options: cfg.Scraping, Budget: r.scrapes, Log: log.Named("modelserver"), Outliers: outliers, Clock: clock,
		ObserveScrape: p.metrics.ObserveScrape, RecordSampleCount: p.estimator.RecordSampleCount,
	})
	saved := r.params.State.JoinPool(title, p.estimator)
	p.store = pool.NewStore(log.Named("datastore"), title, from, saved, clock)
	from.OnChange(p.store.MarkChanged)
	p.Balancer = pick.New(pick.Params{
		Options: pick.Options{
			Scores: cfg.ExtProc.EmitScores || cfg.Telemetry.DebugPicks > 0, Explain: cfg.ExtProc.Explain,
			Prefixes: r.params.Recorder != nil,
		},
		Snapshot: p.store.Snapshot, Config: r.params.Plugins, Rules: p.rules, Estimator: p.estimator, Outliers: outliers,
		Observer: &observers{p.metrics, r.enabledObservers(p)}, Clock: clock, Random: rand.Uint64,
	})
	p.store.AddObservers(p.scraper.SetEndpoints, outliers.SetEndpoints, p.Balancer.SetEndpoints, saved.SetEndpoints,
		p.estimator.ResizeCaches)
	metrics.RegisterEndpoints(p.store.Snapshot, clock, p.registry)
	metrics.RegisterPool(metrics.PoolParams{
		Pool: name.Name, Snapshot: p.store.Snapshot, Metrics: p.metrics, Queue: p.Queue(), Estimator: p.estimator,
		StaleAfter: cfg.Scraping.StaleAfter, Saturation: p.PoolSaturation, Clock: clock,
	}, p.registry)
	if r.params.Replicas != nil {
		p.member = r.params.Replicas.JoinPool(title, p.estimator, p.store)
		metrics.RegisterReplicas(p.registry, p.member.ReplicaStats)
	}
	return p
}

// enabledObservers returns the enabled observers of a pool's finished requests, besides the metrics.
func (r *Registry) enabledObservers(p *Pool) []func(*request.Record) {
	var enabled []func(*request.Record)
	if r.params.Tracer.IsEnabled() {
		enabled = append(enabled, r.params.Tracer.ObserveRequest)
	}
	if p.picks.IsEnabled() {
		enabled = append(enabled, p.picks.ObserveRequest)
	}
	if r.params.Config.Telemetry.LogRequests {
		enabled = append(enabled, recorder.NewLog(r.params.Log.Named("requests")).ObserveRequest)
	}
	if r.params.Recorder != nil {
		title := p.title
		if !r.params.Config.Pool.IsMultiPool() {
			title = "" // all lines are of one pool
		}
		enabled = append(enabled, r.params.Recorder.ForPool(title).ObserveRequest)
	}
	return enabled
}

// CheckReady returns an error while the pool is unknown, or waits for what other replicas know of the caches. Once the pool is known, the
// wait is short (package replicas).
func (p *Pool) CheckReady() error {
	if err := p.store.CheckReady(); err != nil {
		return err
	}
	if p.member == nil {
		return nil
	}
	return p.member.CheckReady()
}

// applyPlan makes a plan of scraping and a size of caches effective.
func (p *Pool) applyPlan(plan *modelserver.Plan, size estimate.CacheSize) {
	p.scraper.SetPlan(plan)
	p.estimator.SetCacheSize(size, p.store.Snapshot().Endpoints)
}

// Run follows the endpoints and their load until ctx ends.
func (p *Pool) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, run := range []func(context.Context){p.store.Run, p.scraper.Run, p.Balancer.Run} {
		running.Go(func() { run(ctx) })
	}
	running.Go(func() {
		endpoint.ExpireLeases(ctx, p.timeout, func() []*endpoint.Endpoint { return p.store.Snapshot().Endpoints })
	})
	if p.member != nil {
		running.Go(func() { p.member.Run(ctx) })
	}
	running.Wait()
	p.estimator.ReleaseMemory()
}

// observers receive the records of all requests: the metrics, and others that are enabled.
type observers struct {
	*metrics.Metrics

	others []func(*request.Record)
}

// ObserveRequest passes the record of a finished request to all observers.
func (o *observers) ObserveRequest(r *request.Record) {
	o.Metrics.ObserveRequest(r)
	for _, observe := range o.others {
		observe(r)
	}
}
