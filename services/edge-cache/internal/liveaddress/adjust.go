// Package liveaddress changes EndpointSlices between the API server and the clients of the cache: it holds endpoints of silent nodes in service (package brownout), and replaces
// addresses that died in a reboot of the node while the cloud was away (openyurt#2810).
//
// Input: slices with the endpoints of the pool, Nodes, and the addresses that the node's container runtime reports, or that package probe guesses. Output: changed slices, and requests to show slices
// again.
//
// An address is replaced only if all of this holds:
//
//   - the endpoint names a pod (targetRef) of the slice's namespace that has a ready sandbox on this node: by its UID, or a static pod by its name, because
//     the UID in the API server is that of its mirror
//   - none of the pod's addresses in the slice's family is the endpoint's address
//   - the runtime said so after the slice came: what was asked earlier may be older than the slice
//
// A slice that has the right address is never touched: neither one that the API server has updated meanwhile, nor one that Yurthub has rewritten.
package liveaddress

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/services/edge-cache/internal/brownout"
	"fairlead.dev/services/edge-cache/internal/cri"
	"fairlead.dev/services/edge-cache/internal/probe"
)

// Reprojector shows slices again, by a call of AdjustSlice and a new resourceVersion if they look different. AdjustSlice must not call it.
type Reprojector interface {
	ReprojectSlices(keys ...string)
	ReprojectNode(name string)
}

// podLister reports the live pods of the node by UID.
type podLister interface {
	ListPods(ctx context.Context) (map[string]cri.Pod, error)
}

// pollInterval is how often the runtime is asked: a list of the node's sandboxes takes it a millisecond. After a reboot the addresses are right at most one interval, and
// one more to confirm, after the pods run; the promise is 10 s.
const pollInterval = 2 * time.Second

// maxMismatches bounds what is remembered of wrong addresses: endpoints of one node, in all its slices. A node has some hundred pods.
const maxMismatches = 10_000

// Params are the parts of an Adjuster.
type Params struct {
	// Runtime is nil without --cri-socket, and Prober without --probe-addresses.
	Runtime *cri.Client
	Prober  *probe.Prober
	// NodeName is the node of this process.
	NodeName string
	Log      *zap.Logger
	// Clock is time.Now if it is nil.
	Clock func() time.Time
}

// Adjuster changes slices. Its methods are safe for concurrent use.
type Adjuster struct {
	brownouts    *brownout.Tracker
	source       podLister
	prober       *probe.Prober
	node         string
	log          *zap.Logger
	clock        func() time.Time
	holdsChanged chan struct{} // the next expiry of a hold may have changed
	pollNow      chan struct{} // an address is wrong: ask the runtime now

	mu            sync.Mutex
	pods          map[string]cri.Pod
	static        map[types.NamespacedName]string // UIDs of static pods
	slicesByStale map[stale]map[string]struct{}   // addresses to confirm or to replace, and the slices that have them
	liveByStale   map[stale]netip.Addr            // confirmed
	staleBySlice  map[string]map[stale]struct{}   // reverse of wrong
	pollFailed    bool                            // the last poll
}

// stale is an address that a pod does not have.
type stale struct {
	uid     string // of the runtime
	address string
}

// New returns an Adjuster. Run makes it live.
func New(p Params) *Adjuster {
	a := &Adjuster{
		brownouts: brownout.New(), node: p.NodeName, log: p.Log, clock: p.Clock, holdsChanged: make(chan struct{}, 1), pollNow: make(chan struct{}, 1),
		slicesByStale: map[stale]map[string]struct{}{}, liveByStale: map[stale]netip.Addr{}, staleBySlice: map[string]map[stale]struct{}{},
	}
	switch {
	case p.Runtime != nil:
		a.source = p.Runtime
	case p.Prober != nil:
		a.source, a.prober = p.Prober, p.Prober
	}
	if a.clock == nil {
		a.clock = time.Now
	}
	if a.log == nil {
		a.log = zap.NewNop()
	}
	return a
}

// AdjustSlice changes a slice in place, and returns whether it did.
func (a *Adjuster) AdjustSlice(key string, s *discoveryv1.EndpointSlice) bool {
	rewritten := a.replaceAddresses(key, s)
	held := a.brownouts.AdjustConditions(key, s, a.clock())
	return rewritten || held
}

// TurnsUnready reports whether AdjustSlice would show an endpoint unready that clients see ready.
func (a *Adjuster) TurnsUnready(key string, s *discoveryv1.EndpointSlice) bool {
	return a.brownouts.TurnsUnready(key, s, a.clock())
}

// DeleteObject forgets a slice.
func (a *Adjuster) DeleteObject(key string) {
	a.brownouts.DeleteObject(key)
	if a.prober != nil {
		a.prober.ForgetSlice(key)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgetSlice(key, nil)
}

// ObjectState returns what must be persisted of a slice; empty if nothing.
func (a *Adjuster) ObjectState(key string) []byte { return a.brownouts.ObjectState(key) }

// RestoreObject takes what ObjectState returned in an earlier process, before the first AdjustSlice of the slice.
func (a *Adjuster) RestoreObject(key string, state []byte) error {
	return a.brownouts.RestoreObject(key, state)
}

// UpdateNode takes a Node of the pool. It returns whether slices with endpoints on it must be shown again.
func (a *Adjuster) UpdateNode(n *corev1.Node) bool {
	if a.prober != nil {
		a.prober.SetNode(n)
	}
	changed := a.brownouts.SetNode(n, a.clock())
	if changed {
		wakeUp(a.holdsChanged)
	}
	return changed
}

// DeleteNode takes the name of a Node that is gone, or has left the pool.
func (a *Adjuster) DeleteNode(name string) { a.brownouts.DeleteNode(name) }

// HeldEndpoints returns the number of endpoints that are held in service.
func (a *Adjuster) HeldEndpoints() int { return a.brownouts.HeldEndpoints() }

// ReplacedAddresses returns the number of addresses that are replaced now.
func (a *Adjuster) ReplacedAddresses() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.liveByStale)
}

func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run asks the runtime for addresses and ends holds, until ctx ends.
func (a *Adjuster) Run(ctx context.Context, r Reprojector) {
	var group sync.WaitGroup
	group.Go(func() { a.expireHolds(ctx, r) })
	if a.source != nil {
		group.Go(func() { a.pollRuntime(ctx, r) })
	}
	group.Wait()
}

// expireHolds shows slices again when the time after a silence of their node is over.
func (a *Adjuster) expireHolds(ctx context.Context, r Reprojector) {
	for {
		for _, name := range a.brownouts.ExpireHolds(a.clock()) {
			r.ReprojectNode(name)
		}
		wait := time.Hour
		if next, ok := a.brownouts.NextExpiry(); ok {
			wait = next.Sub(a.clock())
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-a.holdsChanged:
			timer.Stop()
		case <-timer.C:
		}
	}
}

func (a *Adjuster) pollRuntime(ctx context.Context, r Reprojector) {
	for {
		a.pollPods(ctx, r)
		timer := time.NewTimer(pollInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-a.pollNow:
			timer.Stop()
		}
	}
}

// pollPods asks once. A wrong address takes two polls: the first one discovers it, the second one confirms it.
func (a *Adjuster) pollPods(ctx context.Context, r Reprojector) {
	suspects := a.staleAddresses()
	pods, err := a.source.ListPods(ctx)
	if ctx.Err() != nil {
		return
	}
	a.reportPoll(err)
	if err != nil {
		return // the last answer counts until there is another one
	}
	moved := a.setPods(pods)
	if keys := a.confirmStale(suspects, pods); len(keys) > 0 {
		r.ReprojectSlices(keys...)
	}
	if moved {
		r.ReprojectNode(a.node)
	}
}

// staleAddresses returns the wrong addresses that slices had before the runtime was asked.
func (a *Adjuster) staleAddresses() []stale {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.slicesByStale))
}

func (a *Adjuster) reportPoll(err error) {
	a.mu.Lock()
	before := a.pollFailed
	a.pollFailed = err != nil
	a.mu.Unlock()
	if err != nil && !before {
		a.log.Warn("Live addresses are not available: check that the socket of the container runtime is mounted and readable", zap.Error(err))
	}
	if err == nil && before {
		a.log.Info("Live addresses are available again")
	}
}

// confirmStale takes the answer to a question that was asked after the suspects were known. It returns the slices that look different now.
func (a *Adjuster) confirmStale(suspects []stale, pods map[string]cri.Pod) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	keys := map[string]struct{}{}
	for _, id := range suspects {
		live, wrong := liveAddress(id.address, pods[id.uid].Addresses)
		before, was := a.liveByStale[id]
		switch {
		case a.slicesByStale[id] == nil || wrong == was && live == before:
			continue
		case wrong:
			a.liveByStale[id] = live
			a.log.Info("Replaced the address of a pod whose node restarted", zap.String("podUID", id.uid), zap.String("stale", id.address), zap.Stringer("live", live))
		default:
			delete(a.liveByStale, id)
		}
		maps.Copy(keys, a.slicesByStale[id])
	}
	return slices.Sorted(maps.Keys(keys))
}

// setPods takes the live pods. It returns whether one of them is new, or has another address.
func (a *Adjuster) setPods(pods map[string]cri.Pod) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.pods
	a.pods, a.static = pods, map[types.NamespacedName]string{}
	for uid, pod := range pods {
		if pod.Static {
			a.static[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = uid
		}
	}
	for uid, pod := range pods {
		if !slices.Equal(before[uid].Addresses, pod.Addresses) {
			return true
		}
	}
	return false
}
