// Package collect reads the load of groups, and samples of their replicas, from Prometheus.
//
// One query for each group reads all figures of the window at one time, by pod, and a second one the requests of the retention period.
// Only pods of the group count, so the same model in another namespace or pool does not mix in, nor do series of deleted pods.
//
//	rate         the largest of: finished requests; finished requests plus the growth of those in the servers; requests that the picker
//	             sent or refused. Finished requests alone would never exceed what the servers can do.
//	             A pod that has just become ready had none: what it holds at its first scrape arrived.
//	             Ready pods without metrics count as the mean of the others of their variant, unless they are new.
//	not a load   an error; ready pods of which less than half have metrics of the last minutes. The state says so.
//	no pods      nothing runs that could have metrics: the picker's are enough
//	roles        prefill and decode servers have loads of their own (stages.go). Requests that only wait for their KV cache do not count
//	             as waiting.
//
// An error, a missing series, NaN and infinity are never zero. Counters that an engine exports only after the first event are, if the
// server's gauges are there.
package collect

import (
	"cmp"
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"

	"fairlead.dev/services/variant-autoscaler/internal/promclient"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Options of a Collector. Zero values mean the defaults.
type Options struct {
	// Window of rates and means, 1 m. It needs two scrapes: at least twice the scrape interval, better four times.
	Window time.Duration
	// Concurrency is the number of queries at a time, 4.
	Concurrency int
}

// Group is a group of variants whose load is collected.
type Group struct {
	Namespace string
	Pool      string // name of the InferencePool in the namespace; may be empty
	Model     string
	// Retention is the period of Result.Requests. Zero: not asked for.
	Retention time.Duration
	// Waited is the period of Result.Waited. Zero: not asked for.
	Waited   time.Duration
	Variants []Variant
}

// Variant is a variant of a group with the pods that exist. Of replicas with several pods, only those that serve requests belong here,
// such as the leaders of a LeaderWorkerSet.
type Variant struct {
	Name string
	Role snapshot.Role
	Pods []snapshot.Pod
}

// Result is the load of a group, and the figures of its variants.
type Result struct {
	// Load of the window, of the servers that compute whole requests. Its Message may also explain a load that is known in part. Means are
	// zero when there were no requests.
	Load snapshot.Load
	// Stages are the loads of the other servers. It is nil if no variant has a role, or if Load says why no load is known.
	Stages map[snapshot.Role]snapshot.Load
	// Requests of the retention period, with those in the servers. Nil: not known; RequestsMessage says why.
	Requests        *float64
	RequestsMessage string
	// Waited is the most requests that waited in the picker at a scrape of the period.
	Waited float64
	// Picker reports whether the picker of the pool has metrics: it sees requests while no pod is ready.
	Picker   bool
	Variants []VariantResult // in the order of the group's
}

// LoadForRole returns the load of the servers that have a role.
func (r *Result) LoadForRole(role snapshot.Role) snapshot.Load {
	if load, found := r.Stages[role]; found {
		return load
	}
	return r.Load
}

// VariantResult is the figures of a variant.
type VariantResult struct {
	// Sample of its ready replicas. Nil: none has metrics.
	Sample *snapshot.Sample
	// Weight is the requests sent to a replica, in millionths per second in which it was ready. Zero: none were seen.
	Weight int64
	// Usages are the usages of its ready replicas that have metrics.
	Usages []Usage
}

// Usage is the part of its KV cache that a replica uses, and the requests that wait in it.
type Usage struct {
	KV      float64 // part of the cache
	Waiting float64 // requests
}

// Querier asks Prometheus for a vector.
type Querier interface {
	Query(ctx context.Context, expr string) ([]promclient.Series, error)
}

// Collector collects from one Prometheus.
type Collector struct {
	querier Querier
	options Options
}

// staleAfter is the age from which metrics are not used: Prometheus' own lookback.
const staleAfter = 5 * time.Minute

// collectTimeout is the time of Collect: half of the default interval of passes. Groups that were not reached in it fail.
const collectTimeout = 30 * time.Second

// maxModel is the length of the longest name of a model. A longer one would make every query long.
const maxModel = 1024

// maxRetention is the longest retention period. A query over a longer one would read more than most servers keep.
const maxRetention = 7 * 24 * time.Hour

// New returns a Collector.
func New(q Querier, o Options) *Collector {
	o.Window = cmp.Or(o.Window, time.Minute)
	o.Concurrency = cmp.Or(o.Concurrency, 4) // answers are large
	return &Collector{querier: q, options: o}
}

// Collect returns a result for each group, in their order. The failure of one costs that group only. Groups of namespaces with many
// come after the first groups of all others.
func (c *Collector) Collect(ctx context.Context, now time.Time, groups []Group) []Result {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	neighbors, results := neighborsByModel(groups), make([]Result, len(groups))
	positions := make([]int, len(groups))
	for i := range positions {
		positions[i] = i
	}
	order := snapshot.TakeTurns(positions, func(i int) string { return groups[i].Namespace })
	workqueue.ParallelizeUntil(context.Background(), c.options.Concurrency, len(order), func(n int) {
		g := &groups[order[n]]
		results[order[n]] = c.collectGroup(ctx, now, g, neighbors[modelOf(g)])
	})
	return results
}

func (c *Collector) collectGroup(ctx context.Context, now time.Time, g *Group, neighbors *modelNeighbors) Result {
	r := Result{Variants: make([]VariantResult, len(g.Variants))}
	if len(g.Model) > maxModel {
		r.Load = failedLoad("the name of the model has more than 1024 bytes: shorten it")
		r.RequestsMessage = r.Load.Message
		return r
	}
	selected := selection{
		namespace: g.Namespace, pool: g.Pool, model: g.Model, window: c.options.Window, waited: g.Waited, shared: neighbors.groups > 1,
		roles: g.hasRoles(),
	}
	vector, err := c.querier.Query(ctx, selected.loadQuery())
	if err != nil {
		r.Load = failedLoad(err.Error())
		r.RequestsMessage = r.Load.Message
		return r
	}
	groupWindow := c.newWindow(g, readFigures(g.Namespace, vector), now)
	stages := c.splitStages(groupWindow)
	loadOf := loadsByRole(stages)
	for _, s := range stages {
		if load := loadOf[s.role]; load.State == snapshot.Missing && len(s.settled) > 0 {
			loadOf[s.role] = c.diagnoseMissing(ctx, &selected, load)
		}
		for n, i := range s.variants {
			r.Variants[i] = VariantResult{Sample: s.roleSample(n), Weight: s.replicaWeight(n), Usages: s.podUsages(n)}
		}
	}
	r.Load, r.Picker, r.Waited = loadOf[snapshot.Aggregated], groupWindow.picker, groupWindow.figures[waited][""]
	if delete(loadOf, snapshot.Aggregated); len(loadOf) > 0 {
		r.Stages = loadOf
	}
	r.Requests, r.RequestsMessage = c.retainedRequests(ctx, &selected, groupWindow, neighbors)
	return r
}

func failedLoad(message string) snapshot.Load {
	return snapshot.Load{State: snapshot.Failed, Message: message}
}

// servedModel is a model in a namespace.
type servedModel struct{ namespace, model string }

func modelOf(g *Group) servedModel { return servedModel{g.Namespace, g.Model} }

// modelNeighbors are the groups of one model in one namespace.
type modelNeighbors struct {
	groups int
	pools  map[string]string // of their pods
}

func neighborsByModel(groups []Group) map[servedModel]*modelNeighbors {
	byModel := map[servedModel]*modelNeighbors{}
	for i := range groups {
		g := &groups[i]
		n := byModel[modelOf(g)]
		if n == nil {
			n = &modelNeighbors{pools: map[string]string{}}
			byModel[modelOf(g)] = n
		}
		n.groups++
		for _, v := range g.Variants {
			for _, p := range v.Pods {
				n.pools[p.Name] = g.Pool
			}
		}
	}
	return byModel
}
