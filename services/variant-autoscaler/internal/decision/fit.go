package decision

import (
	"cmp"
	"math"
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// fitToRoom lowers what is acted on to the pods for which nodes have room now, and that Kueue admits, whatever the scheduler does: in
// whatever order it takes the pods, and on whichever of their nodes it puts each of them, none stays Pending for want of cards or quota.
// Replicas that are placed, or admitted, stay. Cards of replicas that go count when these are gone: a pass after that raises others.
//
// A node set has ⌊f/s⌋ places for pods of s cards on a node with f free cards. A further pod of t cards takes at most ⌈t/s⌉ of them. So a
// pod of s cards finds a place if those that all further pods on nodes of its set can take are at most as many as there are.
func (d *decider) fitToRoom() {
	f, order := &fitter{snapshot: d.snapshot, classes: make([][]podClass, len(d.snapshot.Nodes))}, d.fitOrder()
	a := &admitter{tree: newQuotaTree(d.snapshot.Quotas)}
	for _, v := range order { // pods of minimums are there soon, whatever the plan, as far as they find a place
		p, least := v.Pods, d.minReplicas(v)
		missing := least*p.Count - max(int64(v.Now)*p.Count, p.Placed)
		f.reservePlaces(p, min(missing, d.snapshot.Nodes[p.Set].CountPlaces(p.Cards)))
		a.reserveQuota(p, a.admissibleReplicas(p, least-p.Admitted/p.Count))
	}
	for _, v := range order {
		p, desired := v.Pods, int64(d.desired[v.group][v.position])
		least := min(d.minReplicas(v), desired)
		placed, admitted := max(p.Placed, least*p.Count), max(p.Admitted/p.Count, least)
		onNodes, byQuota := (placed+min(desired*p.Count-placed, f.fittingPods(p)))/p.Count, desired
		if len(p.Quotas) > 0 && desired > admitted {
			byQuota = admitted + a.admissibleReplicas(p, min(desired, onNodes)-admitted)
		}
		replicas := min(desired, onNodes, byQuota)
		f.reservePlaces(p, replicas*p.Count-placed)
		a.reserveQuota(p, replicas-admitted)
		if replicas == desired {
			continue
		}
		d.desired[v.group][v.position], v.why = int(replicas), NodesFull
		if byQuota < onNodes {
			v.why = QuotaFull
		}
		v.trial = v.trial && replicas > 0
	}
}

// minReplicas returns the replicas that nothing takes from a variant: its minimum, or all if it keeps what it has. A replica that only the
// plan wants, such as a first one that shows what it serves, does not count.
func (d *decider) minReplicas(v *variantState) int64 {
	return int64(d.buildVariant(v.group, v.position).Min)
}

// fitOrder returns the variants whose pods need nodes: the most important priority first, then large pods, for which small ones can spoil
// nodes, then those that can use the fewest nodes.
func (d *decider) fitOrder() []*variantState {
	var order []*variantState
	for g := range d.variants {
		for i := range d.variants[g] {
			if v := &d.variants[g][i]; v.Pods != nil {
				order = append(order, v)
			}
		}
	}
	priority := func(v *variantState) int { return d.snapshot.Groups[v.group].Priority }
	slices.SortFunc(order, func(a, b *variantState) int {
		return cmp.Or(cmp.Compare(priority(a), priority(b)), cmp.Compare(b.Pods.Cards, a.Pods.Cards),
			cmp.Compare(d.snapshot.Nodes[a.Pods.Set].Nodes, d.snapshot.Nodes[b.Pods.Set].Nodes),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return order
}

// fitter counts the places that further pods take.
type fitter struct {
	snapshot *snapshot.Snapshot
	classes  [][]podClass // of the further pods of each set
}

// podClass is the further pods of a set with a number of cards.
type podClass struct {
	cards int64
	pods  int64
	left  int64 // places that no further pod of an overlapping set can take
}

// fittingPods returns the largest number of further pods that find a place in any case, beside those that were taken.
func (f *fitter) fittingPods(p *snapshot.Pods) int64 {
	own, room := f.classOf(p), int64(math.MaxInt64)
	f.visitClasses(p.Set, func(set int, s *podClass) {
		if !f.snapshot.Nodes[set].Elastic && (s == own || s.pods > 0) {
			room = min(room, max(s.left, 0)/divideUp(p.Cards, s.cards))
		}
	})
	return room
}

// reservePlaces takes places for further pods, whether they are there or not.
func (f *fitter) reservePlaces(p *snapshot.Pods, pods int64) {
	if pods <= 0 {
		return
	}
	f.classOf(p).pods += pods
	f.visitClasses(p.Set, func(_ int, s *podClass) { s.left -= pods * divideUp(p.Cards, s.cards) })
}

// classOf returns the further pods of a set with as many cards.
func (f *fitter) classOf(p *snapshot.Pods) *podClass {
	own := &f.classes[p.Set]
	for i := range *own {
		if (*own)[i].cards == p.Cards {
			return &(*own)[i]
		}
	}
	class := podClass{cards: p.Cards, left: f.snapshot.Nodes[p.Set].CountPlaces(p.Cards)}
	f.visitClasses(p.Set, func(_ int, s *podClass) { class.left -= s.pods * divideUp(s.cards, p.Cards) })
	*own = append(*own, class)
	return &(*own)[len(*own)-1]
}

// visitClasses visits the further pods of a set, and of those that have nodes in common with it.
func (f *fitter) visitClasses(set int, visit func(set int, s *podClass)) {
	for _, other := range append([]int{set}, f.snapshot.Nodes[set].Overlaps...) {
		for i := range f.classes[other] {
			visit(other, &f.classes[other][i])
		}
	}
}

func divideUp(a, b int64) int64 { return (a + b - 1) / b }
