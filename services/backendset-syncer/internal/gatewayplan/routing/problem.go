package routing

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// Reasons of problems.
const (
	ReasonUnsupported = string(gatewayv1.RouteReasonUnsupportedValue)
	ReasonCapacity    = v1alpha1.ReasonCapacityExceeded
)

// Problem explains why a rule of a route is not programmed.
type Problem struct {
	plan.Problem

	Route types.NamespacedName
	Rule  int
	// Gateway and Listener name the listener on which the rule is not programmed. They are empty if that is every listener.
	Gateway  types.NamespacedName
	Listener string
}

// concernsListener reports whether the problem is one of a listener.
func (p *Problem) concernsListener(l *Listener) bool {
	return p.Listener == "" || p.Gateway == l.Gateway && p.Listener == l.Name
}

// Acceptance is the content of the conditions Accepted and PartiallyInvalid of a route.
type Acceptance struct {
	Accepted bool
	// Reason and Message are those of Accepted.
	Reason, Message string
	// Dropped is the message of PartiallyInvalid, with the reason UnsupportedValue. Empty: the route has no such condition.
	Dropped string
}

// maxMessage is the length of a message in a status. The API server accepts 32768 bytes for one message, and objects of up to 1.5 MiB with
// up to 32 parents.
const maxMessage = 2048

// AcceptRoute returns the acceptance of a route by the listeners of one of its parents: a route without a programmed rule is not accepted.
func AcceptRoute(r *Route, listeners []*Listener, problems []Problem) Acceptance {
	own := slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool {
		return p.Route != nameOf(r.HTTPRoute) || !slices.ContainsFunc(listeners, p.concernsListener)
	})
	if len(own) == 0 {
		return Acceptance{Accepted: true, Reason: string(gatewayv1.RouteReasonAccepted), Message: "the route is accepted"}
	}
	programmed := 0
	for i := range rulesOf(r.HTTPRoute) {
		for _, l := range listeners {
			if !slices.ContainsFunc(own, func(p Problem) bool { return p.Rule == i && p.concernsListener(l) }) {
				programmed++
			}
		}
	}
	if programmed == 0 {
		return Acceptance{Reason: own[0].Reason, Message: describeProblems(own)}
	}
	return Acceptance{
		Accepted: true, Reason: string(gatewayv1.RouteReasonAccepted), Message: "the route is accepted, except for some of its rules",
		Dropped: truncateText("Dropped Rule: "+describeProblems(own), maxMessage),
	}
}

// describeProblems lists problems, each once.
func describeProblems(problems []Problem) string {
	var lines []string
	for i := range problems {
		p := &problems[i]
		text := fmt.Sprintf("rule %d: %s", p.Rule, p.Message)
		if p.Listener != "" {
			text = fmt.Sprintf("rule %d on listener %s: %s", p.Rule, p.Listener, p.Message)
		}
		if !slices.Contains(lines, text) {
			lines = append(lines, text)
		}
	}
	return truncateText(strings.Join(lines, "; "), maxMessage)
}
