package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// million is the number of micro-units in a unit.
	million = 1e6
	// maxGroups is the number of groups that have series of their own: the first ones of a decision. Costs, variants and problems count
	// all.
	maxGroups = 4096
)

// Plans that have a share and a cost.
const (
	planOptimal = "optimal"
	planActed   = "acted"
)

// plan exports the figures of the last decision, all of them of the same one.
type plan struct {
	published

	demand, share, cost, gap, groups, variants, problems *prometheus.Desc
}

func newPlan() *plan {
	p := &plan{}
	p.demand = p.newDesc("fairlead_autoscaler_demand_requests_per_second",
		"Rate of requests that a group of variants is planned for, with headroom. The label role is empty for servers of whole requests.", "namespace", "pool", "model", "role")
	p.share = p.newDesc("fairlead_autoscaler_share",
		"Part of the demand of a group that is served within the targets, by plan: optimal, or acted (after hysteresis and stabilization).",
		"namespace", "pool", "model", "role", "plan")
	p.cost = p.newDesc("fairlead_autoscaler_cost_per_hour", "Cost of the replicas of all variants without a problem, in the unit of the prices, by plan: optimal or acted.", "plan")
	p.gap = p.newDesc("fairlead_autoscaler_cost_gap_per_hour",
		"What the optimal plan may cost above the least possible cost. 0 if the optimum is proven.")
	p.groups = p.newDesc("fairlead_autoscaler_groups", "Groups of variants that share a load. The first 4096 have series of their own.")
	p.variants = p.newDesc("fairlead_autoscaler_variants", "Variants, by the reason of their desired replicas.", "reason")
	p.problems = p.newDesc("fairlead_autoscaler_variant_problems", "Variants that are not part of the choice, by the reason of their problem.", "reason")
	return p
}

func (p *plan) clearPlan() { p.current.Store(nil) }

// setDecision replaces the figures.
func (p *plan) setDecision(s *snapshot.Snapshot, d *decision.Decision) {
	var figures []series
	add := func(desc *prometheus.Desc, value float64, values ...string) {
		figures = append(figures, series{desc, prometheus.GaugeValue, value, values})
	}
	add(p.cost, float64(d.Cost)/million, planOptimal)
	add(p.cost, float64(d.Acted)/million, planActed)
	add(p.gap, float64(d.Cost-d.Bound)/million)

	groups := min(len(s.Groups), len(d.Groups))
	add(p.groups, float64(groups))
	variants, problems, seen := map[string]int{}, map[string]int{}, map[[4]string]bool{}
	for i := range groups {
		group, decided := &s.Groups[i], &d.Groups[i]
		countVariants(group, decided, variants, problems)
		names := [4]string{labelValue(group.Namespace), labelValue(group.Pool), labelValue(group.Model), string(group.Role)}
		if len(seen) == maxGroups || seen[names] { // names that are equal once they are cut
			continue
		}
		seen[names] = true
		add(p.demand, float64(decided.Demand)/million, names[:]...)
		add(p.share, float64(decided.Share)/million, append(names[:], planOptimal)...)
		add(p.share, float64(decided.Acted)/million, append(names[:], planActed)...)
	}
	for reason, n := range variants {
		add(p.variants, float64(n), reason)
	}
	for reason, n := range problems {
		add(p.problems, float64(n), reason)
	}
	p.current.Store(&figures)
}

// countVariants counts the variants of a group by reason.
func countVariants(group *snapshot.Group, decided *decision.Group, variants, problems map[string]int) {
	for j := range min(len(group.Variants), len(decided.Variants)) {
		variants[labelValue(string(decided.Variants[j].Reason))]++
		if problem := group.Variants[j].Problem; problem != nil {
			problems[labelValue(problem.Reason)]++
		}
	}
}
