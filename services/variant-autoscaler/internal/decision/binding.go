package decision

import (
	"fmt"
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// binding says what a limit of the problem counts.
func (d *decider) binding(limit int) Binding {
	if limit < len(d.snapshot.Limits) {
		return Binding{Name: d.snapshot.Limits[limit].Name, Limit: limit}
	}
	l := &d.places[limit-len(d.snapshot.Limits)]
	return Binding{Name: fmt.Sprintf("%s for pods of %s or more", d.snapshot.Nodes[l.set].Name, count(l.cards, "card")), Limit: -1, Set: l.set, Cards: l.cards}
}

// short says which nodes keep a variant from replicas: those of a limit that makes the plan serve less or cost more, or those that have no
// room now.
func (d *decider) short(g, i int) string {
	p := d.snapshot.Groups[g].Variants[i].Pods
	if p == nil {
		return ""
	}
	isShort := d.why[d.first[g]+i] == NodesFull
	for _, l := range d.plan.Limiting {
		isShort = isShort || slices.ContainsFunc(d.problem.Groups[g].Variants[i].Places, func(t optimizer.Places) bool { return t.Limit == l })
	}
	if !isShort {
		return ""
	}
	set := &d.snapshot.Nodes[p.Set]
	if set.Nodes == 0 {
		return fmt.Sprintf("no ready node with %s is one that the pod template can use. Add nodes, or correct its nodeSelector, affinity or tolerations", set.Resource)
	}
	return fmt.Sprintf("the %s have %s for pods of %s. Add nodes, or free cards of them", set.Name, count(set.Places(p.Cards), "free place"), count(p.Cards, "card"))
}

// count returns a number of things.
func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// WithOneMore returns a snapshot in which a limit has one more of what it counts: a place for a pod on a further node, a card or a replica.
// A limit of cost has as much more as the most expensive replica costs.
func WithOneMore(s *snapshot.Snapshot, b *Binding) *snapshot.Snapshot {
	made := *s
	if b.Limit >= 0 {
		made.Limits = slices.Clone(s.Limits)
		l := &made.Limits[b.Limit]
		l.Amount += oneMore(s, l)
		return &made
	}
	made.Nodes = slices.Clone(s.Nodes)
	for _, set := range append([]int{b.Set}, s.Nodes[b.Set].Within...) {
		made.Nodes[set].Free = append(slices.Clone(s.Nodes[set].Free), snapshot.FreeNodes{Cards: b.Cards, Nodes: 1})
		made.Nodes[set].Nodes++
	}
	return &made
}

func oneMore(s *snapshot.Snapshot, l *snapshot.Limit) int64 {
	if l.Unit != snapshot.Cost {
		return 1
	}
	var dearest int64
	for g := range s.Groups {
		for i := range s.Groups[g].Variants {
			dearest = max(dearest, s.Groups[g].Variants[i].Cost)
		}
	}
	return dearest
}
