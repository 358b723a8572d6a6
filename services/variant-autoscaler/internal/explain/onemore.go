package explain

import (
	"fmt"
	"io"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// maxOneMore bounds the limits that are explained: each takes a decision.
const maxOneMore = 10

// oneMore prints what one more of each limit that binds would change in the plan.
func oneMore(out io.Writer, s *snapshot.Snapshot, d *decision.Decision) error {
	for i := range d.Binding[:min(len(d.Binding), maxOneMore)] {
		b := &d.Binding[i]
		after, err := decision.Decide(decision.WithLimitRaised(s, b))
		if err != nil {
			return fmt.Errorf("decide with one more of %s: %w", b.Name, err)
		}
		fmt.Fprintf(out, "%s of %s: %s\n", unitOf(s, b), clean(b.Name), difference(s, d, after))
	}
	return nil
}

// unitOf names one more of a limit.
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

// difference says what differs between two plans, the most important model first.
func difference(s *snapshot.Snapshot, before, after *decision.Decision) string {
	best := -1
	for g := range after.Groups {
		if after.Groups[g].Share > before.Groups[g].Share && (best < 0 || s.Groups[g].Priority < s.Groups[best].Priority) {
			best = g
		}
	}
	switch {
	case best >= 0:
		return fmt.Sprintf("the plan serves %s of %s, for a cost per hour of %s", change(share(before.Groups[best].Share), share(after.Groups[best].Share)),
			nameOf(&s.Groups[best]), change(amount(before.Cost), amount(after.Cost)))
	case after.Cost != before.Cost:
		return "cost per hour " + change(amount(before.Cost), amount(after.Cost))
	}
	return "no change"
}
