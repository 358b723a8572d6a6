package actor

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/wake"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// Key names a backend set.
type Key struct{ LoadBalancer, Set string }

// Wanted is what the owner of a backend set wants.
type Wanted struct {
	Endpoints []plan.Endpoint // each address once
	// Services are the Services of the endpoints, as namespace/name. Empty: unchanged, or not known.
	Services []string
	Weight   int
	// Weights are the weights of backends that have another one than Weight. It must not be changed.
	Weights  map[netip.AddrPort]int
	Maximum  int // active backends; 0: no limit but those of the load balancer
	Drain    plan.Drain
	Health   *plan.HealthChecker // nil: the set keeps its own
	Emptying bool                // the set loses all backends
	Retired  bool                // but no backend is removed while requests can reach the set, perhaps by a write in progress
	Watching bool                // the set is read and not written: its owner has not claimed it
	Limits   plan.Limits         // of the load balancer
	Claimed  time.Time           // when the owner took the set; zero: the owner created it
	// Since is when the first event that led to this Wanted was seen. It is for metrics.
	Since time.Time
}

// observer records what actors do.
type observer interface {
	// ObserveWorkRequest records the end of a work request: succeeded, failed or lost.
	ObserveWorkRequest(operation, result string, took time.Duration)
	// ObserveWrite records the time from an event to the end of the work request that it led to.
	ObserveWrite(took time.Duration)
	// ObserveInService records the time from the event of a new endpoint until the load balancer reports its backend as healthy.
	ObserveInService(took time.Duration)
	// ObserveReport records the state of a backend set. A nil report removes it.
	ObserveReport(key Key, r *Report)
	// CountConflict counts a write that was refused with 409 or 412.
	CountConflict(code string)
}

// Params holds the arguments of New.
type Params struct {
	Client   *ociapi.Client
	Observer observer
	Clock    clock.WithTicker
	Log      *zap.Logger
	// Verify is the time between two reads of a load balancer that nothing changes.
	Verify time.Duration
	// MayWrite returns an error if this replica may have lost the leadership. It is called immediately before each write.
	MayWrite  func() error
	Occupants Occupants
	// Changed is called when the report of a set has changed.
	Changed func(Key)
	// Jitter returns a random number from 0 to 1.
	Jitter func() float64
}

// Occupants returns the ready endpoints of other Services than own at the IP address of a backend.
type Occupants func(backend netip.AddrPort, own []string) []plan.Occupant

// Actors are the actors of all load balancers.
type Actors struct {
	p Params

	mu     sync.Mutex // guards the following, and the inboxes
	term   *term      // nil while this replica does not lead
	actors map[string]*actor
}

// term is a period in which this replica leads.
type term struct {
	work  context.Context // no new request after it ends
	lease context.Context // requests end with it
	group sync.WaitGroup
}

// New returns Actors without sets, which do nothing before StartTerm.
func New(p Params) *Actors { return &Actors{p: p, actors: map[string]*actor{}} }

// StartTerm begins a term. Actors work until ctx ends, which lets a request in progress finish, or until lease ends. wait returns after
// that, when all sets are forgotten.
func (a *Actors) StartTerm(ctx, lease context.Context) (wait func()) {
	current := &term{work: ctx, lease: lease}
	a.mu.Lock()
	a.term = current
	a.mu.Unlock()
	return func() {
		<-ctx.Done()
		a.mu.Lock()
		ended := a.actors
		a.term, a.actors = nil, map[string]*actor{}
		a.mu.Unlock()
		current.group.Wait()
		for _, lbActor := range ended {
			lbActor.clearMetrics()
		}
	}
}

// WantSet replaces what the owner of a set wants. It does nothing while this replica does not lead.
func (a *Actors) WantSet(key Key, w *Wanted) {
	a.tellActor(key.LoadBalancer, func(i *inbox) (changed bool) {
		before := i.sets[key.Set]
		if changed = before == nil || !before.isSameAs(w); changed {
			i.sets[key.Set] = w
		}
		return changed
	})
}

// tellActor changes the inbox of the actor of a load balancer, which it starts if necessary, and wakes it after a change. It does nothing
// while this replica does not lead.
func (a *Actors) tellActor(id string, change func(*inbox) (changed bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.term == nil {
		return
	}
	lbActor := a.actors[id]
	if lbActor == nil {
		lbActor = newActor(&a.p, &a.mu, id)
		a.actors[id] = lbActor
		current := a.term
		current.group.Go(func() { lbActor.runLoop(current.work, current.lease) })
	}
	if change(&lbActor.inbox) {
		lbActor.wake.Send()
	}
}

// DropSet forgets a set, and leaves it as it is.
func (a *Actors) DropSet(key Key) {
	a.dropFrom(key.LoadBalancer, func(i *inbox) {
		delete(i.sets, key.Set)
		delete(i.reports, key.Set)
	})
	a.p.Observer.ObserveReport(key, nil)
}

// dropFrom lets the actor of a load balancer forget something. It ends an actor without a set and a layout.
func (a *Actors) dropFrom(id string, forget func(*inbox)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	lbActor := a.actors[id]
	if lbActor == nil {
		return
	}
	forget(&lbActor.inbox)
	lbActor.wake.Send()
	if len(lbActor.inbox.sets) == 0 && lbActor.layout == nil {
		delete(a.actors, id)
		close(lbActor.quit)
	}
}

// BackendSetReport returns the report of a set. It returns nil until the actor has planned with the newest Wanted.
func (a *Actors) BackendSetReport(key Key) *Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	lbActor := a.actors[key.LoadBalancer]
	if lbActor == nil {
		return nil
	}
	desired, r := lbActor.inbox.sets[key.Set], lbActor.reports[key.Set]
	if desired == nil || r == nil || r.wanted != desired {
		return nil
	}
	return r
}

// RecheckAddresses tells the actors whose load balancers have backends of these addresses that the endpoints there have changed.
func (a *Actors) RecheckAddresses(addresses []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, lbActor := range a.actors {
		if slices.ContainsFunc(addresses, func(ip string) bool { return lbActor.addresses[ip] }) {
			lbActor.wake.Send()
		}
	}
}

// inbox is what other goroutines share with an actor.
type inbox struct {
	mu      *sync.Mutex // of Actors
	sets    map[string]*Wanted
	reports map[string]*Report
	layout  *WantedLayout // nil: the actor has none
	report  *LayoutReport
	wake    wake.Signal

	addresses map[string]bool // of the backends that the load balancer had when it was read last
}

// isSameAs reports whether two desired states are equal, except for the event that led to them.
func (w *Wanted) isSameAs(other *Wanted) bool {
	return slices.Equal(w.Endpoints, other.Endpoints) && slices.Equal(w.Services, other.Services) && w.Claimed.Equal(other.Claimed) &&
		maps.Equal(w.Weights, other.Weights) && w.Weight == other.Weight && w.Maximum == other.Maximum && w.Drain == other.Drain &&
		w.Emptying == other.Emptying && w.Retired == other.Retired && w.Watching == other.Watching && w.Limits == other.Limits &&
		ptr.Equal(w.Health, other.Health)
}

// weightOf returns the weight of a backend.
func (w *Wanted) weightOf(address netip.AddrPort) int {
	if own, found := w.Weights[address]; found {
		return own
	}
	return w.Weight
}

func (i *inbox) watchAddresses(addresses map[string]bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.addresses = addresses
}

// backoff is an exponential delay with jitter.
type backoff struct {
	first, last time.Duration
}

// delayAfter returns the delay after n failures in a row: 75 % to 125 % of first, doubled with each failure after the first.
func (b backoff) delayAfter(n int, jitter float64) time.Duration {
	const maxDoublings = 20
	d := min(b.first<<min(max(n-1, 0), maxDoublings), b.last)
	return time.Duration(float64(d) * (0.75 + jitter/2))
}

// Delays after failures: see the package comment.
var (
	afterBusy       = backoff{2 * time.Second, 30 * time.Second}
	afterStale      = backoff{500 * time.Millisecond, 10 * time.Second}
	afterThrottled  = backoff{time.Second, time.Minute}
	afterNoAccess   = backoff{10 * time.Second, 5 * time.Minute}
	afterNotFound   = backoff{30 * time.Second, 5 * time.Minute}
	afterRefused    = backoff{time.Minute, 10 * time.Minute}
	afterOutage     = backoff{time.Second, time.Minute}
	afterFailedWork = backoff{time.Second, 10 * time.Minute}
	betweenRepairs  = backoff{10 * time.Second, 10 * time.Minute}
	betweenListings = backoff{time.Second, 5 * time.Second}
)

// earlierTime returns the earlier of two times, of which zero means never.
func earlierTime(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
