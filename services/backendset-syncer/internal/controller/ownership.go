package controller

import (
	"cmp"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/actor"
)

// holders decides which of several bindings owns a backend set: the one that holds it according to its status, else the oldest. A
// binding that was granted a set keeps it, although the caches do not have its status yet.
type holders struct {
	mu      sync.Mutex
	granted map[actor.Key]types.UID
	owned   map[actor.Key]bool // sets that a binding has held in this term
}

func newHolders() *holders {
	return &holders{granted: map[actor.Key]types.UID{}, owned: map[actor.Key]bool{}}
}

// grant reports whether a binding owns its set. rivals are all bindings of the set that may own it.
func (h *holders) grant(key actor.Key, b *v1alpha1.BackendSetBinding, rivals []*v1alpha1.BackendSetBinding) (owner *v1alpha1.BackendSetBinding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	owner = b
	for _, r := range rivals {
		if h.compare(key, r, owner) < 0 {
			owner = r
		}
	}
	if owner.Status.HeldSince != nil {
		h.owned[key] = true
	}
	if owner.UID == b.UID {
		h.granted[key] = b.UID
	}
	return owner
}

// compare orders the bindings of a set: the owner first.
func (h *holders) compare(key actor.Key, a, b *v1alpha1.BackendSetBinding) int {
	rank := func(x *v1alpha1.BackendSetBinding) int {
		switch {
		case x.Status.HeldSince != nil:
			return 0
		case h.granted[key] == x.UID:
			return 1
		}
		return 2 // the last
	}
	held := 0
	if a.Status.HeldSince != nil && b.Status.HeldSince != nil {
		held = a.Status.HeldSince.Compare(b.Status.HeldSince.Time)
	}
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)), held, a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
	)
}

// clear forgets what was granted in a term.
func (h *holders) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.granted)
	clear(h.owned)
}

// wasOwned reports whether a binding has held a set in this term: its backends are not those of others.
func (h *holders) wasOwned(key actor.Key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owned[key]
}

// conflict explains that another binding owns the set. It does not name bindings of other namespaces.
func conflict(b, owner *v1alpha1.BackendSetBinding) string {
	who := "a binding in another namespace"
	if owner.Namespace == b.Namespace {
		who = "binding " + owner.Name
	}
	return fmt.Sprintf("%s owns backend set %s; delete one of the two bindings", who, b.Spec.BackendSetName)
}

// isBeyond reports whether a namespace has too many bindings, and this is one of the last. Those that hold a set come first, then the
// oldest.
func isBeyond(limit int, b *v1alpha1.BackendSetBinding, siblings []*v1alpha1.BackendSetBinding) bool {
	if len(siblings) <= limit {
		return false
	}
	none := newHolders()
	before := 0
	for _, s := range siblings {
		if s.UID != b.UID && none.compare(actor.Key{}, s, b) < 0 {
			before++
		}
	}
	return before >= limit
}

// keyOf returns the backend set of a binding.
func keyOf(b *v1alpha1.BackendSetBinding) actor.Key {
	return actor.Key{LoadBalancer: b.Spec.LoadBalancerID, Set: b.Spec.BackendSetName}
}
