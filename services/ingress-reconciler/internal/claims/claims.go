// Package claims knows which service a host and path belong to: of several that want them the oldest has them, and the next
// one when that is gone. Claims do not depend on who is ready, or who came first to the API server: every replica, and every
// restart, comes to the same. What a service wants when nobody knows it is what its objects were made for.
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
	r := &Registry{}
	r.Clear()
	return r
}

// Clear drops all claims.
func (r *Registry) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.by, r.created, r.of = map[plan.Name][]plan.Claim{}, map[plan.Name]time.Time{}, map[plan.Claim][]plan.Name{}
}

// Plan builds the plan of a service, takes its claims, and returns the services that Set would. Where an older one has a claim,
// the plan is one without it.
func (r *Registry) Plan(in *plan.Input) (p plan.Plan, others []plan.Name) {
	p = plan.Build(in)
	s := in.Service
	in.Taken, others = r.Set(plan.Name{Namespace: s.Namespace, Name: s.Name}, s.Created, p.Claims)
	if len(in.Taken) > 0 {
		p = plan.Build(in)
	}
	return p, others
}

// Set replaces the claims of a service, nil for none. It returns those that an older service has, by its name, and the other
// services for which this has changed who has a claim of theirs, sorted.
func (r *Registry) Set(name plan.Name, created time.Time, claims []plan.Claim) (taken map[plan.Claim]plan.Name, others []plan.Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.by[name]; !slices.Equal(before, claims) || !r.created[name].Equal(created) {
		others = r.replace(name, created, claims)
	}
	for _, c := range claims {
		if winner := r.of[c][0]; winner != name {
			if taken == nil {
				taken = map[plan.Claim]plan.Name{}
			}
			taken[c] = winner
		}
	}
	return taken, others
}

// replace replaces the claims of a service, and returns the others for which somebody else has a claim of theirs now.
func (r *Registry) replace(name plan.Name, created time.Time, claims []plan.Claim) (others []plan.Name) {
	before := r.by[name]
	had := map[plan.Claim]plan.Name{}
	for _, c := range slices.Concat(before, claims) {
		had[c] = r.winner(c)
	}
	for _, c := range before {
		r.drop(c, name)
	}
	if len(claims) == 0 {
		delete(r.by, name)
		delete(r.created, name)
	} else {
		r.by[name], r.created[name] = slices.Clone(claims), created
	}
	for _, c := range claims {
		r.add(c, name)
	}
	for c, winner := range had {
		if r.winner(c) != winner {
			others = append(others, r.of[c]...)
		}
	}
	others = slices.DeleteFunc(others, func(o plan.Name) bool { return o == name })
	slices.SortFunc(others, byName)
	return slices.Compact(others)
}

// winner returns the service that has a claim, the zero Name if none wants it.
func (r *Registry) winner(c plan.Claim) plan.Name {
	if all := r.of[c]; len(all) > 0 {
		return all[0]
	}
	return plan.Name{}
}

// add puts a service among those that want a claim, by its age.
func (r *Registry) add(c plan.Claim, name plan.Name) {
	all := r.of[c]
	if i, found := slices.BinarySearchFunc(all, name, r.compare); !found {
		r.of[c] = slices.Insert(all, i, name)
	}
}

// drop takes a service from those that want a claim.
func (r *Registry) drop(c plan.Claim, name plan.Name) {
	rest := slices.DeleteFunc(r.of[c], func(n plan.Name) bool { return n == name })
	if r.of[c] = rest; len(rest) == 0 {
		delete(r.of, c)
	}
}

// compare orders services by age. Of two of one second the name decides.
func (r *Registry) compare(a, b plan.Name) int {
	return cmp.Or(r.created[a].Compare(r.created[b]), byName(a, b))
}

func byName(a, b plan.Name) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
