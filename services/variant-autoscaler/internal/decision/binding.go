package decision

import (
	"fmt"
	"slices"
	"strings"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// limitState is a limit of the problem: one of the snapshot, then those of the places of node sets, then those of quotas.
type limitState struct {
	Binding

	room int64 // its amount, the places that nodes have free, or what quotas have left
}

// limitStates returns what the limits of the problem count.
func (d *decider) limitStates() []limitState {
	var limits []limitState
	for i := range d.snapshot.Limits {
		l := &d.snapshot.Limits[i]
		limits = append(limits, limitState{Binding: Binding{Name: l.Name, Limit: i}, room: l.Amount})
	}
	for _, l := range d.places {
		set := &d.snapshot.Nodes[l.set]
		name := fmt.Sprintf("%s for pods of %s or more", set.Name, formatCount(l.cards, "card"))
		binding := Binding{Name: name, Limit: -1, Set: l.set, Cards: l.cards}
		limits = append(limits, limitState{Binding: binding, room: set.CountPlaces(l.cards)})
	}
	for i := range d.quotaLimits {
		l := &d.quotaLimits[i]
		binding := Binding{Name: d.quotaNames(l), Limit: -1, Quota: &l.quotas[0], Cards: l.cards}
		limits = append(limits, limitState{Binding: binding, room: l.cardsLeft(d.quotas)})
	}
	return limits
}

// quotaNames names the quotas of a limit.
func (d *decider) quotaNames(l *quotaLimit) string {
	name := d.snapshot.Quotas[l.quotas[0]].Name
	if more := len(l.quotas) - 1; more > 0 {
		name += " and of " + formatCount(int64(more), "other flavor")
	}
	return name
}

// explainShortage says which nodes or quotas keep a variant from replicas: those of a limit that makes the plan serve less or cost more, or
// those that have no room now.
func (d *decider) explainShortage(g, i int) string {
	p, why := d.snapshot.Groups[g].Variants[i].Pods, d.variants[g][i].why
	if p == nil {
		return ""
	}
	nodes, quotas := why == NodesFull, why == QuotaFull
	for _, l := range d.plan.Limiting {
		if slices.ContainsFunc(d.problem.Groups[g].Variants[i].Places, func(t optimizer.Places) bool { return t.Limit == l }) {
			isQuota := d.limits[l].Quota != nil
			nodes, quotas = nodes || !isQuota, quotas || isQuota
		}
	}
	var shortages []string
	if nodes {
		shortages = append(shortages, d.nodeShortage(p))
	}
	if quotas {
		shortages = append(shortages, d.quotaShortage(p))
	}
	return strings.Join(shortages, "; and ")
}

func (d *decider) nodeShortage(p *snapshot.Pods) string {
	set := &d.snapshot.Nodes[p.Set]
	if set.Nodes == 0 {
		return fmt.Sprintf("no ready node with %s is one that the pod template can use. Add nodes, or correct its nodeSelector, affinity or tolerations", set.Resource)
	}
	return fmt.Sprintf("the %s have %s for pods of %s. Add nodes, or free cards of them", set.Name,
		formatCount(set.CountPlaces(p.Cards), "free place"), formatCount(p.Cards, "card"))
}

func (d *decider) quotaShortage(p *snapshot.Pods) string {
	quota, left := d.quotas.tightestQuota(p)
	return fmt.Sprintf("the %s has %s left for replicas of %s. Raise the quota, or end other workloads that use it", d.snapshot.Quotas[quota].Name,
		formatCount(left, "card"), formatCount(p.Cards*p.Count, "card"))
}

// formatCount returns a number with a noun.
func formatCount(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// WithLimitRaised returns a snapshot in which a limit is raised by one: a place for a pod on a further node, a card, a replica, or the
// cards of a replica in a quota. A limit of cost is raised by the cost of the most expensive replica.
func WithLimitRaised(s *snapshot.Snapshot, b *Binding) *snapshot.Snapshot {
	raised := *s
	if b.Limit >= 0 {
		raised.Limits = slices.Clone(s.Limits)
		l := &raised.Limits[b.Limit]
		l.Amount += extraAmount(s, l)
		return &raised
	}
	if b.Quota != nil {
		raised.Quotas = slices.Clone(s.Quotas)
		raised.Quotas[*b.Quota].Nominal += b.Cards
		return &raised
	}
	raised.Nodes = slices.Clone(s.Nodes)
	for _, set := range append([]int{b.Set}, s.Nodes[b.Set].Within...) {
		raised.Nodes[set].Free = append(slices.Clone(s.Nodes[set].Free), snapshot.FreeNodes{Cards: b.Cards, Nodes: 1})
		raised.Nodes[set].Nodes++
	}
	return &raised
}

func extraAmount(s *snapshot.Snapshot, l *snapshot.Limit) int64 {
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
