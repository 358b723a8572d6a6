package decisionlog

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	million = 1e6
	padding = 2
)

// PrintTable prints a decision: a line for each model and one for each of its variants, and the costs of all.
func PrintTable(out io.Writer, s *snapshot.Snapshot, d *decision.Decision) error {
	w := tabwriter.NewWriter(out, 0, 0, padding, ' ', 0)
	for g := range d.Groups {
		group, decided := &s.Groups[g], &d.Groups[g]
		fmt.Fprintf(w, "%s: %s\n", nameOf(group), loadOf(group, decided))
		fmt.Fprintln(w, "  VARIANT\tACCELERATOR\tCOST\tNOW\tPLANNED\tDESIRED\tCAPACITY\tTTFT\tITL\tREASON\tMESSAGE")
		for i := range decided.Variants {
			v, n := &group.Variants[i], &decided.Variants[i]
			ttft, itl := formatPredicted(n)
			fmt.Fprintf(w, "  %s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", cleanText(v.Name), cmp.Or(cleanText(v.Accelerator), "-"),
				formatAmount(v.Cost), v.Now, n.Planned,
				n.Desired, formatCapacity(n), ttft, itl, n.Reason, cleanText(n.Message))
		}
		if decided.Standby != "" {
			fmt.Fprintf(w, "  %s starts first when a request waits\n", cleanText(decided.Standby))
		}
		if decided.Warm != nil {
			fmt.Fprintf(w, "  %s: %s\n", cleanText(decided.Warm.String()),
				map[bool]string{true: "a replica stays", false: "the model may have none"}[decided.Warm.Keeps])
		}
		fmt.Fprintln(w)
	}
	known := ""
	if slices.ContainsFunc(d.Groups, hasUnknown) {
		known = " with the variants whose capacity is known"
	}
	fmt.Fprintf(w, "cost per hour: plan %s (no plan%s that serves as much costs less than %s), desired %s\n", formatAmount(d.Cost), known,
		formatAmount(d.Bound), formatAmount(d.Acted))
	if len(d.Limiting) > 0 {
		fmt.Fprintf(w, "limits that bind: %s\n", cleanText(strings.Join(d.Limiting, ", ")))
	}
	if err := printRaisedLimits(w, s, d); err != nil {
		return err
	}
	return w.Flush()
}

// PrintComparison prints what differs between two decisions on the same variants.
func PrintComparison(out io.Writer, s *snapshot.Snapshot, before, after *decision.Decision) error {
	w := tabwriter.NewWriter(out, 0, 0, padding, ' ', 0)
	fmt.Fprintln(w, "VARIANT\tPLANNED\tDESIRED\tCAPACITY\tREASON")
	for g := range after.Groups {
		for i := range after.Groups[g].Variants {
			v, a, b := &s.Groups[g].Variants[i], &before.Groups[g].Variants[i], &after.Groups[g].Variants[i]
			fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\t%s\n", cleanText(v.Namespace), cleanText(v.Name),
				formatChange(strconv.Itoa(a.Planned), strconv.Itoa(b.Planned)),
				formatChange(strconv.Itoa(a.Desired), strconv.Itoa(b.Desired)), formatChange(formatCapacity(a), formatCapacity(b)),
				formatChange(string(a.Reason), string(b.Reason)))
		}
	}
	fmt.Fprintln(w)
	for g := range after.Groups {
		a, b := formatShare(before.Groups[g].Share), formatShare(after.Groups[g].Share)
		if a != b {
			fmt.Fprintf(w, "%s: the plan serves %s of the demand\n", nameOf(&s.Groups[g]), formatChange(a, b))
		}
	}
	fmt.Fprintf(w, "cost per hour: plan %s, desired %s\n", formatChange(formatAmount(before.Cost), formatAmount(after.Cost)),
		formatChange(formatAmount(before.Acted), formatAmount(after.Acted)))
	return w.Flush()
}

func formatChange(before, after string) string {
	if before == after {
		return after
	}
	return before + " -> " + after
}

func nameOf(g *snapshot.Group) string {
	name := cleanText(g.Namespace) + "/" + cleanText(g.Model)
	if g.Pool != "" {
		name += " (pool " + cleanText(g.Pool) + ")"
	}
	if g.Role != snapshot.Aggregated {
		name += ", " + cleanText(string(g.Role))
	}
	return name
}

// loadOf says what the demand of a group is and how much of it is served.
func loadOf(g *snapshot.Group, d *decision.Group) string {
	class := "no service class"
	if g.Class != "" {
		class = fmt.Sprintf("class %s, priority %d", cleanText(g.Class), g.Priority)
	}
	if t := g.Targets; t.TTFT > 0 || t.ITL > 0 {
		class += fmt.Sprintf(", targets TTFT %s, ITL %s", formatMillis(t.TTFT), formatMillis(t.ITL))
		if t.TTFTPerToken > 0 {
			class += fmt.Sprintf(" (TTFT with %s for each of %.4g uncached prompt tokens)", formatMillis(t.TTFTPerToken), g.Load.UncachedInput())
		}
	}
	if g.Load.State != snapshot.Found {
		return fmt.Sprintf("%s; the load is not known (%s: %s)", class, g.Load.State, cleanText(g.Load.Message))
	}
	return fmt.Sprintf("%s; %.4g requests/s of %.4g + %.4g tokens, demand %.4g requests/s, the plan serves %s", class, float64(g.Load.Rate)/million,
		g.Load.Input, g.Load.Output, float64(d.Demand)/million, formatServed(d))
}

func hasUnknown(g decision.Group) bool {
	return slices.ContainsFunc(g.Variants, func(v decision.Variant) bool {
		return v.Reason == decision.NoCapacity || v.Reason == decision.Probing
	})
}

func formatServed(d *decision.Group) string {
	if d.Stable == nil {
		return formatShare(d.Share)
	}
	return fmt.Sprintf("%s within the targets, which cannot be met for more, and %s at a stable load", formatShare(d.Share),
		formatShare(d.Stable.Share))
}

func formatShare(millionths int64) string {
	return strconv.FormatFloat(float64(millionths)/1e4, 'f', -1, 64) + " %"
}

func formatAmount(micro int64) string {
	return strconv.FormatFloat(float64(micro)/million, 'f', -1, 64)
}

func formatCapacity(n *decision.Variant) string {
	if n.Capacity == 0 {
		return "-"
	}
	text := fmt.Sprintf("%.4g/s", float64(n.Capacity)/million)
	if n.CapacitySource != decision.FromProfile {
		text += fmt.Sprintf(" (%s, %.0f %% sure)", n.CapacitySource, n.Confidence*100) // percent
	}
	return text
}

func formatPredicted(n *decision.Variant) (ttft, itl string) {
	if n.Predicted == nil {
		return "-", "-"
	}
	return formatMillis(n.Predicted.TTFT), formatMillis(n.Predicted.ITL)
}

func formatMillis(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return fmt.Sprintf("%.4gms", ms)
}

// cleanText removes what could change the terminal: names and messages can contain what a tenant wrote.
func cleanText(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
