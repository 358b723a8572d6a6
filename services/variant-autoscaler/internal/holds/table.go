// Package holds knows which models requests wait for in an endpoint picker.
//
//	Table      what waits now, and what waited until the pass before the last one: a request that came and went counts, too
//	Follower   finds the pickers of pools, and follows the stream of holds of each of their replicas: what waits, with each change.
//	           Of a picker without a stream, it reads the queues on the page of metrics each second
//
// The first request that waits for a model is reported at once, without a pass. Models that nobody declared are not kept.
package holds

import (
	"cmp"
	"sync"
)

// evaluations is the number of passes for which a request counts that waits no more.
const evaluations = 2

// Pool is an InferencePool.
type Pool struct{ Namespace, Name string }

func (p Pool) compareTo(o Pool) int {
	return cmp.Or(cmp.Compare(p.Namespace, o.Namespace), cmp.Compare(p.Name, o.Name))
}

// Key is a model behind an InferencePool.
type Key struct {
	Pool

	Model string
}

// Table is what is known of requests that wait. Its methods are safe for concurrent use.
type Table struct {
	onHold []func(k Key)

	mu    sync.Mutex
	pass  int
	known map[Key]bool
	pools map[Pool]map[string]requests // by the address of a replica of the picker
	ended map[Key]hold
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
	return &Table{known: map[Key]bool{}, pools: map[Pool]map[string]requests{}, ended: map[Key]hold{}}
}

// OnHold registers a function to call for the first request that waits for a model. Call it before Observe.
func (t *Table) OnHold(f func(k Key)) { t.onHold = append(t.onHold, f) }

// SetModels begins a pass, with the models that it decides on, and returns the pools that have a model which was not known before: what
// waits for it has to be observed anew.
func (t *Table) SetModels(models []Key) (added []Pool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass++
	before, seen := t.known, map[Pool]bool{}
	t.known = make(map[Key]bool, len(models))
	for _, k := range models {
		t.known[k] = true
		if !before[k] && !seen[k.Pool] {
			seen[k.Pool] = true
			added = append(added, k.Pool)
		}
	}
	for k, h := range t.ended {
		if !t.known[k] || t.pass-h.pass > evaluations {
			delete(t.ended, k)
		}
	}
	for k := range before {
		if !t.known[k] {
			for _, waiting := range t.pools[k.Pool] {
				delete(waiting, k.Model)
			}
		}
	}
	return added
}

// poolsOf returns the pools of all known models, in no order.
func (t *Table) poolsOf() []Pool {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := map[Pool]bool{}
	var pools []Pool
	for k := range t.known {
		if !seen[k.Pool] {
			seen[k.Pool] = true
			pools = append(pools, k.Pool)
		}
	}
	return pools
}

// Observe replaces what a replica of a picker says of a pool: how many requests wait for each model.
func (t *Table) Observe(pool Pool, address string, waiting map[string]int) {
	t.mu.Lock()
	now := make(requests, len(waiting))
	for model, n := range waiting {
		if n > 0 && t.known[Key{pool, model}] {
			now[model] = n
		}
	}
	first := t.replaceWaiting(pool, address, now)
	t.mu.Unlock()
	for _, model := range first {
		for _, f := range t.onHold {
			f(Key{pool, model})
		}
	}
}

// ForgetPicker removes what a replica of a picker said of a pool.
func (t *Table) ForgetPicker(pool Pool, address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replaceWaiting(pool, address, nil)
	if delete(t.pools[pool], address); len(t.pools[pool]) == 0 {
		delete(t.pools, pool)
	}
}

// replaceWaiting replaces what a source says, and returns the models for which requests did not wait before.
func (t *Table) replaceWaiting(pool Pool, address string, now requests) (first []string) {
	before := t.pools[pool][address]
	for model := range now {
		if t.sumWaiting(Key{pool, model}) == 0 {
			first = append(first, model)
		}
	}
	for model, n := range before {
		t.ended[Key{pool, model}] = hold{requests: n, pass: t.pass}
	}
	if t.pools[pool] == nil {
		t.pools[pool] = map[string]requests{}
	}
	t.pools[pool][address] = now
	return first
}

// sumWaiting returns how many requests wait for a model.
func (t *Table) sumWaiting(k Key) int {
	sum := 0
	for _, waiting := range t.pools[k.Pool] {
		sum += waiting[k.Model]
	}
	return sum
}

// CountWaiting returns how many requests wait for a model, and the most that waited at a time since the pass before the last one. watched
// reports whether a picker of its pool is observed.
func (t *Table) CountWaiting(k Key) (now, since int, watched bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now = t.sumWaiting(k)
	since = now
	if h, found := t.ended[k]; found && t.pass-h.pass <= evaluations {
		since = max(since, h.requests)
	}
	return now, since, len(t.pools[k.Pool]) > 0
}
