package ownership

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Ask is one claim that an owner requests.
type Ask struct {
	Claim

	// Live is the creation time of the oldest object that serves the claim; zero if there is none.
	Live time.Time
	// Ready means that the owner writes an object as soon as the claim is granted. A granted ready claim is held until the
	// owner's next Set.
	Ready bool
}

// Conflict is the reason for a refused claim.
type Conflict struct {
	Owner Owner
	Claim Claim
}

// Registry contains the claims of all owners.
type Registry struct {
	mu     sync.Mutex
	owners map[Owner]map[Claim]*ask
	hosts  map[string]*index
	queue  queue // claims to decide again, in order
}

// ask is one claim of one owner.
type ask struct {
	Ask

	owner   Owner
	created time.Time
	held    bool
	refused *Conflict // nil: granted
	queued  bool
}

// undecided is the answer to a new claim.
var undecided Conflict

// New returns a Registry without claims.
func New() *Registry {
	r := &Registry{}
	r.Clear()
	return r
}

// Clear drops all claims.
func (r *Registry) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owners, r.hosts, r.queue = map[Owner]map[Claim]*ask{}, map[string]*index{}, nil
}

// Set replaces the claims of an owner, with none for an owner that no longer exists. It returns the refused claims, and the
// other owners whose answer has changed, sorted.
func (r *Registry) Set(name Owner, created time.Time, asks []Ask) (refused map[Claim]Conflict, changed []Owner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replaceClaims(name, created, asks)
	changed = r.decideQueued()
	for _, a := range r.owners[name] {
		a.held = a.Ready && a.refused == nil // no owner loses a claim by this: it conflicts with no granted claim
	}
	changed = slices.DeleteFunc(changed, func(o Owner) bool { return o == name })
	return r.refusedClaims(name), changed
}

// Claims are the claims that one owner requests.
type Claims struct {
	Created time.Time
	Asks    []Ask
}

// SetAll replaces the claims of many owners at once: it grants nothing before all claims are known. Nothing is held.
func (r *Registry) SetAll(all map[Owner]Claims) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, c := range all {
		r.replaceClaims(name, c.Created, c.Asks)
	}
	r.decideQueued()
}

func (r *Registry) refusedClaims(name Owner) map[Claim]Conflict {
	var refused map[Claim]Conflict
	for c, a := range r.owners[name] {
		if a.refused == nil {
			continue
		}
		if refused == nil {
			refused = map[Claim]Conflict{}
		}
		refused[c] = *a.refused
	}
	return refused
}

// replaceClaims stores the claims of an owner, and queues the claims whose answer may change.
func (r *Registry) replaceClaims(name Owner, created time.Time, asks []Ask) {
	wanted := make(map[Claim]Ask, len(asks))
	for _, a := range asks {
		wanted[a.Claim] = wanted[a.Claim].mergeAsks(a)
	}
	known := r.owners[name]
	for c, a := range known {
		if _, found := wanted[c]; !found {
			r.removeClaim(a)
			delete(known, c)
		}
	}
	if known == nil && len(wanted) > 0 {
		known = map[Claim]*ask{}
		r.owners[name] = known
	}
	for c, w := range wanted {
		if a := known[c]; a != nil {
			r.updateClaim(a, w, created)
			continue
		}
		known[c] = &ask{Ask: w, owner: name, created: created, refused: &undecided}
		r.addClaim(known[c])
	}
	if len(known) == 0 {
		delete(r.owners, name)
	}
}

// mergeAsks combines two asks for the same claim.
func (a Ask) mergeAsks(b Ask) Ask {
	b.Ready = a.Ready || b.Ready
	if b.Live.IsZero() || !a.Live.IsZero() && a.Live.Before(b.Live) {
		b.Live = a.Live
	}
	return b
}

func (r *Registry) addClaim(a *ask) {
	x := r.hosts[a.Host]
	if x == nil {
		x = newIndex()
		r.hosts[a.Host] = x
	}
	x.addAsk(a)
	r.queue.pushAsk(a)
}

func (r *Registry) removeClaim(a *ask) {
	x := r.hosts[a.Host]
	x.eachConflict(a, r.queue.pushAsk)
	r.queue.dropQueued(a)
	if x.removeAsk(a); x.isEmpty() {
		delete(r.hosts, a.Host)
	}
}

// updateClaim moves a claim to its new place in the order. A granted claim that moves up changes nothing: every claim that conflicts
// with it is refused already.
func (r *Registry) updateClaim(a *ask, next Ask, created time.Time) {
	before := *a
	a.Ask, a.created, a.held = next, created, a.held && next.Ready
	switch moved := compareAsks(a, &before); {
	case moved < 0 && a.refused != nil:
		r.queue.pushAsk(a)
	case moved > 0:
		r.queue.pushAsk(a)
		r.hosts[a.Host].eachConflict(a, r.queue.pushAsk)
	}
}

// decideQueued decides all queued claims in order, and the consequences of each. It returns the owners whose answer has changed,
// sorted.
func (r *Registry) decideQueued() []Owner {
	heap.Init(&r.queue)
	changed := map[Owner]struct{}{}
	for len(r.queue) > 0 {
		a := heap.Pop(&r.queue).(*ask) //nolint:forcetypeassert // it contains only asks
		a.queued = false
		x := r.hosts[a.Host]
		before := a.refused
		if a.refused = x.findWinner(a); equalConflicts(before, a.refused) {
			continue
		}
		changed[a.owner] = struct{}{}
		if (before == nil) != (a.refused == nil) {
			x.eachConflict(a, func(other *ask) {
				if !other.queued && compareAsks(other, a) > 0 {
					other.queued = true
					heap.Push(&r.queue, other)
				}
			})
		}
	}
	return slices.SortedFunc(maps.Keys(changed), byName)
}

// findWinner returns the first granted claim, in the order of claims, that conflicts with a later one. It returns nil if no claim does.
func (x *index) findWinner(a *ask) *Conflict {
	var first *ask
	x.eachConflict(a, func(other *ask) {
		if other.refused == nil && compareAsks(other, a) < 0 && (first == nil || compareAsks(other, first) < 0) {
			first = other
		}
	})
	if first == nil {
		return nil
	}
	return &Conflict{Owner: first.owner, Claim: first.Claim}
}

func equalConflicts(a, b *Conflict) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// compareAsks orders claims: live, held, others; see the package comment.
func compareAsks(a, b *ask) int {
	return cmp.Or(
		cmp.Compare(a.askRank(), b.askRank()),
		a.Live.Compare(b.Live),
		a.created.Compare(b.created),
		byName(a.owner, b.owner),
		strings.Compare(a.Host, b.Host), strings.Compare(a.Path, b.Path), strings.Compare(a.Header, b.Header),
		strings.Compare(a.Value, b.Value),
	)
}

func (a *ask) askRank() int {
	switch {
	case !a.Live.IsZero():
		return 0
	case a.held:
		return 1
	}
	return 2
}

func byName(a, b Owner) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// queue is a heap of claims in their order, after decide has built it.
type queue []*ask

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return compareAsks(q[i], q[j]) < 0 }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *queue) Push(x any) { *q = append(*q, x.(*ask)) } //nolint:forcetypeassert // it contains only asks

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	a := (*q)[last]
	*q = (*q)[:last]
	return a
}

// pushAsk queues a claim once. decideQueued builds the heap.
func (q *queue) pushAsk(a *ask) {
	if !a.queued {
		a.queued = true
		*q = append(*q, a)
	}
}

// dropQueued removes a claim that no longer exists.
func (q *queue) dropQueued(a *ask) {
	if i := slices.Index(*q, a); i >= 0 {
		*q = slices.Delete(*q, i, i+1)
	}
}
