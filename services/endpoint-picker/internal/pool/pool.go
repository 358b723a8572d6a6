// Package pool assembles one pool of model servers: its endpoints and their load, the rules for its requests, its metrics, and
// the picks. A process may run many pools; they share the configuration of the plugins, the budget of
// scrapes and the memory for prefixes.
package pool

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/pool/balancer"
	"fairlead.dev/services/endpoint-picker/internal/pool/datastore"
	"fairlead.dev/services/endpoint-picker/internal/pool/outlier"
	"fairlead.dev/services/endpoint-picker/internal/pool/rules"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/replicas"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
)

// A Source provides the endpoints.
type Source interface {
	ReadPool() (*datastore.Pool, error)
	WaitForSync(ctx context.Context) bool
	// OnChange registers a function to call after changes.
	OnChange(changed func())
}

// configs provides the configuration of the plugins.
type configs interface {
	Current() *pluginconfig.Config
}

// An Observer receives the records of finished requests, besides the metrics.
type Observer interface {
	ObserveRequest(r *exchange.Record)
}

// Options are the options that all pools of a process share.
type Options struct {
	Picks         balancer.Options
	Scraping      modelserver.Options
	Outliers      outlier.Options
	LeaseTimeout  time.Duration // of abandoned leases
	StreamMetrics bool          // llm_d_epp_extproc_*
}

// Params are the parameters of New.
type Params struct {
	Options   Options
	Title     string // for people: namespace/name, or the selector or file of the endpoints
	Name      string // of the InferencePool, empty if there is none
	Source    Source
	Configs   configs
	Observers []Observer
	Replicas  *replicas.Node            // nil: this replica of the picker hears of no other
	Scrapes   *modelserver.Budget       // of all pools
	Prefixes  *prefixindex.MemoryBudget // of the indexes of all pools
	Log       *zap.Logger
	Clock     clock.WithTicker
}

// A Pool is one pool. It implements exchange.Pool. All its fields may be read while it runs.
type Pool struct {
	*balancer.Balancer

	Title     string
	Rules     *rules.Rules
	Store     *datastore.Store
	Estimator *estimate.Estimator
	Metrics   *metrics.Metrics
	Registry  *prometheus.Registry // of the pool's metrics

	scraper *modelserver.Scraper
	expirer *endpoint.Expirer
	member  *replicas.Member // nil without other replicas
}

// New returns a Pool without endpoints. Run starts it.
func New(p Params) *Pool {
	created := &Pool{
		Title: p.Title, Rules: rules.New(), Estimator: estimate.NewShared(p.Prefixes), Registry: prometheus.NewRegistry(),
		expirer: endpoint.NewExpirer(p.Options.LeaseTimeout),
	}
	created.Metrics = metrics.New(created.Registry, metrics.Options{Streams: p.Options.StreamMetrics})
	outliers := outlier.New(outlier.Params{Options: p.Options.Outliers, Log: p.Log.Named("outlier"), Observer: created.Metrics,
		Clock: p.Clock})
	created.scraper = modelserver.NewScraper(modelserver.ScraperParams{
		Options: p.Options.Scraping, Budget: p.Scrapes, Log: p.Log.Named("modelserver"), Observer: created.Metrics, Outliers: outliers,
		Tokenizers: created.Estimator, Clock: p.Clock,
	})
	followers := &endpointConsumers{created.scraper, outliers, created.expirer}
	created.Store = datastore.New(datastore.Params{
		Log: p.Log.Named("datastore"), Pool: p.Title, Source: p.Source, Factory: created.Estimator, Observer: followers, Clock: p.Clock,
	})
	p.Source.OnChange(created.Store.MarkChanged)
	created.Balancer = balancer.New(balancer.Params{
		Options: p.Options.Picks, Snapshots: created.Store, Configs: p.Configs, Rules: created.Rules,
		Estimator: created.Estimator, Outliers: outliers, Observer: &observers{created.Metrics, p.Observers}, Clock: p.Clock, Random: rand.Uint64,
	})
	*followers = append(*followers, created.Balancer)
	metrics.NewEndpointCollector(created.Store, p.Clock, created.Registry)
	metrics.NewPoolCollector(metrics.PoolParams{
		Pool: p.Name, Snapshots: created.Store, Metrics: created.Metrics, Queue: created.Queue(), Estimator: created.Estimator,
		StaleAfter: p.Options.Scraping.StaleAfter, Saturation: created.Balancer.PoolSaturation, Clock: p.Clock,
	}, created.Registry)
	if p.Replicas != nil {
		created.member = p.Replicas.JoinPool(p.Title, created.Estimator, created.Store)
		metrics.RegisterReplicas(created.Registry, created.member.ReplicaStats)
	}
	return created
}

// CheckReady returns an error while the pool is unknown, or waits for what other replicas know of the caches. Once the pool is known, the
// wait is short (package replicas).
func (p *Pool) CheckReady() error {
	if err := p.Store.CheckReady(); err != nil {
		return err
	}
	if p.member == nil {
		return nil
	}
	return p.member.CheckReady()
}

// ApplyPlan makes a plan of scraping and a size of caches effective.
func (p *Pool) ApplyPlan(plan *modelserver.Plan, size estimate.CacheSize) {
	p.scraper.SetPlan(plan)
	p.Estimator.SetCacheSize(size, p.Store.Snapshot().Endpoints)
}

// Run follows the endpoints and their load until ctx ends.
func (p *Pool) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, run := range []func(context.Context){p.Store.Run, p.scraper.Run, p.expirer.Run, p.Balancer.Run} {
		running.Go(func() { run(ctx) })
	}
	if p.member != nil {
		running.Go(func() { p.member.Run(ctx) })
	}
	running.Wait()
	p.Estimator.ReleaseMemory()
}

// endpointConsumers receive the list of endpoints.
type endpointConsumers []interface {
	SetEndpoints(endpoints []*endpoint.Endpoint)
}

// SetEndpoints passes the endpoints to all consumers.
func (c endpointConsumers) SetEndpoints(endpoints []*endpoint.Endpoint) {
	for _, consumer := range c {
		consumer.SetEndpoints(endpoints)
	}
}

// observers receive the records of all requests: the metrics, and others that are enabled.
type observers struct {
	*metrics.Metrics

	others []Observer
}

// ObserveRequest passes the record of a finished request to all observers.
func (o *observers) ObserveRequest(r *exchange.Record) {
	o.Metrics.ObserveRequest(r)
	for _, other := range o.others {
		other.ObserveRequest(r)
	}
}
