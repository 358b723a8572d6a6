package routing

import (
	"slices"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// buildDesired returns what was admitted.
func (a *admission) buildDesired() *Desired {
	d := &Desired{Problems: a.problems}
	used := map[string]bool{EmptyKey: true, DefaultKey: true}
	for i := range a.listeners {
		l := &a.listeners[i]
		p := Policy{
			Gateway: l.Gateway, Listener: l.Name, Key: PolicyKey(l.Gateway, l.Name), Name: PolicyName(l.Gateway, l.Name),
			Redirect: l.redirect,
		}
		if name := a.in.Names[p.Key]; name != "" {
			p.Name = name
		}
		for _, c := range orderCandidates(l.candidates) {
			used[c.set] = true
			if i, found := slices.BinarySearch(p.Namespaces, c.Route.Namespace); !found {
				p.Namespaces = slices.Insert(p.Namespaces, i, c.Route.Namespace)
			}
			p.Rules = append(p.Rules,
				plan.Rule{Name: ruleName(len(p.Rules), nameOf(c.Route)), Condition: c.condition, Set: a.sets[c.set].Name})
		}
		d.Policies = append(d.Policies, p)
	}
	if d.Default = a.sets[DefaultKey].Name; d.Default == "" {
		d.Default = a.sets[EmptyKey].Name
	}
	for _, key := range a.order {
		if used[key] {
			d.Sets = append(d.Sets, a.sets[key])
		}
	}
	return d
}

// orderCandidates returns candidates in their precedence, without those that an earlier one with the same condition hides.
func orderCandidates(candidates []candidate) []candidate {
	precedence := gatewayapi.Precedence()
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		for _, c := range precedence {
			if n := c.Compare(&a.RouteMatch, &b.RouteMatch); n != 0 {
				return n
			}
		}
		return 0
	})
	seen := map[string]bool{}
	return slices.DeleteFunc(candidates, func(c candidate) bool {
		hidden := seen[c.condition]
		seen[c.condition] = true
		return hidden
	})
}
