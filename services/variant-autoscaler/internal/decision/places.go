package decision

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Bounds of what nodes cost the optimizer. A limit that is left out makes a plan want more than fits: what is acted on fits in any case.
const (
	maxPlaceSets  = 32 // node sets with limits: those of the most variants
	maxPlaceSizes = 8  // sizes of pods with limits of a set: those of the most variants
	maxPodNumber  = 1e9
)

// placeLimit is a limit of the pods on a node set: of those with at least a number of cards. A pod of s cards takes ⌊s/cards⌋ places. There
// are ⌊f/cards⌋ on each node with f free cards, and those that pods of the variants take now, which stay where they are. Minimums take no
// place from others before they are placed: they may never be.
//
// If each size divides the next one, as 1, 2, 4 and 8 do, and all pods can use the same nodes, then the pods fit exactly if no place limit
// is exceeded, wherever the scheduler put the ones that are there. Otherwise the limits are necessary, and package fit decides.
type placeLimit struct {
	set   int
	cards int64
}

// placeLimits returns the limits of places that a snapshot has.
func placeLimits(s *snapshot.Snapshot) []placeLimit {
	sizes := make([]map[int64]int, len(s.Nodes)) // of each set: variants by the size of their pods
	count := make([]int, len(s.Nodes))
	visitPods(s, func(p *snapshot.Pods) {
		for _, set := range setsOf(s, p) {
			if sizes[set] == nil {
				sizes[set] = map[int64]int{}
			}
			sizes[set][p.Cards]++
			count[set]++
		}
	})
	var limits []placeLimit
	for _, set := range largestCounts(count, maxPlaceSets) {
		if s.Nodes[set].Elastic {
			continue
		}
		cards := slices.SortedFunc(maps.Keys(sizes[set]),
			func(a, b int64) int { return cmp.Or(cmp.Compare(sizes[set][b], sizes[set][a]), cmp.Compare(a, b)) })
		for _, size := range cards[:min(len(cards), maxPlaceSizes)] {
			limits = append(limits, placeLimit{set: set, cards: size})
		}
	}
	return limits
}

// limitPlaces sets the amounts of the limits of places and quotas.
func (d *decider) limitPlaces() {
	limits := d.problem.Limits
	for l := range d.limits {
		limits[l].Amount = d.limits[l].room
	}
	for g := range d.problem.Groups {
		for i := range d.problem.Groups[g].Variants {
			v, p := &d.problem.Groups[g].Variants[i], d.snapshot.Groups[g].Variants[i].Pods
			for _, t := range v.Places {
				more := cappedProduct(max(p.Admitted, int64(v.Min)*p.Count), p.Cards)
				if l := &d.limits[t.Limit]; l.Quota == nil {
					more = cappedProduct(max(p.Placed, int64(v.Min)*p.Count), p.Cards/l.Cards)
				}
				limits[t.Limit].Amount = min(limits[t.Limit].Amount+more, maxAmount)
			}
		}
	}
}

// maxAmount is what all replicas of all variants take of a limit at most.
const maxAmount = optimizer.MaxVariants * optimizer.MaxReplicas * int64(maxCards)

// cappedProduct returns the product of numbers that are not negative, or maxAmount if it is larger: pod templates can say any number.
func cappedProduct(a, b int64) int64 {
	if b > 0 && a > maxAmount/b {
		return maxAmount
	}
	return a * b
}

func visitPods(s *snapshot.Snapshot, visit func(p *snapshot.Pods)) {
	for g := range s.Groups {
		for i := range s.Groups[g].Variants {
			if p := s.Groups[g].Variants[i].Pods; p != nil {
				visit(p)
			}
		}
	}
}

// setsOf returns the sets that have all nodes that pods can use.
func setsOf(s *snapshot.Snapshot, p *snapshot.Pods) []int {
	return append([]int{p.Set}, s.Nodes[p.Set].Within...)
}

// largestCounts returns the positions of the largest counts that are not 0, in their order.
func largestCounts(count []int, number int) []int {
	var positions []int
	for i, n := range count {
		if n > 0 {
			positions = append(positions, i)
		}
	}
	slices.SortStableFunc(positions, func(a, b int) int { return cmp.Compare(count[b], count[a]) })
	positions = positions[:min(len(positions), number)]
	slices.Sort(positions)
	return positions
}

// limitUsage returns what a replica takes of the limits of places and quotas.
func (d *decider) limitUsage(p *snapshot.Pods) []optimizer.Places {
	if p == nil {
		return nil
	}
	return append(d.placeUsage(p), d.quotaUsage(p)...)
}

func (d *decider) placeUsage(p *snapshot.Pods) []optimizer.Places {
	var usage []optimizer.Places
	sets := setsOf(d.snapshot, p)
	for i, l := range d.places {
		if n := p.Count * (p.Cards / l.cards); n > 0 && slices.Contains(sets, l.set) {
			usage = append(usage, optimizer.Places{Limit: len(d.snapshot.Limits) + i, Amount: min(n, maxCards)})
		}
	}
	return usage
}

// maxCards is the most that the optimizer accepts. No node set has as many places.
const maxCards = 1e6

// validateNodes returns an error that names the first part of the nodes of a snapshot that is out of range.
func validateNodes(s *snapshot.Snapshot) error {
	for i := range s.Nodes {
		set := &s.Nodes[i]
		for _, other := range slices.Concat(set.Within, set.Overlaps) {
			if other < 0 || other >= len(s.Nodes) {
				return fmt.Errorf("node set %d: there is no set %d", i, other)
			}
		}
		for _, f := range set.Free {
			if !inRange(0, f.Cards, f.Nodes) {
				return fmt.Errorf("node set %d: %d nodes have %d free cards", i, f.Nodes, f.Cards)
			}
		}
	}
	var err error
	visitPods(s, func(p *snapshot.Pods) {
		if p.Set < 0 || p.Set >= len(s.Nodes) || !inRange(1, p.Cards, p.Count) || !inRange(0, p.Placed) {
			err = errors.New("the pods of a variant have a node set or a number that is out of range")
		}
	})
	return err
}

func inRange(least int64, numbers ...int64) bool {
	return slices.Min(numbers) >= least && slices.Max(numbers) <= maxPodNumber
}
