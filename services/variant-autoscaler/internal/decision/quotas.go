package decision

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// maxQuotaLimits is the most limits of quotas of a problem: those of the most variants. Limits that are left out make a plan want more than
// is admitted: what is acted on is admitted in any case.
const maxQuotaLimits = optimizer.MaxPlaces - maxPlaceSets*maxPlaceSizes

// quotaTree has the rules of Kueue for quotas:
//
//	subtree      the quota of a Cohort or ClusterQueue, with what its members lend
//	kept         the part of it that a limit of lending keeps for itself. It is used first
//	used         by itself and its members, of what these do not keep. It must not exceed the subtree and the limit of borrowing together
//
// See https://github.com/kubernetes-sigs/kueue/blob/v0.19.0/pkg/cache/scheduler/resource_node.go
type quotaTree struct {
	quotas              []snapshot.Quota
	subtree, kept, used []int64
	// spare is what members have left of what they keep: they can use it without using more of this quota.
	spare []int64
}

func newQuotaTree(quotas []snapshot.Quota) *quotaTree {
	n := len(quotas)
	t := &quotaTree{quotas: quotas, subtree: make([]int64, n), kept: make([]int64, n), used: make([]int64, n), spare: make([]int64, n)}
	for i := n - 1; i >= 0; i-- {
		q := &quotas[i]
		t.subtree[i] += q.Nominal
		t.used[i] += q.Used
		if q.Parent < 0 {
			continue
		}
		if q.Lending != nil {
			t.kept[i] = max(t.subtree[i]-*q.Lending, 0)
		}
		t.subtree[q.Parent] += t.subtree[i] - t.kept[i]
		t.used[q.Parent] += max(t.used[i]-t.kept[i], 0)
		t.spare[q.Parent] += t.spare[i] + t.keptLeft(i)
	}
	return t
}

// keptLeft returns the unused part of what a quota keeps for itself.
func (t *quotaTree) keptLeft(i int) int64 { return max(t.kept[i]-t.used[i], 0) }

// maxUsable returns the largest use of a quota that is permitted, whatever its Cohort has.
func (t *quotaTree) maxUsable(i int) int64 {
	switch q := &t.quotas[i]; {
	case q.Parent < 0:
		return t.subtree[i]
	case q.Borrowing == nil:
		return math.MaxInt64
	default:
		return t.subtree[i] + *q.Borrowing
	}
}

// availableCards returns what can still be used of a quota. It is negative if a quota was lowered.
func (t *quotaTree) availableCards(i int) int64 {
	if t.quotas[i].Parent < 0 {
		return t.subtree[i] - t.used[i]
	}
	return min(t.keptLeft(i)+t.availableCards(t.quotas[i].Parent), t.maxUsable(i)-t.used[i])
}

// addUsage adds to the use of a quota. A negative number reduces it.
func (t *quotaTree) addUsage(i int, cards int64) {
	before := max(t.used[i]-t.kept[i], 0)
	t.used[i] += cards
	if p := t.quotas[i].Parent; p >= 0 {
		t.addUsage(p, max(t.used[i]-t.kept[i], 0)-before)
	}
}

// addReplicas adds replicas of a variant to the use of the quotas of all its flavors.
func (t *quotaTree) addReplicas(p *snapshot.Pods, replicas int64) {
	for _, i := range p.Quotas {
		t.addUsage(i, replicas*p.Cards*p.Count)
	}
}

// fittingReplicas returns the replicas of a variant for which a quota has room.
func (t *quotaTree) fittingReplicas(i int, p *snapshot.Pods) int64 {
	return max(t.availableCards(i), 0) / (p.Cards * p.Count)
}

// roomForVariant returns the replicas of a variant for which the quotas of its flavors have room.
func (t *quotaTree) roomForVariant(p *snapshot.Pods) int64 {
	var replicas int64
	for _, i := range p.Quotas {
		replicas += t.fittingReplicas(i, p)
	}
	return replicas
}

// quotaLimit is a limit of the cards of all variants that can get no other flavors than those of some quotas, all of one owner.
type quotaLimit struct {
	quotas []int
	cards  int64 // of the smallest replica
}

// quotaLevels returns the quotas of the ClusterQueue of a variant, then those of each Cohort above it.
func (t *quotaTree) quotaLevels(p *snapshot.Pods) [][]int {
	var levels [][]int
	for level := slices.Clone(p.Quotas); len(level) > 0; {
		slices.Sort(level)
		levels = append(levels, level)
		var above []int
		for _, i := range level {
			if parent := t.quotas[i].Parent; parent >= 0 {
				above = append(above, parent)
			}
		}
		level = above
	}
	return levels
}

// buildLimits returns the limits of quotas that a snapshot has.
func (t *quotaTree) buildLimits(s *snapshot.Snapshot) []quotaLimit {
	if len(s.Quotas) == 0 {
		return nil
	}
	var limits []quotaLimit
	var count []int // variants
	position := map[string]int{}
	visitPods(s, func(p *snapshot.Pods) {
		for _, level := range t.quotaLevels(p) {
			if slices.ContainsFunc(level, func(i int) bool { return t.maxUsable(i) == math.MaxInt64 }) {
				continue
			}
			key := fmt.Sprint(level)
			at, known := position[key]
			if !known {
				at = len(limits)
				position[key] = at
				limits, count = append(limits, quotaLimit{quotas: level, cards: p.Cards * p.Count}), append(count, 0)
			}
			limits[at].cards = min(limits[at].cards, p.Cards*p.Count)
			count[at]++
		}
	})
	kept := make([]quotaLimit, 0, len(limits))
	for _, at := range largestCounts(count, maxQuotaLimits) {
		kept = append(kept, limits[at])
	}
	return kept
}

// cardsLeft returns the cards that a limit has left, for replicas that are not admitted yet. A part of them may only be for some variants.
func (l *quotaLimit) cardsLeft(t *quotaTree) int64 {
	var cards int64
	for _, i := range l.quotas {
		cards += max(t.maxUsable(i)-t.used[i], 0) + t.spare[i]
	}
	return cards
}

// countsVariant reports whether a limit counts a variant.
func (l *quotaLimit) countsVariant(levels [][]int) bool {
	return slices.ContainsFunc(levels, func(level []int) bool {
		return !slices.ContainsFunc(level, func(i int) bool { return !slices.Contains(l.quotas, i) })
	})
}

// quotaUsage returns what a replica takes of the limits of quotas.
func (d *decider) quotaUsage(p *snapshot.Pods) []optimizer.Places {
	if len(p.Quotas) == 0 {
		return nil
	}
	var usage []optimizer.Places
	levels := d.quotas.quotaLevels(p)
	for i := range d.quotaLimits {
		if d.quotaLimits[i].countsVariant(levels) {
			usage = append(usage,
				optimizer.Places{Limit: len(d.snapshot.Limits) + len(d.places) + i, Amount: min(p.Cards*p.Count, maxCards)})
		}
	}
	return usage
}

// tightestQuota returns the quota of a variant, or of a Cohort above it, that keeps it from further replicas, and the cards that it leaves.
func (t *quotaTree) tightestQuota(p *snapshot.Pods) (quota int, left int64) {
	quota = slices.MaxFunc(p.Quotas, func(a, b int) int { return cmp.Compare(t.availableCards(a), t.availableCards(b)) })
	left = max(t.availableCards(quota), 0)
	for parent := t.quotas[quota].Parent; parent >= 0; parent = t.quotas[quota].Parent {
		if t.maxUsable(quota)-t.used[quota] <= t.keptLeft(quota)+t.availableCards(parent) {
			break
		}
		quota = parent
	}
	return quota, left
}

// validateQuotas returns an error that names the first quota of a snapshot that is out of range.
func validateQuotas(s *snapshot.Snapshot) error {
	for i := range s.Quotas {
		q := &s.Quotas[i]
		if q.Parent >= i || q.Parent < -1 || !inRange(0, q.Nominal, q.Used, orZero(q.Borrowing), orZero(q.Lending)) {
			return fmt.Errorf("quota %d: a number is out of range, or its Cohort does not come before it", i)
		}
	}
	var err error
	visitPods(s, func(p *snapshot.Pods) {
		if !inRange(0, p.Admitted) || slices.ContainsFunc(p.Quotas, func(i int) bool { return i < 0 || i >= len(s.Quotas) }) {
			err = errors.New("the pods of a variant have a quota or a number that is out of range")
		}
	})
	return err
}

func orZero(n *int64) int64 { return *cmp.Or(n, new(int64)) }
