package report

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/apis/llmd/v1alpha1"
	"fairlead.dev/pkg/conditions"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// figuresInterval is the time after which changed figures are written on their own. 10 000 variants with load cost 17 writes per second
	// with it.
	figuresInterval = 10 * time.Minute
	// maxChange is the largest numReplicasChanged that the schema permits.
	maxChange = 10_000
	// maxStart is the largest startSeconds that it permits.
	maxStart = 24 * 60 * 60
)

// StatusInput is what the status of a variant follows from.
type StatusInput struct {
	// Object is the VariantAutoscaling that the decision is about, with its last status. ObjectOf makes one from what an informer keeps.
	Object *v1alpha1.VariantAutoscaling
	Time   time.Time

	Variant *snapshot.Variant
	// Notes are what the owner of the variant should know. The variant takes part in the choice.
	Notes []snapshot.Problem
	// Load is that of the variant's group. Nil: the variant is in no group.
	Load *snapshot.Load
	// Group and Decision are nil if nothing was decided. Then the last decision stands.
	Group    *decision.Group
	Decision *decision.Variant
	// Limiting are the limits that make the plan serve less or cost more, as LimitsOf returns them. Priority is that of the variant's
	// group.
	Limiting []snapshot.Limit
	Priority int
	// Outcome is what became of the decision. It is empty if there is none.
	Outcome decision.Outcome
}

// ObjectOf returns an object with what BuildStatus and Write need of it. status is the JSON of its status, or empty. What cannot be read of
// it is left out, and will be replaced.
func ObjectOf(ref *corev1.ObjectReference, generation int64, status []byte) *v1alpha1.VariantAutoscaling {
	object := &v1alpha1.VariantAutoscaling{ObjectMeta: metav1.ObjectMeta{
		Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID, ResourceVersion: ref.ResourceVersion, Generation: generation,
	}}
	_ = json.Unmarshal(status, &object.Status)
	return object
}

// LimitsOf returns the limits of a snapshot that a decision names.
func LimitsOf(s *snapshot.Snapshot, d *decision.Decision) []snapshot.Limit {
	return slices.DeleteFunc(slices.Clone(s.Limits), func(l snapshot.Limit) bool { return !slices.Contains(d.Limiting, l.Name) })
}

// BuildStatus returns the whole new status.
func BuildStatus(in *StatusInput) v1alpha1.VariantAutoscalingStatus {
	last := in.Object.Status.DeepCopy()
	next := last.DeepCopy()
	next.ObservedGeneration = in.Object.Generation
	next.Decision = in.decisionReason()
	next.Predicted = in.predictedFigures()
	if seconds := in.Variant.Start.Round(time.Second) / time.Second; seconds > 0 {
		next.StartSeconds = int32(min(seconds, maxStart))
	}
	next.Actuation = &v1alpha1.Actuation{Applied: in.Outcome.Applied}
	if in.Decision != nil || in.Variant.Now > 0 { // otherwise, the target was not read
		next.CurrentAlloc = &v1alpha1.Allocation{NumReplicas: int32(in.Variant.Now)}
	}
	next.DesiredOptimizedAlloc = in.desiredAllocation(next.Decision)
	for _, c := range in.allConditions() {
		c.ObservedGeneration = in.Object.Generation
		next.Conditions = setCondition(next.Conditions, c, in.Time)
	}
	if !in.isWorthWriting(last, next) {
		return *last
	}
	if next.DesiredOptimizedAlloc != nil {
		next.DesiredOptimizedAlloc.LastRunTime = in.timestamp()
	}
	return *next
}

// isWorthWriting reports whether something besides figures differs, or figures do and are old.
func (in *StatusInput) isWorthWriting(last, next *v1alpha1.VariantAutoscalingStatus) bool {
	if equality.Semantic.DeepEqual(last, next) {
		return false
	}
	if d := last.DesiredOptimizedAlloc; d != nil && d.LastRunTime != nil && in.Time.Sub(d.LastRunTime.Time) >= figuresInterval {
		return true
	}
	return !equality.Semantic.DeepEqual(withoutFigures(last), withoutFigures(next))
}

// withoutFigures returns a status without predictions and times, and without the digits of messages.
func withoutFigures(s *v1alpha1.VariantAutoscalingStatus) *v1alpha1.VariantAutoscalingStatus {
	s = s.DeepCopy()
	s.Predicted = nil // the load of a small model comes and goes
	s.StartSeconds = 0
	for i := range s.Conditions {
		s.Conditions[i].Message = withoutNumbers(s.Conditions[i].Message)
	}
	return s
}

// setCondition sets a condition in its place. All others stay as they are.
func setCondition(existing []metav1.Condition, c metav1.Condition, now time.Time) []metav1.Condition {
	c.Message = conditions.TruncateMessage(c.Message, maxMessage)
	i := slices.IndexFunc(existing, func(o metav1.Condition) bool { return o.Type == c.Type })
	if i < 0 {
		return append(existing, conditions.Set(nil, c, now))
	}
	existing[i] = conditions.Set(&existing[i], c, now)
	return existing
}

// decisionReason returns the machine-readable reason of the decision.
func (in *StatusInput) decisionReason() string {
	switch {
	case in.Variant.Problem != nil:
		return problemReason(in.Variant.Problem)
	case in.Decision == nil:
		return v1alpha1.ReasonOptimizationFailed
	}
	return string(in.Decision.Reason)
}

// desiredAllocation returns the whole desired allocation: some released CRDs refuse a part of it.
func (in *StatusInput) desiredAllocation(reason string) *v1alpha1.OptimizedAllocation {
	last := cmp.Or(in.Object.Status.DesiredOptimizedAlloc, &v1alpha1.OptimizedAllocation{})
	n := last.NumReplicas
	if in.Decision != nil {
		n = new(int32(in.Decision.Desired))
	}
	if n == nil {
		return nil
	}
	next := &v1alpha1.OptimizedAllocation{
		LastRunTime: last.LastRunTime.DeepCopy(),
		Accelerator: cmp.Or(in.Variant.Accelerator, last.Accelerator, v1alpha1.UnknownAccelerator), NumReplicas: n,
		LastUpdate: last.LastUpdate.DeepCopy(),
	}
	if u := last.LastUpdate; u != nil && last.NumReplicas != nil && *last.NumReplicas == *n && u.Reason == reason {
		return next
	}
	before := ptr.Deref(last.NumReplicas, int32(in.Variant.Now))
	next.LastUpdate = &v1alpha1.AllocationUpdate{UpdateTime: in.timestamp(), NumReplicasChanged: min(max(*n-before, -maxChange), maxChange),
		Reason: reason}
	return next
}

func (in *StatusInput) timestamp() *metav1.Time {
	return new(metav1.NewTime(in.Time.UTC().Truncate(time.Second)))
}

// predictedFigures returns the figures that a decision predicts, for people.
func (in *StatusInput) predictedFigures() *v1alpha1.Prediction {
	if in.Decision == nil || in.Decision.Predicted == nil {
		return nil
	}
	p := in.Decision.Predicted
	return &v1alpha1.Prediction{TTFT: formatDuration(p.TTFT), ITL: formatDuration(p.ITL), Utilization: formatPercentage(p.Utilization)}
}

// formatDuration formats milliseconds with three digits: 812ms, 24.1ms, 1.24s.
func formatDuration(ms float64) string {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(ms, 'e', 2, 64), 64)
	switch {
	case err != nil || math.IsNaN(rounded) || math.IsInf(rounded, 0):
		return "" // not known
	case rounded >= 1000:
		return strconv.FormatFloat(rounded/1000, 'f', -1, 64) + "s"
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64) + "ms"
}

func formatPercentage(part float64) string {
	if math.IsNaN(part) || math.IsInf(part, 0) {
		return "" // not known
	}
	return strconv.FormatFloat(part*100, 'f', 0, 64) + "%"
}
