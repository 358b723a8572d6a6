package decision

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// buildDecision returns the decision, with the reasons for it.
func (d *decider) buildDecision() *Decision {
	decision := &Decision{Cost: d.plan.Cost, Bound: d.plan.Bound}
	for _, l := range d.plan.Limiting {
		decision.Binding = append(decision.Binding, d.limits[l].Binding)
		decision.Limiting = append(decision.Limiting, d.limits[l].Name)
	}
	d.used = nil // the room for standbys is what is left beside the decision
	for g := range d.snapshot.Groups {
		desired := d.desired[g]
		group := Group{Demand: d.report.Demand(g), Share: d.plan.Shares[g], Acted: d.report.Share(g, desired)}
		if d.groups[g].relaxed {
			if within := d.within.Share(g, d.planned[g]); within < optimizer.Million {
				group.Stable = &Served{Share: group.Share, Acted: group.Acted}
				group.Share, group.Acted = within, d.within.Share(g, desired)
			}
		}
		for i := range desired {
			v := &d.snapshot.Groups[g].Variants[i]
			if v.Problem != nil { // no part of the plan
				decision.Cost -= v.Cost * int64(d.planned[g][i])
				decision.Bound -= v.Cost * int64(d.planned[g][i])
				continue
			}
			decision.Acted += v.Cost * int64(d.desired[g][i])
		}
		if first, end := d.snapshot.ModelGroups(g); first == g {
			d.nameStandbys(first, end)
		}
		group.Standby, group.Warm = d.groups[g].standbyName, d.compareWarm(g)
		loads := d.report.ReplicaLoads(g, desired, d.problem.Groups[g].Rate)
		for i := range desired {
			group.Variants = append(group.Variants, d.explainVariant(g, i, desired, loads[i]))
		}
		decision.Groups = append(decision.Groups, group)
	}
	return decision
}

// explainVariant returns the decision on a variant of which each replica gets a load.
func (d *decider) explainVariant(g, i int, desired []int, load int64) Variant {
	v := &d.variants[g][i]
	c := &v.capacity
	variant := Variant{
		Min: v.bounds.Min, Max: v.bounds.Max, Planned: d.planned[g][i], Wanted: d.wanted[g][i], Desired: d.desired[g][i],
		Capacity: c.rate, CapacitySource: c.source, Confidence: c.confidence,
		Trial: v.trial, Predicted: predictFigures(c, load, d.snapshot.Settings.Percentile), CostAlone: d.costAlone(g, i),
		Short: d.explainShortage(g, i),
	}
	if desired[i] > 0 {
		without := slices.Clone(desired)
		without[i]--
		variant.ShareWithout = d.report.Share(g, without)
	}
	if variant.Reason, variant.Message = d.variantReason(g, i); variant.Reason == OutOfReach {
		variant.Message = fmt.Sprintf("%s: %s. Raise the targets, or check the profile", d.describeOutOfReach(g, c, variant.Predicted),
			variant.Message)
	}
	if note := d.snapshot.Groups[g].Note; note != "" && variant.Reason != Excluded {
		variant.Message += "; " + note
	}
	return variant
}

// describeOutOfReach says which latencies replicas give where the targets cannot be met.
func (d *decider) describeOutOfReach(g int, c *capacity, stable *Predicted) string {
	text := "No replica of the variant meets the targets of " + formatTargets(&d.snapshot.Groups[g])
	if c.model != nil {
		low, _ := c.model.RateRange()
		if idle, err := c.model.FiguresAt(low, d.snapshot.Settings.Percentile); err == nil {
			text += fmt.Sprintf(": an idle one gives TTFT %s and ITL %s", formatMillis(idle.TTFT*max(c.tail, 1)), formatMillis(idle.ITL))
		}
		if stable != nil {
			text += fmt.Sprintf(", one with its part of the load TTFT %s and ITL %s", formatMillis(stable.TTFT*max(c.tail, 1)),
				formatMillis(stable.ITL))
		}
	}
	return text + ". It is planned for a stable load"
}

// predictFigures returns the figures of a replica under a load, or nil without a model or a load.
func predictFigures(c *capacity, load int64, percentile float64) *Predicted {
	if c.model == nil || load == 0 {
		return nil
	}
	_, most := c.model.RateRange()
	figures, err := c.model.FiguresAt(min(float64(load)/1e6, most), percentile)
	if err != nil {
		return nil
	}
	return &Predicted{TTFT: figures.TTFT, ITL: figures.ITL, Utilization: figures.Utilization}
}

// costAlone returns what a group would cost with one variant alone, or 0 if that cannot serve the demand.
func (d *decider) costAlone(g, i int) int64 {
	demand := d.report.Demand(g)
	rate := d.variants[g][i].capacity.rate
	if rate == 0 || demand == 0 {
		return 0
	}
	n := (demand-1)/rate + 1
	if most := d.variants[g][i].bounds.Max; n > optimizer.MaxReplicas || most > 0 && n > int64(most) {
		return 0
	}
	return n * d.variantCost(g, i)
}

// variantReason says how the replicas of a variant came about.
func (d *decider) variantReason(g, i int) (Reason, string) {
	in, v := &d.snapshot.Groups[g], &d.variants[g][i]
	if problem := v.Problem; problem != nil {
		return Excluded, d.describeExcluded(g, i, problem)
	}
	if reason, text := d.reasonAsleep(g, i); reason != "" {
		return reason, text
	}
	switch c := &v.capacity; {
	case d.groups[g].frozen:
		return NoMetrics, fmt.Sprintf("%s, because the load is not known: %s", d.describeKept(g, i), in.Load.Message)
	case v.why == NodesFull || v.why == QuotaFull:
		return v.why, fmt.Sprintf("The plan has %s; %d for now: %s", formatReplicas(d.planned[g][i]), d.desired[g][i], d.explainShortage(g, i))
	case v.trial:
		return Probing, fmt.Sprintf("A replica runs for at most %d minutes: nothing says yet what one serves, and it is cheaper than others that serve", int(trialTime.Minutes()))
	case v.why == Probing:
		return Probing, "Started a replica: nothing says yet what one serves, and no other variant can serve the load"
	case c.reason == OutOfReach:
		_, text := d.reasonOfPlan(g, i)
		return OutOfReach, text
	case c.rate == 0:
		return d.reasonUnknown(g, i)
	default:
		return d.reasonOfPlan(g, i)
	}
}

// raisedMessages are the messages of replicas beyond the plan.
var raisedMessages = map[Reason]string{
	Starting:     "The plan has %s; %d stay until the replicas of other variants are ready",
	Bridging:     "The plan has %s; %d serve until the replicas of slower variants are ready",
	Saturated:    "The plan has %s; with %d, the servers stay within the thresholds of saturation",
	RatioBinding: "The plan has %s; with %d, the ratio of prefill to decode replicas keeps the bounds of the service class",
}

// describeExcluded says what happens to the replicas of a variant with a problem.
func (d *decider) describeExcluded(g, i int, p *snapshot.Problem) string {
	if d.desired[g][i] == 0 {
		return "Takes no part: " + p.Message
	}
	return fmt.Sprintf("%s: %s", d.describeKept(g, i), p.Message)
}

// reasonUnknown says how the replicas of a variant came about of which nothing says what one serves.
func (d *decider) reasonUnknown(g, i int) (Reason, string) {
	v := &d.snapshot.Groups[g].Variants[i]
	switch {
	case d.canStop(g) && d.desired[g][i] == 0:
		return d.reasonOfPlan(g, i)
	case !v.Tried.IsZero():
		return NoCapacity, fmt.Sprintf("%s: a trial from %s on did not show what one serves. Add a profile, or see why the replica got no requests", d.describeKept(g, i), v.Tried.UTC().Format(time.RFC3339))
	}
	return NoCapacity, fmt.Sprintf("%s: nothing says what one serves. Add a profile, or let a replica run under load", d.describeKept(g, i))
}

// reasonOfPlan says how the replicas of a variant that takes part in the choice came about.
func (d *decider) reasonOfPlan(g, i int) (Reason, string) {
	in, n, why := &d.snapshot.Groups[g], d.desired[g][i], d.variants[g][i].why
	switch planned, wanted := d.planned[g][i], d.wanted[g][i]; {
	case raisedMessages[why] != "":
		return why, fmt.Sprintf(raisedMessages[why], formatReplicas(planned), n)
	case n > wanted:
		return Stabilized, fmt.Sprintf("The plan has %s, but %d were wanted within the stabilization window", formatReplicas(planned), n)
	case wanted != planned:
		return SavingSmall, fmt.Sprintf("Kept %s: the plan with %d saves less than %d %%", formatReplicas(n), planned,
			d.snapshot.Settings.SavingPercent)
	case d.isLimited(g) && d.plan.Shares[g] < optimizer.Million:
		text := fmt.Sprintf("Limits leave no more than %s, so the model serves %.1f %% of its demand", formatReplicas(n),
			sharePercent(d.plan.Shares[g]))
		if short := d.explainShortage(g, i); short != "" {
			text += ": " + short
		}
		return LimitBinding, text
	case d.report.Demand(g) == 0 && n > 0 && in.Zero.Enabled && d.groups[g].keeper && d.retentionReason(g) != "":
		return Retained, fmt.Sprintf("%s instead of none, because %s", formatReplicas(n), d.retentionReason(g))
	default:
		return d.optimalReason(g, n)
	}
}

// optimalReason says that the replicas are those of the plan, and which demand the plan serves.
func (d *decider) optimalReason(g, n int) (Reason, string) {
	in := &d.snapshot.Groups[g]
	text := fmt.Sprintf("%s in the cheapest plan that serves %.1f %% of the demand of %.3f requests/s", formatReplicas(n),
		sharePercent(d.plan.Shares[g]), float64(d.report.Demand(g))/1e6)
	if d.hasUnknown(g) {
		text += " with the variants whose capacity is known"
	}
	if in.Class == "" && !in.Targets.IsSet() {
		return NoTargets, text + " at a stable load, as the model has no targets"
	}
	return Optimal, text
}

// isLimited reports whether a limit that makes the plan serve less or cost more counts a variant of the group.
func (d *decider) isLimited(g int) bool {
	return slices.ContainsFunc(d.plan.Limiting, func(l int) bool { return d.report.CountsGroup(l, g) })
}

// describeKept says how many replicas a variant keeps that the plan does not decide on.
func (d *decider) describeKept(g, i int) string {
	v, n := &d.snapshot.Groups[g].Variants[i], d.desired[g][i]
	switch {
	case n <= v.Now:
		return "Kept " + formatReplicas(n)
	case v.Decided:
		return "Kept the last decision, " + formatReplicas(n)
	default:
		return fmt.Sprintf("Asked for %s, the minimum", formatReplicas(n))
	}
}

func formatReplicas(n int) string { return formatCount(int64(n), "replica") }

func formatTargets(g *snapshot.Group) string {
	var texts []string
	wanted := g.Targets.ForRole(g.Role)
	if wanted.TTFT > 0 {
		texts = append(texts, "TTFT "+formatMillis(wanted.TTFT))
	}
	if wanted.ITL > 0 {
		texts = append(texts, "ITL "+formatMillis(wanted.ITL))
	}
	return strings.Join(texts, " and ")
}

func formatMillis(ms float64) string {
	const noFraction = 1000 // from here on
	if ms >= noFraction {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.4g ms", ms)
}

func sharePercent(share int64) float64 { return float64(share) * 100 / optimizer.Million }
