// Package explain prints decisions as tables for people, and changes snapshots for questions of the kind "what if".
package explain

import (
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

// Table prints a decision: a line for each model and one for each of its variants, and the costs of all.
func Table(out io.Writer, s *snapshot.Snapshot, d *decision.Decision) error {
	w := tabwriter.NewWriter(out, 0, 0, padding, ' ', 0)
	for g := range d.Groups {
		group, decided := &s.Groups[g], &d.Groups[g]
		fmt.Fprintf(w, "%s: %s\n", nameOf(group), loadOf(group, decided))
		fmt.Fprintln(w, "  VARIANT\tACCELERATOR\tCOST\tNOW\tPLANNED\tDESIRED\tCAPACITY\tTTFT\tITL\tREASON\tMESSAGE")
		for i := range decided.Variants {
			v, n := &group.Variants[i], &decided.Variants[i]
			ttft, itl := predicted(n)
			fmt.Fprintf(w, "  %s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", clean(v.Name), orDash(clean(v.Accelerator)), amount(v.Cost), v.Now, n.Planned,
				n.Desired, capacity(n), ttft, itl, n.Reason, clean(n.Message))
		}
		if decided.Standby != "" {
			fmt.Fprintf(w, "  %s starts first when a request waits\n", clean(decided.Standby))
		}
		if decided.Warm != nil {
			fmt.Fprintf(w, "  %s: %s\n", clean(decided.Warm.String()), map[bool]string{true: "a replica stays", false: "the model may have none"}[decided.Warm.Keeps])
		}
		fmt.Fprintln(w)
	}
	known := ""
	if slices.ContainsFunc(d.Groups, hasUnknown) {
		known = " with the variants whose capacity is known"
	}
	fmt.Fprintf(w, "cost per hour: plan %s (no plan%s that serves as much costs less than %s), desired %s\n", amount(d.Cost), known, amount(d.Bound), amount(d.Acted))
	if len(d.Limiting) > 0 {
		fmt.Fprintf(w, "limits that bind: %s\n", clean(strings.Join(d.Limiting, ", ")))
	}
	if err := oneMore(w, s, d); err != nil {
		return err
	}
	return w.Flush() //nolint:wrapcheck // the error of out
}

// Compare prints what differs between two decisions on the same variants.
func Compare(out io.Writer, s *snapshot.Snapshot, before, after *decision.Decision) error {
	w := tabwriter.NewWriter(out, 0, 0, padding, ' ', 0)
	fmt.Fprintln(w, "VARIANT\tPLANNED\tDESIRED\tCAPACITY\tREASON")
	for g := range after.Groups {
		for i := range after.Groups[g].Variants {
			v, a, b := &s.Groups[g].Variants[i], &before.Groups[g].Variants[i], &after.Groups[g].Variants[i]
			fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\t%s\n", clean(v.Namespace), clean(v.Name), change(strconv.Itoa(a.Planned), strconv.Itoa(b.Planned)),
				change(strconv.Itoa(a.Desired), strconv.Itoa(b.Desired)), change(capacity(a), capacity(b)), change(string(a.Reason), string(b.Reason)))
		}
	}
	fmt.Fprintln(w)
	for g := range after.Groups {
		a, b := share(before.Groups[g].Share), share(after.Groups[g].Share)
		if a != b {
			fmt.Fprintf(w, "%s: the plan serves %s of the demand\n", nameOf(&s.Groups[g]), change(a, b))
		}
	}
	fmt.Fprintf(w, "cost per hour: plan %s, desired %s\n", change(amount(before.Cost), amount(after.Cost)), change(amount(before.Acted), amount(after.Acted)))
	return w.Flush() //nolint:wrapcheck // the error of out
}

func change(before, after string) string {
	if before == after {
		return after
	}
	return before + " -> " + after
}

func nameOf(g *snapshot.Group) string {
	name := clean(g.Namespace) + "/" + clean(g.Model)
	if g.Pool != "" {
		name += " (pool " + clean(g.Pool) + ")"
	}
	if g.Role != snapshot.Aggregated {
		name += ", " + clean(string(g.Role))
	}
	return name
}

// loadOf says what the demand of a group is and how much of it is served.
func loadOf(g *snapshot.Group, d *decision.Group) string {
	class := "no service class"
	if g.Class != "" {
		class = fmt.Sprintf("class %s, priority %d", clean(g.Class), g.Priority)
	}
	if t := g.Targets; t.TTFT > 0 || t.ITL > 0 {
		class += fmt.Sprintf(", targets TTFT %s, ITL %s", milliseconds(t.TTFT), milliseconds(t.ITL))
		if t.TTFTPerToken > 0 {
			class += fmt.Sprintf(" (TTFT with %s for each of %.4g uncached prompt tokens)", milliseconds(t.TTFTPerToken), g.Load.UncachedInput())
		}
	}
	if g.Load.State != snapshot.Found {
		return fmt.Sprintf("%s; the load is not known (%s: %s)", class, g.Load.State, clean(g.Load.Message))
	}
	return fmt.Sprintf("%s; %.4g requests/s of %.4g + %.4g tokens, demand %.4g requests/s, the plan serves %s", class, float64(g.Load.Rate)/million,
		g.Load.Input, g.Load.Output, float64(d.Demand)/million, served(d))
}

func hasUnknown(g decision.Group) bool {
	return slices.ContainsFunc(g.Variants, func(v decision.Variant) bool { return v.Reason == decision.NoCapacity || v.Reason == decision.Probing })
}

func served(d *decision.Group) string {
	if d.Stable == nil {
		return share(d.Share)
	}
	return fmt.Sprintf("%s within the targets, which cannot be met for more, and %s at a stable load", share(d.Share), share(d.Stable.Share))
}

func share(millionths int64) string {
	return strconv.FormatFloat(float64(millionths)/1e4, 'f', -1, 64) + " %"
}

func amount(micro int64) string { return strconv.FormatFloat(float64(micro)/million, 'f', -1, 64) }

func capacity(n *decision.Variant) string {
	if n.Capacity == 0 {
		return "-"
	}
	text := fmt.Sprintf("%.4g/s", float64(n.Capacity)/million)
	if n.CapacitySource != decision.FromProfile {
		text += fmt.Sprintf(" (%s, %.0f %% sure)", n.CapacitySource, n.Confidence*100) //nolint:mnd // percent
	}
	return text
}

func predicted(n *decision.Variant) (ttft, itl string) {
	if n.Predicted == nil {
		return "-", "-"
	}
	return milliseconds(n.Predicted.TTFT), milliseconds(n.Predicted.ITL)
}

func milliseconds(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return fmt.Sprintf("%.4gms", ms)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// clean removes what could change the terminal: names and messages can contain what a tenant wrote.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
