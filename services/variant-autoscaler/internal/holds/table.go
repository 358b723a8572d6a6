// Package holds knows which models requests wait for in an endpoint picker, and wakes those that have no replicas.
//
//	Table         what waits now, and what waited until the pass before the last one: a request that came and went counts, too
//	Follower      finds the pickers of pools, and follows the stream of holds of each of their replicas: what waits, with each change.
//	              Of a picker without a stream, it reads the queues on the page of metrics each second
//	Waker         starts a model without replicas when a request waits for it
//	QueueWatcher  reads the queues of pickers from Prometheus, while a model could start
//
// The first request that waits for a model is reported at once, without a pass. Models that nobody declared are not kept.
package holds

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// evaluations is the number of passes for which a request counts that waits no more.
const evaluations = 2

// Table is what is known of requests that wait. Its methods are safe for concurrent use.
type Table struct {
	onHold []func(k snapshot.ModelKey)

	mu    sync.Mutex
	pass  int
	known map[snapshot.ModelKey]bool
	pools map[snapshot.PoolKey]map[string]requests // by the address of a replica of the picker
	ended map[snapshot.ModelKey]hold
}

// requests are the numbers of those that wait, by model.
type requests map[string]int

// hold is requests that waited.
type hold struct {
	requests int
	pass     int // the last one that had begun while they did
}

// NewTable returns an empty Table.
func NewTable() *Table {
	return &Table{
		known: map[snapshot.ModelKey]bool{}, pools: map[snapshot.PoolKey]map[string]requests{}, ended: map[snapshot.ModelKey]hold{},
	}
}

// OnHold registers a function to call for the first request that waits for a model. Call it before Observe.
func (t *Table) OnHold(f func(k snapshot.ModelKey)) { t.onHold = append(t.onHold, f) }

// SetModels begins a pass, with the models that it decides on, and returns the pools that have a model which was not known before: what
// waits for it has to be observed anew.
func (t *Table) SetModels(models []snapshot.ModelKey) (added []snapshot.PoolKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass++
	before, seen := t.known, map[snapshot.PoolKey]bool{}
	t.known = make(map[snapshot.ModelKey]bool, len(models))
	for _, k := range models {
		t.known[k] = true
		if !before[k] && !seen[k.PoolKey] {
			seen[k.PoolKey] = true
			added = append(added, k.PoolKey)
		}
	}
	maps.DeleteFunc(t.ended, func(k snapshot.ModelKey, h hold) bool { return !t.known[k] || t.pass-h.pass > evaluations })
	for k := range before {
		if !t.known[k] {
			for _, waiting := range t.pools[k.PoolKey] {
				delete(waiting, k.Model)
			}
		}
	}
	return added
}

// poolsOf returns the pools of all known models, in no order.
func (t *Table) poolsOf() []snapshot.PoolKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	pools := sets.New[snapshot.PoolKey]()
	for k := range t.known {
		pools.Insert(k.PoolKey)
	}
	return pools.UnsortedList()
}

// Observe replaces what a replica of a picker says of a pool: how many requests wait for each model.
func (t *Table) Observe(pool snapshot.PoolKey, address string, waiting map[string]int) {
	t.mu.Lock()
	now := make(requests, len(waiting))
	for model, n := range waiting {
		if n > 0 && t.known[pool.WithModel(model)] {
			now[model] = n
		}
	}
	first := t.replaceWaiting(pool, address, now)
	t.mu.Unlock()
	for _, model := range first {
		for _, f := range t.onHold {
			f(pool.WithModel(model))
		}
	}
}

// ForgetPicker removes what a replica of a picker said of a pool.
func (t *Table) ForgetPicker(pool snapshot.PoolKey, address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replaceWaiting(pool, address, nil)
	if delete(t.pools[pool], address); len(t.pools[pool]) == 0 {
		delete(t.pools, pool)
	}
}

// replaceWaiting replaces what a source says, and returns the models for which requests did not wait before.
func (t *Table) replaceWaiting(pool snapshot.PoolKey, address string, now requests) (first []string) {
	before := t.pools[pool][address]
	for model := range now {
		if t.sumWaiting(pool.WithModel(model)) == 0 {
			first = append(first, model)
		}
	}
	for model, n := range before {
		t.ended[pool.WithModel(model)] = hold{requests: n, pass: t.pass}
	}
	if t.pools[pool] == nil {
		t.pools[pool] = map[string]requests{}
	}
	t.pools[pool][address] = now
	return first
}

// sumWaiting returns how many requests wait for a model.
func (t *Table) sumWaiting(k snapshot.ModelKey) int {
	sum := 0
	for _, waiting := range t.pools[k.PoolKey] {
		sum += waiting[k.Model]
	}
	return sum
}

// CountWaiting returns how many requests wait for a model, and the most that waited at a time since the pass before the last one. watched
// reports whether a picker of its pool is observed.
func (t *Table) CountWaiting(k snapshot.ModelKey) (now, since int, watched bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now = t.sumWaiting(k)
	since = now
	if h, found := t.ended[k]; found && t.pass-h.pass <= evaluations {
		since = max(since, h.requests)
	}
	return now, since, len(t.pools[k.PoolKey]) > 0
}
