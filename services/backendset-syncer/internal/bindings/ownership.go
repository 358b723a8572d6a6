package bindings

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/informers"
)

// setOwners decides which of several bindings owns a backend set: the owner according to its status, else the oldest binding. A binding
// that was granted a set stays its owner while the caches do not have its status yet.
type setOwners struct {
	mu      sync.Mutex
	granted map[actor.Key]types.UID
	owned   map[actor.Key]bool // sets that a binding has owned in this term
}

func newSetOwners() *setOwners {
	return &setOwners{granted: map[actor.Key]types.UID{}, owned: map[actor.Key]bool{}}
}

// chooseOwner returns the owner of the set of a binding. rivals are all bindings of the set that may own it.
func (o *setOwners) chooseOwner(
	key actor.Key, b *v1alpha1.BackendSetBinding, rivals []*v1alpha1.BackendSetBinding,
) *v1alpha1.BackendSetBinding {
	o.mu.Lock()
	defer o.mu.Unlock()
	owner := b
	for _, r := range rivals {
		if o.compareBindings(key, r, owner) < 0 {
			owner = r
		}
	}
	if owner.Status.HeldSince != nil {
		o.owned[key] = true
	}
	if owner.UID == b.UID {
		o.granted[key] = b.UID
	}
	return owner
}

// compareBindings orders the bindings of a set: the owner first.
func (o *setOwners) compareBindings(key actor.Key, a, b *v1alpha1.BackendSetBinding) int {
	rank := func(x *v1alpha1.BackendSetBinding) int {
		switch {
		case x.Status.HeldSince != nil:
			return 0
		case o.granted[key] == x.UID:
			return 1
		}
		return 2
	}
	held := 0
	if a.Status.HeldSince != nil && b.Status.HeldSince != nil {
		held = a.Status.HeldSince.Compare(b.Status.HeldSince.Time)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), held, ownership.CompareAge(a, b))
}

// clearGrants forgets what was granted in a term.
func (o *setOwners) clearGrants() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.granted)
	clear(o.owned)
}

// wasOwned reports whether a binding has owned a set in this term: its backends are not those of others.
func (o *setOwners) wasOwned(key actor.Key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owned[key]
}

// conflictMessage explains that another binding owns the set. It does not name bindings of other namespaces.
func conflictMessage(b, owner *v1alpha1.BackendSetBinding) string {
	who := "a binding in another namespace"
	if owner.Namespace == b.Namespace {
		who = "binding " + owner.Name
	}
	return fmt.Sprintf("%s owns backend set %s; delete one of the two bindings", who, b.Spec.BackendSetName)
}

// exceedsLimit reports whether a namespace has too many bindings, and this is one of the last. Owners of sets come first, then the oldest.
func exceedsLimit(limit int, b *v1alpha1.BackendSetBinding, siblings []*v1alpha1.BackendSetBinding) bool {
	if len(siblings) <= limit {
		return false
	}
	none := newSetOwners()
	before := 0
	for _, s := range siblings {
		if s.UID != b.UID && none.compareBindings(actor.Key{}, s, b) < 0 {
			before++
		}
	}
	return before >= limit
}

// withinLimit returns the bindings of a namespace that are within its limit.
func (e *Evaluator) withinLimit(namespace string) []*v1alpha1.BackendSetBinding {
	document, _ := e.configuration()
	if document == nil {
		return nil
	}
	all, none := informers.BindingsOfNamespace(e.caches.Bindings, namespace), newSetOwners()
	slices.SortFunc(all, func(a, b *v1alpha1.BackendSetBinding) int { return none.compareBindings(actor.Key{}, a, b) })
	return all[:min(len(all), document.BindingsLimit(namespace))]
}

// keyOf returns the backend set of a binding.
func keyOf(b *v1alpha1.BackendSetBinding) actor.Key {
	return actor.Key{LoadBalancer: b.Spec.LoadBalancerID, Set: b.Spec.BackendSetName}
}
