// Package condition says of a service, in one condition of our own on its InferenceService, how it is exposed.
//
//	status   reason                     message
//	True     Programmed                 its URLs, then a clause for each Gateway
//	Unknown  ParentStatusNotAvailable   the same; somebody has yet to take it up, or there is no way in yet
//	False    why not                    the same, then everything that is not exposed, and why
//
// The same state makes the same text to the byte, so that a service that is settled is not written. The condition has the six
// fields that OME keeps of conditions, and nothing of the status that OME writes is touched.
package condition

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gateway "fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

// Type is that of the condition.
const Type = "fairlead.dev/Exposed"

// Reasons that do not come from elsewhere.
const (
	ReasonProgrammed = "Programmed"
	ReasonPending    = gateway.ReasonParentStatusNotAvailable
)

// severity keeps the condition out of what others conclude from a list of them.
const severity = "Info"

// State is what the condition says.
type State struct {
	Ways    []Way
	Reasons []plan.Reason
	Notes   []string // what else to know
}

// Way is one way in, and what became of it.
type Way struct {
	URL     string
	At      string // who serves it: a Gateway, an IngressClass
	Verdict gateway.Verdict
	Detail  string // of who serves it; empty: there is nothing to say
}

// warnings are reasons that keep nothing from being exposed.
var warnings = []string{plan.ReasonDecoderWithoutRouter, plan.ReasonIngressClassNotFound, plan.ReasonTimeoutUnsupported}

// Build returns the condition of a state. now is its time if the status is another than before.
func Build(s State, before *isvc.Condition, now time.Time) isvc.Condition {
	c := isvc.Condition{Type: Type, Severity: severity, Message: s.message()}
	c.Status, c.Reason = s.verdict()
	c.LastTransitionTime = now.UTC().Format(time.RFC3339)
	if before != nil && before.Status == c.Status && before.LastTransitionTime != "" {
		c.LastTransitionTime = before.LastTransitionTime
	}
	return c
}

// verdict returns the worst of what is known, of the whole before components, and of the entry before others.
func (s *State) verdict() (metav1.ConditionStatus, string) {
	reasons := slices.DeleteFunc(slices.Clone(s.Reasons), func(r plan.Reason) bool { return r.Warning || slices.Contains(warnings, r.Reason) })
	if len(reasons) > 0 {
		return metav1.ConditionFalse, slices.MinFunc(reasons, func(a, b plan.Reason) int {
			return cmp.Or(cmp.Compare(slices.Index(isvc.Roles, a.Role), slices.Index(isvc.Roles, b.Role)), cmp.Compare(a.Reason, b.Reason))
		}).Reason
	}
	if reason := s.reason(gateway.Refused); reason != "" {
		return metav1.ConditionFalse, reason
	}
	if reason := s.reason(gateway.Pending); reason != "" {
		return metav1.ConditionUnknown, reason
	}
	if len(s.Ways) == 0 {
		return metav1.ConditionUnknown, ReasonPending
	}
	return metav1.ConditionTrue, ReasonProgrammed
}

// reason returns that of the ways in with an acceptance, of several the first by URL; empty if there are none.
func (s *State) reason(a gateway.Acceptance) string {
	ways := slices.DeleteFunc(slices.Clone(s.Ways), func(w Way) bool { return w.Verdict.Acceptance != a })
	if len(ways) == 0 {
		return ""
	}
	return slices.MinFunc(ways, func(x, y Way) int {
		return cmp.Or(cmp.Compare(x.URL, y.URL), cmp.Compare(x.At, y.At), cmp.Compare(x.Verdict.Reason, y.Verdict.Reason))
	}).Verdict.Reason
}

// maxMessage keeps a condition readable.
const maxMessage = 4096

func (s *State) message() string {
	var urls, clauses []string
	for _, w := range s.Ways {
		urls = append(urls, w.URL)
		clause := strings.TrimSuffix(w.At+": accepted, "+w.Detail, ", ")
		if w.Verdict.Acceptance != gateway.Accepted {
			clause = fmt.Sprintf("%s: %s: %s", w.At, w.Verdict.Reason, w.Verdict.Message)
		}
		clauses = append(clauses, clause)
	}
	parts := []string{strings.Join(unique(urls), ", ")}
	parts = append(parts, unique(clauses)...)
	var reasons []string
	for _, r := range s.Reasons {
		reasons = append(reasons, strings.TrimSpace(r.Reason+": "+r.Message))
	}
	parts = append(append(parts, unique(reasons)...), unique(slices.Clone(s.Notes))...)
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
	message := strings.Join(parts, "; ")
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "..."
	}
	return message
}

// unique sorts texts and leaves one of each.
func unique(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}

// Patch returns the JSON patch that gives a service a condition, nil if it has it. It is for the version of the object that
// was read, and leaves the other conditions as they are, whatever they hold.
func Patch(s *isvc.Service, c isvc.Condition) []byte {
	i := slices.IndexFunc(s.Conditions, func(x isvc.Condition) bool { return x.Type == c.Type })
	if i >= 0 && s.Conditions[i] == c {
		return nil
	}
	value := map[string]any{
		"type": c.Type, "status": c.Status, "severity": c.Severity, "lastTransitionTime": c.LastTransitionTime, "reason": c.Reason, "message": c.Message,
	}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch := []operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: s.Version}}
	switch {
	case i >= 0:
		patch = append(patch, operation{Op: "replace", Path: fmt.Sprintf("/status/conditions/%d", i), Value: value})
	case s.HasConditions:
		patch = append(patch, operation{Op: "add", Path: "/status/conditions/-", Value: value})
	case s.HasStatus:
		patch = append(patch, operation{Op: "add", Path: "/status/conditions", Value: []any{value}})
	default:
		patch = append(patch, operation{Op: "add", Path: "/status", Value: map[string]any{"conditions": []any{value}}})
	}
	text, err := json.Marshal(patch)
	if err != nil {
		panic(fmt.Sprintf("patch is not JSON: %v", err)) // not reached: it is made of texts
	}
	return text
}

// Find returns the condition of a service, nil if it has none.
func Find(s *isvc.Service) *isvc.Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == Type {
			return &s.Conditions[i]
		}
	}
	return nil
}
