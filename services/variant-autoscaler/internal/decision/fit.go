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
	f, a, order := newFitter(d.snapshot), newAdmitter(d.snapshot), d.fitOrder()
	for _, at := range order { // pods of minimums are there soon, whatever the plan, as far as they find a place
		p, v := d.podsOf(at), d.variantOf(at)
		missing := int64(d.minReplicas(at))*p.Count - max(int64(v.Now)*p.Count, p.Placed)
		f.reservePlaces(p, min(missing, d.snapshot.Nodes[p.Set].CountPlaces(p.Cards)))
		a.reserveQuota(p, a.admissibleReplicas(p, int64(d.minReplicas(at))-p.Admitted/p.Count))
	}
	for _, at := range order {
		p, desired := d.podsOf(at), int64(d.desired[at])
		least := min(int64(d.minReplicas(at)), desired)
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
		d.desired[at], d.why[at] = int(replicas), NodesFull
		if byQuota < onNodes {
			d.why[at] = QuotaFull
		}
		d.trial[at] = d.trial[at] && replicas > 0
	}
}

// minReplicas returns the replicas that nothing takes from a variant: its minimum, or all if it keeps what it has. What the plan wants at
// least, such as a first replica that shows what it serves, is not among them.
func (d *decider) minReplicas(at int) int {
	g := d.groupOf(at)
	v := d.buildVariant(g, at-d.first[g])
	return v.Min
}

func (d *decider) groupOf(at int) int {
	g, found := slices.BinarySearch(d.first, at)
	for found && g+1 < len(d.first) && d.first[g+1] == at { // groups without variants
		g++
	}
	if !found {
		g--
	}
	return g
}

func (d *decider) variantOf(at int) *snapshot.Variant {
	g := d.groupOf(at)
	return &d.snapshot.Groups[g].Variants[at-d.first[g]]
}

func (d *decider) podsOf(at int) *snapshot.Pods { return d.variantOf(at).Pods }

// fitOrder returns the variants whose pods need nodes: the most important priority first, then large pods, for which small ones can spoil
// nodes, then those that can use the fewest nodes.
func (d *decider) fitOrder() []int {
	var order []int
	for at := range d.desired {
		if d.podsOf(at) != nil {
			order = append(order, at)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := d.podsOf(a), d.podsOf(b)
		v, w := d.variantOf(a), d.variantOf(b)
		return cmp.Or(cmp.Compare(d.snapshot.Groups[d.groupOf(a)].Priority, d.snapshot.Groups[d.groupOf(b)].Priority), cmp.Compare(y.Cards, x.Cards),
			cmp.Compare(d.snapshot.Nodes[x.Set].Nodes, d.snapshot.Nodes[y.Set].Nodes), cmp.Compare(v.Namespace, w.Namespace), cmp.Compare(v.Name, w.Name))
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

func newFitter(s *snapshot.Snapshot) *fitter {
	return &fitter{snapshot: s, classes: make([][]podClass, len(s.Nodes))}
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
