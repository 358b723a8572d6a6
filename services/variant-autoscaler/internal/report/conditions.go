package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/apis/llmd/v1alpha1"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// maxMessage is the length at which a message is cut. Messages can hold text of tenants, and an object has eight of them. The longest
	// of our own have 300 characters.
	maxMessage = 1024
	// fullShare is a share that is served completely.
	fullShare = 1_000_000
)

// remedies are what to do about reasons of False, where the message of a decision does not say it.
var remedies = map[string]string{
	v1alpha1.ReasonOptimizationFailed: "The last decision stands. See the log of the variant-autoscaler",
	v1alpha1.ReasonMetricsUnavailable: "The last decision stands. See the condition MetricsAvailable",
	v1alpha1.ReasonFallbackUsed:       "There is no earlier decision, so the workload keeps its replicas within its bounds. See the condition MetricsAvailable",
	v1alpha1.ReasonCapacityUnknown:    "Set spec.variantProfile, or let a replica serve requests so that it can be measured",
}

// metricsRemedies are messages of loads that have none.
var metricsRemedies = map[snapshot.LoadState]string{
	snapshot.Missing: "Prometheus has no series of the model: check that it scrapes the model servers and the endpoint picker",
	snapshot.Stale:   "The newest sample of the model is too old: check that Prometheus still scrapes the model servers",
	snapshot.Failed:  "Prometheus does not answer: check its address and the credentials of the variant-autoscaler",
}

// allConditions returns all conditions, without their times and generations.
func (in *StatusInput) allConditions() []metav1.Condition {
	optimization, applied := in.optimizationReady(), in.appliedCondition()
	return []metav1.Condition{
		in.readyCondition(&optimization, &applied), applied, in.targetResolved(), in.targetConflict(), in.metricsAvailable(), optimization,
		in.capacityLimited(&optimization), in.boundsBinding(&optimization),
	}
}

// problemReason returns the reason that conditions have for a problem.
func problemReason(p *snapshot.Problem) string {
	if p.Reason == snapshot.TargetConflict {
		return v1alpha1.ReasonSuppressedDueToConflict
	}
	return p.Reason
}

func (in *StatusInput) optimizationReady() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionOptimizationReady, Status: metav1.ConditionFalse, Reason: in.decisionReason()}
	text := ""
	switch {
	case in.Variant.Problem != nil:
		text = in.Variant.Problem.Message
	case in.Decision == nil:
		text = "The pass made no decision on this variant"
	default:
		text = in.Decision.Message
		c.Status, c.Reason = in.optimizationStatus()
	}
	if c.Status == metav1.ConditionFalse {
		text = joinSentences(text, remedies[c.Reason])
	}
	for i := range in.Notes {
		text = joinSentences(text, in.Notes[i].Message)
	}
	c.Message = cmp.Or(text, c.Reason)
	return c
}

// optimizationStatus returns status and reason of OptimizationReady for a decision.
func (in *StatusInput) optimizationStatus() (metav1.ConditionStatus, string) {
	switch r := in.Decision.Reason; r {
	case decision.NoMetrics:
		if !in.Variant.Decided {
			return metav1.ConditionFalse, v1alpha1.ReasonFallbackUsed
		}
		return metav1.ConditionFalse, v1alpha1.ReasonMetricsUnavailable
	case decision.NoCapacity, decision.OutOfReach, decision.Excluded:
		return metav1.ConditionFalse, string(r)
	case decision.Probing:
		return metav1.ConditionTrue, v1alpha1.ReasonProbing
	case decision.NoTargets:
		return metav1.ConditionTrue, v1alpha1.ReasonNoServiceClass
	}
	if in.Variant.Profile == nil {
		return metav1.ConditionTrue, v1alpha1.ReasonSaturationOnlyMode
	}
	return metav1.ConditionTrue, v1alpha1.ReasonOptimizationSucceeded
}

func (in *StatusInput) appliedCondition() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotApplied}
	switch o := &in.Outcome; {
	case o.Reason != "":
		c.Reason, c.Message = o.Reason, o.Message
	case in.Variant.Problem != nil:
		c.Message = "The variant is excluded. See the condition OptimizationReady"
	default:
		c.Message = "There are no desired replicas yet. If this lasts, see the log of the variant-autoscaler"
	}
	if in.Outcome.Applied {
		c.Status = metav1.ConditionTrue
	}
	return c
}

func (in *StatusInput) readyCondition(optimization, applied *metav1.Condition) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: optimization.Reason,
		Message: optimization.Message}
	switch {
	case c.Reason == v1alpha1.ReasonSuppressedDueToConflict:
		c.Reason = v1alpha1.ReasonDeploymentTargetConflict
	case optimization.Status != metav1.ConditionTrue:
	case applied.Status != metav1.ConditionTrue:
		c.Reason, c.Message = applied.Reason, applied.Message
	default:
		c.Status, c.Message = metav1.ConditionTrue, applied.Message
	}
	return c
}

func (in *StatusInput) targetResolved() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionTargetResolved, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonTargetFound}
	c.Message = fmt.Sprintf("%s %s exists", in.Variant.Target.Kind, in.Variant.Target.Name)
	p := in.Variant.Problem
	switch {
	case p == nil:
	case p.Reason == v1alpha1.ReasonTargetNotFound || p.Reason == v1alpha1.ReasonUnsupportedTarget:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, p.Reason, p.Message
	case in.Load == nil: // it is in no group
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, problemReason(p), "The workload was not read, as the variant is excluded: "+p.Message
	}
	return c
}

func (in *StatusInput) targetConflict() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionDeploymentTargetConflict, Status: metav1.ConditionTrue}
	won := slices.IndexFunc(in.Notes, func(n snapshot.Problem) bool { return n.Reason == v1alpha1.ReasonConflictResolvedByArbitration })
	switch p := in.Variant.Problem; {
	case p != nil && p.Reason == snapshot.TargetConflict:
		c.Reason, c.Message = v1alpha1.ReasonSuppressedDueToConflict, p.Message
	case won >= 0:
		c.Reason, c.Message = v1alpha1.ReasonConflictResolvedByArbitration, in.Notes[won].Message
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNoConflict, "No other variant has the workload"
	}
	return c
}

func (in *StatusInput) metricsAvailable() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionMetricsAvailable, Status: metav1.ConditionFalse}
	switch {
	case in.Load == nil || in.Load.State == "":
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonMetricsNotRead
		c.Message = "The load was not read, as the variant is excluded. See the condition OptimizationReady"
	case in.Load.State == snapshot.Found:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonMetricsFound, "The load of the model is known"
	default:
		c.Reason, c.Message = string(in.Load.State), cmp.Or(in.Load.Message, metricsRemedies[in.Load.State], string(in.Load.State))
	}
	return c
}

func (in *StatusInput) capacityLimited(optimization *metav1.Condition) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionCapacityLimited, Status: metav1.ConditionFalse}
	if !isPlanned(optimization) {
		return undecidedCondition(c, optimization)
	}
	c.Reason, c.Message = v1alpha1.ReasonCapacitySufficient, "No limit keeps the variant from replicas"
	var names []string
	for i := range in.Limiting {
		l := &in.Limiting[i]
		if !l.CountsVariant(in.Variant, in.Priority) {
			continue
		}
		names = append(names, fmt.Sprintf("%s (%d %s)", l.Name, l.Amount, amountUnit(l)))
		c.Status = metav1.ConditionTrue
		if l.Unit == snapshot.Cards {
			c.Reason = v1alpha1.ReasonInsufficientAccelerators
		} else if c.Reason != v1alpha1.ReasonInsufficientAccelerators {
			c.Reason = v1alpha1.ReasonQuotaExceeded
		}
	}
	if len(names) > 0 {
		c.Message = fmt.Sprintf("The model serves %s of its demand with the limits %s: raise them, or lower minReplicas of other variants",
			formatShare(in.Group), strings.Join(names, ", "))
	}
	if in.Decision.Short != "" {
		text := in.Decision.Short
		if c.Status == metav1.ConditionTrue {
			text = joinSentences(c.Message, text)
		}
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonInsufficientAccelerators, text
	}
	return c
}

func amountUnit(l *snapshot.Limit) string {
	if l.Unit == snapshot.Cost {
		return "micro-units of cost per hour"
	}
	return string(l.Unit)
}

func (in *StatusInput) boundsBinding(optimization *metav1.Condition) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionBoundsBinding, Status: metav1.ConditionTrue}
	d := in.Decision
	if !isPlanned(optimization) {
		c.Status = metav1.ConditionFalse
		return undecidedCondition(c, optimization)
	}
	switch served := in.Group.Served(); {
	case d.Max > 0 && d.Planned >= d.Max && served.Share < fullShare:
		c.Reason = v1alpha1.ReasonMaxReplicasBinding
		c.Message = fmt.Sprintf("The model serves %s of its demand, and this variant has its maximum of %d replicas: raise maxReplicas",
			formatShare(in.Group), d.Max)
	case d.Min > 0 && d.Desired <= d.Min && d.ShareWithout >= served.Acted:
		c.Reason = v1alpha1.ReasonMinReplicasBinding
		c.Message = fmt.Sprintf("The minimum of %d replicas is more than the load needs: lower minReplicas to save cost", d.Min)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonWithinBounds, "The bounds do not change the plan"
	}
	return c
}

// isPlanned reports whether the replicas of the variant come from a plan, also from one that cannot meet the targets. Then there is a
// decision on it.
func isPlanned(optimization *metav1.Condition) bool {
	return optimization.Status == metav1.ConditionTrue || optimization.Reason == v1alpha1.ReasonTargetsOutOfReach
}

// undecidedCondition returns a condition that is not known without an optimization.
func undecidedCondition(c metav1.Condition, optimization *metav1.Condition) metav1.Condition {
	c.Status, c.Reason, c.Message = metav1.ConditionUnknown, optimization.Reason, "The variant is not part of an optimization. See the condition OptimizationReady"
	return c
}

func formatShare(g *decision.Group) string {
	return fmt.Sprintf("%.1f %%", float64(g.Served().Share)/fullShare*100)
}

// joinSentences makes sentences of two texts. A text that is there already is not repeated.
func joinSentences(a, b string) string {
	switch a = strings.TrimSuffix(a, "."); {
	case a == "" || b == "":
		return a + b
	case strings.Contains(a, b):
		return a
	}
	return a + ". " + b
}

// number is a number in a message.
var number = regexp.MustCompile(`\p{Nd}[\p{Nd}.]*`)

// withoutNumbers returns a text in which each number has become one #.
func withoutNumbers(text string) string { return number.ReplaceAllLiteralString(text, "#") }
