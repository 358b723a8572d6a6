package ome

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types.
const (
	conditionReady   = "Ready"
	conditionIngress = "IngressReady"
)

// Reasons and messages of OME's conditions.
const (
	reasonInitializing = "Initializing"
	reasonUnavailable  = "MinimumReplicasUnavailable"
	reasonDisabled     = "IngressDisabled"
	reasonNotReady     = "ComponentNotReady"
	reasonVirtual      = "VirtualDeployment"

	reasonAvailable    = "MinimumReplicasAvailable"
	messageAvailable   = "Deployment has minimum availability."
	messageUnavailable = "Deployment does not have minimum availability."
	messageDisabled    = "Ingress creation is disabled, using external service for access"
	messageNotReady    = "Target service not ready for ingress creation"
	messageVirtual     = "InferenceService is in VirtualDeployment mode"
)

// readyCondition returns the type of a component's condition.
func readyCondition(r Role) string {
	return map[Role]string{Engine: "EngineReady", Decoder: "DecoderReady", Router: "RouterReady"}[r]
}

// required are the conditions that determine Ready. The router and the decoder do not affect it.
var required = []string{readyCondition(Engine), conditionIngress}

// set sets a condition, and also Ready if the condition is required. An unchanged condition keeps its transition time. A change
// sorts the list by type, including the conditions of other writers.
func (s *status) set(c condition, now metav1.Time) {
	s.put(c, now)
	if !slices.Contains(required, c.Type) {
		return
	}
	happy := condition{Type: conditionReady, Status: corev1.ConditionTrue}
	if unhappy := s.unhappy(); unhappy != nil {
		happy.Status, happy.Reason, happy.Message = unhappy.Status, unhappy.Reason, unhappy.Message
	}
	s.put(happy, now)
}

func (s *status) put(c condition, now metav1.Time) {
	if c.Type != conditionReady && !slices.Contains(required, c.Type) {
		c.Severity = "Info"
	}
	i := slices.IndexFunc(s.Conditions, func(o condition) bool { return o.Type == c.Type })
	if i >= 0 {
		c.LastTransitionTime = s.Conditions[i].LastTransitionTime
		if c == s.Conditions[i] {
			return
		}
		s.Conditions = slices.Delete(s.Conditions, i, i+1)
	}
	c.LastTransitionTime = now
	s.Conditions = append(s.Conditions, c)
	slices.SortStableFunc(s.Conditions, func(a, b condition) int { return cmp.Compare(a.Type, b.Type) })
}

// unhappy returns the condition that Ready copies: the newest required condition that is False, else the newest that is Unknown,
// else an Unknown condition if a required one is missing, else nil.
func (s *status) unhappy() *condition {
	var found []condition
	for _, c := range s.Conditions {
		if slices.Contains(required, c.Type) {
			found = append(found, c)
		}
	}
	slices.SortStableFunc(found, func(a, b condition) int { return b.LastTransitionTime.Compare(a.LastTransitionTime.Time) })
	for _, bad := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown} {
		if i := slices.IndexFunc(found, func(c condition) bool { return c.Status == bad }); i >= 0 {
			return &found[i]
		}
	}
	if len(found) < len(required) {
		return &condition{Status: corev1.ConditionUnknown}
	}
	return nil
}

// setModel sets the state of the model in release 1.2 (status/status_reconciler.go: PropagateModelStatus). It follows Ready as it was
// before the reconcile, so a change of Ready causes two writes of the status.
func (s *status) setModel(wasReady bool) {
	switch {
	case wasReady:
		s.ModelStatus = map[string]any{
			"transitionStatus":    "UpToDate",
			"modelRevisionStates": map[string]any{"activeModelState": "Loaded", "targetModelState": "Loaded"},
			"modelCopies":         map[string]any{"totalCopies": int64(1)},
		}
	case s.ModelStatus == nil:
		s.ModelStatus = map[string]any{
			"transitionStatus": "InProgress", "modelRevisionStates": map[string]any{"activeModelState": "", "targetModelState": "Pending"},
		}
	}
}

// find returns a condition, or nil.
func (s *status) find(kind string) *condition {
	if i := slices.IndexFunc(s.Conditions, func(c condition) bool { return c.Type == kind }); i >= 0 {
		return &s.Conditions[i]
	}
	return nil
}

// isTrue reports whether a condition exists and is True.
func (s *status) isTrue(kind string) bool {
	c := s.find(kind)
	return c != nil && c.Status == corev1.ConditionTrue
}

// sameStatus reports whether two statuses are equal except for transition times.
func sameStatus(a, b *status) bool {
	return apiequality.Semantic.DeepEqual(a.timeless(), b.timeless())
}

func (s *status) timeless() status {
	t := *s
	t.Conditions = slices.Clone(s.Conditions)
	for i := range t.Conditions {
		t.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return t
}
