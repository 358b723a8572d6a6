package decision

import (
	"fmt"
	"slices"
	"strings"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// binding says what a limit of the problem counts.
func (d *decider) binding(limit int) Binding {
	if limit < len(d.snapshot.Limits) {
		return Binding{Name: d.snapshot.Limits[limit].Name, Limit: limit}
	}
	limit -= len(d.snapshot.Limits)
	if limit >= len(d.places) {
		l := &d.quotaLimits[limit-len(d.places)]
		return Binding{Name: d.nameOf(l), Limit: -1, Quota: &l.quotas[0], Cards: l.cards}
	}
	l := &d.places[limit]
	return Binding{Name: fmt.Sprintf("%s for pods of %s or more", d.snapshot.Nodes[l.set].Name, count(l.cards, "card")), Limit: -1, Set: l.set, Cards: l.cards}
}

// nameOf names the quotas of a limit.
func (d *decider) nameOf(l *quotaLimit) string {
	name := d.snapshot.Quotas[l.quotas[0]].Name
	if more := len(l.quotas) - 1; more > 0 {
		name += " and of " + count(int64(more), "other flavor")
	}
	return name
}

// short says which nodes or quotas keep a variant from replicas: those of a limit that makes the plan serve less or cost more, or those that
// have no room now.
func (d *decider) short(g, i int) string {
	p, why := d.snapshot.Groups[g].Variants[i].Pods, d.why[d.first[g]+i]
	if p == nil {
		return ""
	}
	nodes, quotas := why == NodesFull, why == QuotaFull
	for _, l := range d.plan.Limiting {
		if slices.ContainsFunc(d.problem.Groups[g].Variants[i].Places, func(t optimizer.Places) bool { return t.Limit == l }) {
			isQuota := l >= len(d.snapshot.Limits)+len(d.places)
			nodes, quotas = nodes || !isQuota, quotas || isQuota
		}
	}
	var all []string
	if nodes {
		all = append(all, d.shortNodes(p))
	}
	if quotas {
		all = append(all, d.shortQuota(p))
	}
	return strings.Join(all, "; and ")
}

func (d *decider) shortNodes(p *snapshot.Pods) string {
	set := &d.snapshot.Nodes[p.Set]
	if set.Nodes == 0 {
		return fmt.Sprintf("no ready node with %s is one that the pod template can use. Add nodes, or correct its nodeSelector, affinity or tolerations", set.Resource)
	}
	return fmt.Sprintf("the %s have %s for pods of %s. Add nodes, or free cards of them", set.Name, count(set.Places(p.Cards), "free place"), count(p.Cards, "card"))
}

func (d *decider) shortQuota(p *snapshot.Pods) string {
	quota, left := d.quotas.tightest(p)
	return fmt.Sprintf("the %s has %s left for replicas of %s. Raise the quota, or end other workloads that use it", d.snapshot.Quotas[quota].Name,
		count(left, "card"), count(p.Cards*p.Count, "card"))
}

// count returns a number of things.
func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// WithOneMore returns a snapshot in which a limit has one more of what it counts: a place for a pod on a further node, a card, a replica, or
// the cards of a replica in a quota.
// A limit of cost has as much more as the most expensive replica costs.
func WithOneMore(s *snapshot.Snapshot, b *Binding) *snapshot.Snapshot {
	made := *s
	if b.Limit >= 0 {
		made.Limits = slices.Clone(s.Limits)
		l := &made.Limits[b.Limit]
		l.Amount += oneMore(s, l)
		return &made
	}
	if b.Quota != nil {
		made.Quotas = slices.Clone(s.Quotas)
		made.Quotas[*b.Quota].Nominal += b.Cards
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
