// Package brownout keeps endpoints in service through a brown-out: the node lost its connection to the control plane, its pods are fine,
// and the control plane has marked all of them unready.
//
// Input: Nodes, EndpointSlices with the endpoints of the pool, the time. Output: the slices with the conditions that clients should see.
// The package is pure: it waits for nothing, and the same calls have the same results.
//
//	endpoint in the new slice       its node                                        shown
//	ready, or terminating           any                                             as it is
//	unready, was shown ready        silent (Ready is Unknown)                       ready: held
//	unready, was shown ready        turned Ready less than 60 s ago                 ready: held
//	unready, was shown ready        turned NotReady from silent, less than 5 min    ready: held
//	unready, was shown ready        any other                                       unready; held after all if the node
//	                                                                                turns silent within 10 s
//	unready, was not shown ready    any                                             unready
//
// A hold does not end when the Node turns Ready: the kubelet repairs the readiness of its pods on its next sync, which is up to 10 s later,
// and the EndpointSlice controller follows. Without the 60 s every reconnection would empty the pool.
//
// Invariants: state is at most eight bytes for each endpoint that is shown ready, and some more for held ones, so its size follows that of
// the slices. No time is persisted: a clock that starts in 1970 does no harm.
package brownout

import (
	"cmp"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

const (
	// HoldAfterReady is how long endpoints are held after their Node turned Ready. The kubelet needs up to 10 s, a control plane with a
	// backlog a few times that. A pod that died during the outage gets requests for as long.
	HoldAfterReady = time.Minute
	// HoldAfterNotReady is the same for a Node that answers again but is not ready, as after a reboot. Kubernetes evicts pods from such a
	// node after 300 s by default.
	HoldAfterNotReady = 5 * time.Minute
	// ReorderWindow is how much later than a slice its Node may arrive if no slice could wait for it: they come by different watches. A
	// node turns silent after 40 s without a word, so an endpoint that turned unready within 10 s before was not reported by its kubelet.
	ReorderWindow = 10 * time.Second
)

// Tracker decides which endpoints are held. Its methods are safe for concurrent use.
type Tracker struct {
	mu     sync.Mutex
	nodes  map[string]*node
	slices map[string]*slice
	// services finds an endpoint that moved from one slice of its service to another one.
	services map[string]map[string]struct{}
}

type node struct {
	silent     bool
	ready      bool
	transition time.Time // of the Ready condition, as the control plane wrote it: only compared with itself
	until      time.Time // end of the time after a silence; zero if there was none
}

// slice is what is known of one EndpointSlice. An endpoint is a hash of its identity; the lowest bit says whether it was serving.
type slice struct {
	service  string
	ready    []uint64       // sorted: shown ready
	held     []uint64       // sorted: shown ready although they are not
	recent   []unreadySince // turned unready a short time ago and were shown so
	restored bool           // held comes from an earlier process, which knew that the nodes were silent
}

type unreadySince struct {
	endpoint uint64
	at       time.Time
}

// New returns a Tracker that knows nothing.
func New() *Tracker {
	return &Tracker{nodes: map[string]*node{}, slices: map[string]*slice{}, services: map[string]map[string]struct{}{}}
}

// SetNode records the state of a Node of the pool. It returns whether slices with endpoints on that node may look different now.
func (k *Tracker) SetNode(n *corev1.Node, now time.Time) bool {
	next := newNode(n)
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.nodes[n.Name]
	k.nodes[n.Name] = next
	if before == nil {
		return next.silent
	}
	next.until = before.holdUntil(next, now)
	return before.silent != next.silent || !before.until.Equal(next.until)
}

// holdUntil returns the end of the time after a silence, when a Node turns from one state to the next.
func (n *node) holdUntil(next *node, now time.Time) time.Time {
	// A Node that was silent and came back while the cache was not running or not connected has another transition time.
	missed := n.ready && !n.transition.Equal(next.transition)
	recovering := !n.ready && !n.until.IsZero()
	switch {
	case next.silent:
		return time.Time{}
	case next.ready && (n.silent || missed || recovering):
		return now.Add(HoldAfterReady)
	case !next.ready && n.silent:
		return now.Add(HoldAfterNotReady)
	}
	return n.until
}

// DeleteNode forgets a Node that is gone or has left the pool.
func (k *Tracker) DeleteNode(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.nodes, name)
}

// newNode reads the Ready condition. A Node without one has not spoken yet: that is not silence.
func newNode(n *corev1.Node) *node {
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if c.Type == corev1.NodeReady {
			return &node{
				silent: c.Status == corev1.ConditionUnknown, ready: c.Status == corev1.ConditionTrue, transition: c.LastTransitionTime.Time,
			}
		}
	}
	return &node{}
}

// isNodeHeld says whether endpoints of a node are held now.
func (k *Tracker) isNodeHeld(name string, now time.Time) bool {
	n := k.nodes[name]
	return n != nil && (n.silent || now.Before(n.until))
}

// AdjustConditions changes the conditions of held endpoints in place. It returns whether there are any.
func (k *Tracker) AdjustConditions(key string, s *discoveryv1.EndpointSlice, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.slices[key]
	if before == nil {
		before = &slice{}
	}
	after := &slice{service: serviceOf(s)}
	for i := range s.Endpoints {
		k.adjustEndpoint(&s.Endpoints[i], before, after, now)
	}
	slices.Sort(after.ready)
	slices.Sort(after.held)
	k.replaceSlice(key, before, after)
	return len(after.held) > 0
}

// TurnsUnready reports whether AdjustConditions would show an endpoint unready that clients see ready. A Node that turned silent before is
// no longer too late then.
func (k *Tracker) TurnsUnready(key string, s *discoveryv1.EndpointSlice, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, service := k.slices[key], serviceOf(s)
	if before == nil {
		before = &slice{}
	}
	return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
		if ready, _ := endpointConditions(&e); ready || isTerminating(&e) || e.NodeName == nil || k.isNodeHeld(*e.NodeName, now) {
			return false
		}
		id := endpointID(&e)
		if _, held := findEndpoint(before.held, id); held && before.restored {
			return false
		}
		_, shown := k.shownReady(id, before, service)
		return shown
	})
}

func (k *Tracker) adjustEndpoint(e *discoveryv1.Endpoint, before, after *slice, now time.Time) {
	id := endpointID(e)
	ready, serving := endpointConditions(e)
	if isTerminating(e) {
		return
	}
	if ready {
		after.ready = append(after.ready, withServing(id, serving))
		return
	}
	good, wasGood := k.shownReady(id, before, after.service)
	at := now
	if !wasGood {
		if good, at, wasGood = before.recentlyReady(id, now); !wasGood {
			return
		}
	}
	name := ""
	if e.NodeName != nil {
		name = *e.NodeName
	}
	if _, held := findEndpoint(before.held, id); held && before.restored {
		k.resumeHold(name, now)
	}
	if !k.isNodeHeld(name, now) {
		after.recent = append(after.recent, unreadySince{endpoint: good, at: at})
		return
	}
	show := true
	wasServing := good&1 == 1
	e.Conditions.Ready, e.Conditions.Serving = &show, &wasServing
	after.ready, after.held = append(after.ready, good), append(after.held, good)
}

// resumeHold continues a hold of an earlier process. What that process knew about the time after a silence is gone, so it begins again.
func (k *Tracker) resumeHold(name string, now time.Time) {
	if n := k.nodes[name]; n != nil && !n.silent && n.until.IsZero() {
		n.until = now.Add(HoldAfterReady)
	}
}

// maxSearched bounds the search for an endpoint that moved: slices of one service with endpoints of the pool. More of them would make the
// work quadratic in what a tenant may create; 64 slices are 6400 endpoints of one service in one pool.
const maxSearched = 64

// shownReady finds an endpoint among those that were shown ready: in the slice itself, else in another slice of the service.
func (k *Tracker) shownReady(id uint64, before *slice, service string) (uint64, bool) {
	if good, ok := findEndpoint(before.ready, id); ok {
		return good, true
	}
	if service == "" || len(k.services[service]) > maxSearched {
		return 0, false
	}
	for key := range k.services[service] {
		if other := k.slices[key]; other != before {
			if good, ok := findEndpoint(other.ready, id); ok {
				return good, true
			}
		}
	}
	return 0, false
}

func (s *slice) recentlyReady(id uint64, now time.Time) (uint64, time.Time, bool) {
	for _, r := range s.recent {
		if r.endpoint|1 == id|1 && now.Sub(r.at) <= ReorderWindow {
			return r.endpoint, r.at, true
		}
	}
	return 0, time.Time{}, false
}

func (k *Tracker) replaceSlice(key string, before, after *slice) {
	if before.service != after.service {
		k.forgetService(key, before.service)
	}
	if len(after.ready) == 0 && len(after.recent) == 0 {
		k.forgetService(key, after.service)
		delete(k.slices, key)
		return
	}
	k.slices[key] = after
	if after.service == "" {
		return
	}
	if k.services[after.service] == nil {
		k.services[after.service] = map[string]struct{}{}
	}
	k.services[after.service][key] = struct{}{}
}

func (k *Tracker) forgetService(key, service string) {
	if keys := k.services[service]; keys != nil {
		if delete(keys, key); len(keys) == 0 {
			delete(k.services, service)
		}
	}
}

// DeleteObject forgets a slice.
func (k *Tracker) DeleteObject(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.slices[key]; s != nil {
		k.forgetService(key, s.service)
		delete(k.slices, key)
	}
}

// ExpireHolds returns the nodes whose endpoints are no longer held, and forgets that they were. Their slices need AdjustConditions.
func (k *Tracker) ExpireHolds(now time.Time) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for name, n := range k.nodes {
		if !n.until.IsZero() && !now.Before(n.until) {
			n.until = time.Time{}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// NextExpiry returns when ExpireHolds is due.
func (k *Tracker) NextExpiry() (time.Time, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var next time.Time
	for _, n := range k.nodes {
		if !n.until.IsZero() && (next.IsZero() || n.until.Before(next)) {
			next = n.until
		}
	}
	return next, !next.IsZero()
}

// HeldEndpoints returns the number of held endpoints.
func (k *Tracker) HeldEndpoints() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, s := range k.slices {
		n += len(s.held)
	}
	return n
}

func serviceOf(s *discoveryv1.EndpointSlice) string {
	name := s.Labels[discoveryv1.LabelServiceName]
	if name == "" {
		return ""
	}
	return s.Namespace + "/" + name
}

// endpointID hashes what an endpoint is: its pod, else its address. A pod that is replaced has another UID, and is not held.
func endpointID(e *discoveryv1.Endpoint) uint64 {
	h := fnv.New64a()
	switch {
	case e.TargetRef != nil && e.TargetRef.UID != "":
		_, _ = h.Write([]byte(e.TargetRef.UID))
	case len(e.Addresses) > 0:
		_, _ = h.Write([]byte(e.Addresses[0]))
	}
	return h.Sum64() &^ 1
}

func withServing(id uint64, serving bool) uint64 { //nolint:revive // one bit of the value
	if serving {
		return id | 1
	}
	return id
}

// endpointConditions reads ready and serving as the API defines absent values: ready means ready, serving means as ready.
func endpointConditions(e *discoveryv1.Endpoint) (ready, serving bool) {
	ready = e.Conditions.Ready == nil || *e.Conditions.Ready
	serving = ready
	if e.Conditions.Serving != nil {
		serving = *e.Conditions.Serving
	}
	return ready, serving
}

func isTerminating(e *discoveryv1.Endpoint) bool {
	return e.Conditions.Terminating != nil && *e.Conditions.Terminating
}

func findEndpoint(sorted []uint64, id uint64) (uint64, bool) {
	i, ok := slices.BinarySearchFunc(sorted, id, func(have, want uint64) int { return cmp.Compare(have&^1, want) })
	if !ok {
		return 0, false
	}
	return sorted[i], true
}
