package decision

import (
	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// bounds are those of a variant that are in force.
type bounds snapshot.Bounds

// boundsOf returns the bounds of a variant while an entry of its schedule is in force, or without one.
func boundsOf(v *snapshot.Variant, s *snapshot.Schedule) bounds {
	b := bounds(v.BoundsOf(s))
	if b.Max > 0 {
		b.Max = max(b.Max, b.Min)
	}
	return b
}

// clampReplicas returns the number within the bounds that is nearest to n, which somebody else may have written.
func (b bounds) clampReplicas(n int) int {
	n = min(n, optimizer.MaxReplicas)
	if b.Max > 0 {
		n = min(n, b.Max)
	}
	return max(n, b.Min)
}
