package decisionlog

import (
	"fmt"
	"io"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// maxRaisedLimits bounds the limits that are explained: each takes a decision.
const maxRaisedLimits = 10

// printRaisedLimits prints what a raise of each binding limit would change in the plan.
func printRaisedLimits(out io.Writer, s *snapshot.Snapshot, d *decision.Decision) error {
	for i := range d.Binding[:min(len(d.Binding), maxRaisedLimits)] {
		b := &d.Binding[i]
		after, err := decision.Decide(decision.WithLimitRaised(s, b))
		if err != nil {
			return fmt.Errorf("decide with one more of %s: %w", b.Name, err)
		}
		fmt.Fprintf(out, "%s of %s: %s\n", unitOf(s, b), cleanText(b.Name), planDifference(s, d, after))
	}
	return nil
}

// unitOf says by what a limit is raised.
func unitOf(s *snapshot.Snapshot, b *decision.Binding) string {
	switch {
	case b.Quota != nil && b.Cards == 1:
		return "another card"
	case b.Quota != nil:
		return fmt.Sprintf("another %d cards", b.Cards)
	case b.Limit < 0:
		return fmt.Sprintf("another place for a pod of %d cards", b.Cards)
	}
	switch s.Limits[b.Limit].Unit {
	case snapshot.Cards:
		return "another card"
	case snapshot.Replicas:
		return "another replica"
	default:
		return "the cost of another replica"
	}
}

// planDifference says what differs between two plans, the most important model first.
func planDifference(s *snapshot.Snapshot, before, after *decision.Decision) string {
	best := -1
	for g := range after.Groups {
		if after.Groups[g].Share > before.Groups[g].Share && (best < 0 || s.Groups[g].Priority < s.Groups[best].Priority) {
			best = g
		}
	}
	switch {
	case best >= 0:
		return fmt.Sprintf("the plan serves %s of %s, for a cost per hour of %s",
			formatChange(formatShare(before.Groups[best].Share), formatShare(after.Groups[best].Share)),
			nameOf(&s.Groups[best]), formatChange(formatAmount(before.Cost), formatAmount(after.Cost)))
	case after.Cost != before.Cost:
		return "cost per hour " + formatChange(formatAmount(before.Cost), formatAmount(after.Cost))
	}
	return "no change"
}
