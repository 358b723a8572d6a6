package decision

import (
	"cmp"
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// maxLosers is the number of variants of a namespace that are reported as losers of a conflict. A tenant can declare any number of them for
// one target.
const maxLosers = 100

// Resolution says whether a variant wins a conflict on its target.
type Resolution string

// Resolutions of a conflict.
const (
	NoConflict Resolution = ""
	Winner     Resolution = "winner"
	Suppressed Resolution = "suppressed" // it has no decision
)

// ActedVariant is what autoscalers may know of a variant that has desired replicas. A variant without a decision is none, as zero would
// remove its replicas. A target has at most one decision: two would add up in a HorizontalPodAutoscaler that selects by target.
type ActedVariant struct {
	snapshot.Variant
	Pool  string // InferencePool of the model
	Model string

	Desired int
	// Standby reports whether this is the variant that starts first when a request waits for the model, which has no replicas.
	Standby bool
	// Waits reports whether requests wait for the model, which may have no replicas.
	Waits  bool
	Reason Reason // of Desired

	Predicted  *Predicted // nil: not known
	Resolution Resolution
}

// ModelKey returns the model that the variant serves.
func (v *ActedVariant) ModelKey() snapshot.ModelKey {
	return snapshot.PoolKey{Namespace: v.Namespace, Name: v.Pool}.WithModel(v.Model)
}

// targetKey identifies a target.
type targetKey struct{ namespace, kind, name string }

func (v *ActedVariant) targetKey() targetKey {
	return targetKey{v.Namespace, v.Target.Kind, v.Target.Name}
}

// ActedVariants returns the variants of a snapshot that have a decision, and losers: variants outside the snapshot whose target belongs
// to another variant. They are ordered by namespace and name.
func ActedVariants(s *snapshot.Snapshot, d *Decision, losers []snapshot.Variant) []ActedVariant {
	var variants []ActedVariant
	for i := range min(len(s.Groups), len(d.Groups)) {
		group, decided := &s.Groups[i], &d.Groups[i]
		for j := range min(len(group.Variants), len(decided.Variants)) {
			if v, d := &group.Variants[j], &decided.Variants[j]; hasDecision(v, d) {
				variants = append(variants, ActedVariant{
					Variant: *v, Pool: group.Pool, Model: group.Model, Desired: d.Desired, Standby: v.Name == decided.Standby,
					Waits:  group.Zero.Enabled && (group.Zero.Waiting > 0 || group.Load.Queued > 0),
					Reason: d.Reason, Predicted: d.Predicted,
				})
			}
		}
	}
	counts := map[string]int{}
	for i := range losers {
		v := &losers[i]
		if counts[v.Namespace]++; counts[v.Namespace] <= maxLosers {
			variants = append(variants, ActedVariant{Variant: *v, Resolution: Suppressed})
		}
	}
	slices.SortStableFunc(variants, func(a, b ActedVariant) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	resolveConflicts(variants)
	return variants
}

// hasDecision reports whether there is a decision on a variant. A decision that repeats the previous one does not count if there was no
// previous one, unless it adds replicas to a variant without a problem.
func hasDecision(v *snapshot.Variant, d *Variant) bool {
	repeats := v.Problem != nil || slices.Contains([]Reason{NoMetrics, Excluded}, d.Reason)
	switch {
	case d.Desired < 0:
		return false
	case v.Decided || !repeats:
		return true
	}
	return v.Problem == nil && d.Desired > v.Now
}

// resolveConflicts marks the winners of conflicts, and suppresses what would be a second decision on a target.
func resolveConflicts(variants []ActedVariant) {
	owner, contested := map[targetKey]int{}, map[targetKey]bool{}
	for i := range variants {
		v := &variants[i]
		if _, owned := owner[v.targetKey()]; v.Resolution != Suppressed && !owned {
			owner[v.targetKey()] = i
			continue
		}
		v.Resolution = Suppressed
		contested[v.targetKey()] = true
	}
	for target, i := range owner {
		if contested[target] {
			variants[i].Resolution = Winner
		}
	}
}

// Outcome is what became of a decision.
type Outcome struct {
	// Applied reports whether the decision has taken effect: autoscalers can follow it, or the target has the replicas.
	Applied bool
	Reason  string // a constant
	Message string // what happened, and what to do
	// Event is a message about a change of the target. Empty: it was not changed.
	Event string
}
