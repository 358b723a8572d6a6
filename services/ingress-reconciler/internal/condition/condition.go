// Package condition reports how a service is exposed, in one condition on its InferenceService.
//
//	status   reason                     message
//	True     Programmed                 the URLs, then a clause for each Gateway
//	Unknown  ParentStatusNotAvailable   likewise; a controller has not accepted a route yet, or no route exists yet
//	False    the reason of the problem  likewise, then each component that is not exposed, with its reason
//
// The same state always results in the same message, so a settled service causes no writes. The condition has the six fields that
// OME keeps in conditions. The patch changes no other part of the status.
package condition

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/conditions"
	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

// Type is the type of the condition.
const Type = "fairlead.dev/Exposed"

// Reasons that are defined here. Other reasons come from plans and verdicts.
const (
	ReasonProgrammed = "Programmed"
	ReasonPending    = gatewayapi.ReasonParentStatusNotAvailable
)

// severity excludes the condition from summaries, such as Ready, that tools compute from a list of conditions.
const severity = "Info"

// State is the state that the condition reports.
type State struct {
	Routes  []Route
	Reasons []plan.Reason
	Notes   []string // further sentences
}

// Route is one object that exposes the service.
type Route struct {
	URL     string
	Object  string // kind and name
	Server  string // the Gateway or IngressClass that serves it
	Verdict gatewayapi.Verdict
	Detail  string // details about the Gateway or the route; may be empty
}

// Build returns the condition for a state. Its transition time is now if the status has changed.
func Build(s State, before *isvc.Condition, now time.Time) isvc.Condition {
	c := isvc.Condition{Type: Type, Severity: severity}
	c.Status, c.Reason = s.statusAndReason()
	c.Message = s.buildMessage(c.Reason)
	return conditions.SetDuck(before, c, now)
}

// statusAndReason returns the status and the reason of the worst problem: problems of the whole service before those of components, those
// of the entry before those of other components.
func (s *State) statusAndReason() (metav1.ConditionStatus, string) {
	reasons := slices.DeleteFunc(slices.Clone(s.Reasons), func(r plan.Reason) bool { return r.Warning })
	if len(reasons) > 0 {
		return metav1.ConditionFalse, slices.MinFunc(reasons, func(a, b plan.Reason) int {
			return cmp.Or(cmp.Compare(slices.Index(isvc.Roles, a.Role), slices.Index(isvc.Roles, b.Role)), cmp.Compare(a.Reason, b.Reason))
		}).Reason
	}
	if reason := s.routeReason(gatewayapi.Refused); reason != "" {
		return metav1.ConditionFalse, reason
	}
	if reason := s.routeReason(gatewayapi.Pending); reason != "" {
		return metav1.ConditionUnknown, reason
	}
	if len(s.Routes) == 0 {
		return metav1.ConditionUnknown, ReasonPending
	}
	return metav1.ConditionTrue, ReasonProgrammed
}

// routeReason returns the reason of the first route, by URL, with an acceptance, or "" if no route has it.
func (s *State) routeReason(a gatewayapi.Acceptance) string {
	routes := slices.DeleteFunc(slices.Clone(s.Routes), func(r Route) bool { return r.Verdict.Acceptance != a })
	if len(routes) == 0 {
		return ""
	}
	return slices.MinFunc(routes, func(x, y Route) int {
		return cmp.Or(cmp.Compare(x.URL, y.URL), cmp.Compare(x.Server, y.Server), cmp.Compare(x.Verdict.Reason, y.Verdict.Reason))
	}).Verdict.Reason
}

// maxMessage limits the message of the condition, in bytes, to keep it readable.
const maxMessage = 4096

// buildMessage returns the URLs, a clause for each Gateway or class, the reasons and the notes. It does not repeat the reason of the
// condition.
func (s *State) buildMessage(reason string) string {
	var urls []string
	for _, r := range s.Routes {
		urls = append(urls, r.URL)
	}
	parts := append([]string{strings.Join(sortUnique(urls), ", ")}, s.routeClauses(reason)...)
	var reasons []string
	for _, r := range s.Reasons {
		reasons = append(reasons, describeReason(r.Reason, r.Message, reason))
	}
	parts = append(append(parts, sortUnique(reasons)...), sortUnique(slices.Clone(s.Notes))...)
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
	return conditions.TruncateMessage(strings.Join(parts, "; "), maxMessage)
}

// routeClauses returns a clause for each Gateway or class and verdict, with the names of the routes.
func (s *State) routeClauses(reason string) []string {
	objects := map[string][]string{}
	for _, r := range s.Routes {
		clause := r.Server + ": " + strings.TrimSuffix("accepted, "+r.Detail, ", ")
		if r.Verdict.Acceptance != gatewayapi.Accepted {
			clause = r.Server + ": " + describeReason(r.Verdict.Reason, r.Verdict.Message, reason)
		}
		objects[clause] = append(objects[clause], r.Object)
	}
	var clauses []string
	for _, clause := range slices.Sorted(maps.Keys(objects)) {
		clauses = append(clauses, clause+" ("+strings.Join(sortUnique(objects[clause]), ", ")+")")
	}
	return clauses
}

// describeReason returns a reason and its message, or only the message if the reason is already known.
func describeReason(reason, message, known string) string {
	if reason == known && message != "" {
		return message
	}
	return strings.TrimSuffix(reason+": "+message, ": ")
}

// sortUnique sorts texts and removes duplicates.
func sortUnique(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}

// BuildPatch returns the JSON patch that sets a condition, nil if the service already has it.
func BuildPatch(s *isvc.Service, c isvc.Condition) []byte {
	return conditions.PatchDuck(conditions.Status{
		ResourceVersion: s.Version, Exists: s.HasStatus, Listed: s.HasConditions, Conditions: s.Conditions,
	}, c)
}

// ParseURLs returns the URLs at the start of a condition's message.
func ParseURLs(message string) []string {
	first, _, _ := strings.Cut(message, "; ")
	return slices.DeleteFunc(strings.Split(first, ", "), func(u string) bool {
		return !strings.HasPrefix(u, "http://") && !strings.HasPrefix(u, "https://")
	})
}

// Find returns the condition of a service, nil if the service does not have it.
func Find(s *isvc.Service) *isvc.Condition { return conditions.FindDuck(s.Conditions, Type) }
