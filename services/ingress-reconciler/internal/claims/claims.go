// Package claims knows which service a host and path belong to: of several that want them the oldest has them, and the next
// one when that is gone. Claims do not depend on who is ready, or who came first to the API server: every replica, and every
// restart, comes to the same.
package claims

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

// Registry holds the claims of all services.
type Registry struct {
	mu      sync.Mutex
	by      map[plan.Name][]plan.Claim
	created map[plan.Name]time.Time
	of      map[plan.Claim][]plan.Name // the first has it
}

// New returns a Registry without claims.
func New() *Registry {
	return &Registry{
		by: map[plan.Name][]plan.Claim{}, created: map[plan.Name]time.Time{}, of: map[plan.Claim][]plan.Name{},
	}
}

// Set replaces the claims of a service, nil for none. It returns those that an older service has, by its name, and the
// services for which this has changed who has a claim of theirs.
func (r *Registry) Set(name plan.Name, created time.Time, claims []plan.Claim) (taken map[plan.Claim]plan.Name, others []plan.Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.by[name]
	for _, c := range before {
		if !slices.Contains(claims, c) || !r.created[name].Equal(created) {
			others = r.drop(c, name, others)
		}
	}
	if len(claims) == 0 {
		delete(r.by, name)
		delete(r.created, name)
		return nil, others
	}
	r.by[name], r.created[name] = slices.Clone(claims), created
	for _, c := range claims {
		others = r.add(c, name, others)
		if winner := r.of[c][0]; winner != name {
			if taken == nil {
				taken = map[plan.Claim]plan.Name{}
			}
			taken[c] = winner
		}
	}
	return taken, others
}

// add adds a claim to those of others, and whom it has overtaken to the rest.
func (r *Registry) add(c plan.Claim, name plan.Name, others []plan.Name) []plan.Name {
	all := r.of[c]
	if slices.Contains(all, name) {
		return others
	}
	i, _ := slices.BinarySearchFunc(all, name, r.compare)
	if i == 0 {
		others = append(others, all...)
	}
	r.of[c] = slices.Insert(all, i, name)
	return others
}

// drop takes a claim from those of others, and adds who has it or waits for it now to the rest.
func (r *Registry) drop(c plan.Claim, name plan.Name, others []plan.Name) []plan.Name {
	i := slices.Index(r.of[c], name)
	rest := slices.Delete(slices.Clone(r.of[c]), i, i+1)
	if r.of[c] = rest; len(rest) == 0 {
		delete(r.of, c)
	}
	if i == 0 {
		others = append(others, rest...)
	}
	return others
}

// compare orders services by age. Of two of one second the name decides.
func (r *Registry) compare(a, b plan.Name) int {
	return cmp.Or(r.created[a].Compare(r.created[b]), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
