package decision

import (
	"time"

	"github.com/robfig/cron/v3"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// bounds are the least and the most replicas of a variant. A most of 0 means no maximum.
type bounds struct{ least, most int }

// clamp returns the number within the bounds that is nearest to one that somebody else may have written.
func (b bounds) clamp(n int) int {
	n = min(n, optimizer.MaxReplicas)
	if b.most > 0 {
		n = min(n, b.most)
	}
	return max(n, b.least)
}

// boundsAt returns the bounds of a variant at a time: its own, or those of the last schedule that is in force.
func boundsAt(v *snapshot.Variant, at time.Time) bounds {
	b := bounds{least: v.Min, most: v.Max}
	for i := range v.Schedule {
		s := &v.Schedule[i]
		if !inForce(s, at) {
			continue
		}
		if s.Min != nil {
			b.least = *s.Min
		}
		if s.Max != nil {
			b.most = *s.Max
		}
	}
	if b.most > 0 {
		b.most = max(b.most, b.least)
	}
	return b
}

// inForce reports whether a schedule began within its duration. A schedule that cannot be read has no effect: whoever declared it gets a
// problem before a decision.
func inForce(s *snapshot.Schedule, at time.Time) bool {
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return false
	}
	begins, err := cron.ParseStandard(s.Cron)
	if err != nil {
		return false
	}
	next := begins.Next(at.In(zone).Add(-s.Duration))
	return !next.IsZero() && !next.After(at)
}
