// Package liveaddress replaces addresses in EndpointSlices that died in a reboot of the node while the cloud was away (openyurt#2810).
//
// Input: slices with the endpoints of the pool, the Node of this process, and the addresses that the node's container runtime reports, or
// that a Prober guesses. Output: changed slices, and requests to show slices again.
//
// An address is replaced only if all of this holds:
//
//   - the endpoint names a pod (targetRef) of the slice's namespace that has a ready sandbox on this node: by its UID, or a static pod by
//     its name, because the UID in the API server is that of its mirror
//   - none of the pod's addresses in the slice's family is the endpoint's address
//   - the runtime said so after the slice came: what was asked earlier may be older than the slice
//
// A slice that has the right address is never touched: neither one that the API server has updated meanwhile, nor one that Yurthub has
// rewritten.
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
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/wake"
)

// Reprojector shows slices again, by a call of ReplaceAddresses and a new resourceVersion if they look different. ReplaceAddresses must not
// call it.
type Reprojector interface {
	ReprojectSlices(keys ...string)
	ReprojectNode(name string)
}

// podLister reports the live pods of the node by UID.
type podLister interface {
	ListPods(ctx context.Context) (map[string]Pod, error)
}

// pollInterval is how often the runtime is asked: a list of the node's sandboxes takes it a millisecond. After a reboot the addresses are
// right at most one interval, and one more to confirm, after the pods run; the promise is 10 s. The runtime is polled because its events
// are optional (GetContainerEvents) and say nothing about addresses, and because a Prober has no events at all.
const pollInterval = 2 * time.Second

// maxMismatches bounds what is remembered of wrong addresses: endpoints of one node, in all its slices. A node has some hundred pods.
const maxMismatches = 10_000

// Params are the parts of a Replacer. Without a Runtime (--cri-socket) and a Prober (--probe-addresses), nothing is replaced.
type Params struct {
	Runtime podLister
	Prober  *Prober
	// NodeName is the node of this process.
	NodeName string
	Log      *zap.Logger
}

// Replacer replaces addresses in slices. Its methods are safe for concurrent use.
type Replacer struct {
	source  podLister
	prober  *Prober
	node    string
	log     *zap.Logger
	pollNow wake.Signal // an address is stale: ask the runtime now

	pollFailed bool // the last poll; of the goroutine that polls

	mu            sync.Mutex
	pods          map[string]Pod
	static        map[types.NamespacedName]string // UIDs of static pods
	slicesByStale map[stale]map[string]struct{}   // addresses to confirm or to replace, and the slices that have them
	liveByStale   map[stale]netip.Addr            // confirmed
	staleBySlice  map[string]map[stale]struct{}   // reverse of slicesByStale
}

// stale is an address that a pod does not have.
type stale struct {
	uid     string // of the runtime
	address string
}

// New returns a Replacer. Run asks the runtime.
func New(p Params) *Replacer {
	r := &Replacer{
		node: p.NodeName, log: p.Log, pollNow: wake.NewSignal(),
		slicesByStale: map[stale]map[string]struct{}{}, liveByStale: map[stale]netip.Addr{}, staleBySlice: map[string]map[stale]struct{}{},
	}
	switch {
	case p.Runtime != nil:
		r.source = p.Runtime
	case p.Prober != nil:
		r.source, r.prober = p.Prober, p.Prober
	}
	if r.log == nil {
		r.log = zap.NewNop()
	}
	return r
}

// SetNode takes a Node of the pool.
func (r *Replacer) SetNode(n *corev1.Node) {
	if r.prober != nil {
		r.prober.SetNode(n)
	}
}

// ForgetSlice forgets a slice.
func (r *Replacer) ForgetSlice(key string) {
	if r.prober != nil {
		r.prober.ForgetSlice(key)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeSlice(key, nil)
}

// ReplacedAddresses returns the number of addresses that are replaced now.
func (r *Replacer) ReplacedAddresses() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.liveByStale)
}

// Run asks the runtime for addresses until ctx ends.
func (r *Replacer) Run(ctx context.Context, reprojector Reprojector) {
	if r.source == nil {
		return
	}
	for {
		r.pollPods(ctx, reprojector)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollInterval):
		case <-r.pollNow:
		}
	}
}

// pollPods asks once. A wrong address takes two polls: the first one discovers it, the second one confirms it.
func (r *Replacer) pollPods(ctx context.Context, reprojector Reprojector) {
	suspects := r.staleAddresses()
	pods, err := r.source.ListPods(ctx)
	if ctx.Err() != nil {
		return
	}
	r.reportPoll(err)
	if err != nil {
		return // the last answer counts until there is another one
	}
	moved := r.setPods(pods)
	if keys := r.confirmStale(suspects, pods); len(keys) > 0 {
		reprojector.ReprojectSlices(keys...)
	}
	if moved {
		reprojector.ReprojectNode(r.node)
	}
}

// staleAddresses returns the wrong addresses that slices had before the runtime was asked.
func (r *Replacer) staleAddresses() []stale {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.slicesByStale))
}

func (r *Replacer) reportPoll(err error) {
	before := r.pollFailed
	r.pollFailed = err != nil
	if err != nil && !before {
		r.log.Warn("Live addresses are not available: check that the socket of the container runtime is mounted and readable",
			zap.Error(err))
	}
	if err == nil && before {
		r.log.Info("Live addresses are available again")
	}
}

// confirmStale takes the answer to a question that was asked after the suspects were known. It returns the slices that look different now.
func (r *Replacer) confirmStale(suspects []stale, pods map[string]Pod) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := map[string]struct{}{}
	for _, id := range suspects {
		live, wrong := liveAddress(id.address, pods[id.uid].Addresses)
		before, was := r.liveByStale[id]
		switch {
		case r.slicesByStale[id] == nil || wrong == was && live == before:
			continue
		case wrong:
			r.liveByStale[id] = live
			r.log.Info("Replaced the address of a pod whose node restarted",
				zap.String("podUID", id.uid), zap.String("stale", id.address), zap.Stringer("live", live))
		default:
			delete(r.liveByStale, id)
		}
		maps.Copy(keys, r.slicesByStale[id])
	}
	return slices.Sorted(maps.Keys(keys))
}

// setPods takes the live pods. It returns whether one of them is new, or has another address.
func (r *Replacer) setPods(pods map[string]Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.pods
	r.pods, r.static = pods, map[types.NamespacedName]string{}
	for uid, pod := range pods {
		if pod.Static {
			r.static[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = uid
		}
	}
	for uid, pod := range pods {
		if !slices.Equal(before[uid].Addresses, pod.Addresses) {
			return true
		}
	}
	return false
}
