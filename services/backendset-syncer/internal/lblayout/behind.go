package lblayout

import (
	"slices"
	"strings"

	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// ListSteps returns a step for each wanted object, in the order of creation. Its action is not set.
func (w *Wanted) ListSteps() []Step {
	var steps []Step
	for i := range w.Hostnames {
		steps = append(steps, Step{Ref: Ref{lbrecord.Hostname, w.Hostnames[i].Name}, Hostname: &w.Hostnames[i]})
	}
	for i := range w.Certificates {
		steps = append(steps, Step{Ref: Ref{lbrecord.Certificate, w.Certificates[i].Name}, Certificate: &w.Certificates[i]})
	}
	for i := range w.Sets {
		steps = append(steps, Step{Ref: Ref{lbrecord.BackendSet, w.Sets[i].Name}, Set: &w.Sets[i]})
	}
	for i := range w.RuleSets {
		steps = append(steps, Step{Ref: Ref{lbrecord.RuleSet, w.RuleSets[i].Name}, RuleSet: &w.RuleSets[i]})
	}
	for i := range w.Policies {
		steps = append(steps, Step{Ref: Ref{lbrecord.RoutingPolicy, w.Policies[i].Name}, Policy: &w.Policies[i]})
	}
	for i := range w.Listeners {
		steps = append(steps, Step{Ref: Ref{lbrecord.Listener, w.Listeners[i].Name}, Listener: &w.Listeners[i]})
	}
	return steps
}

// HasObject reports whether an object is wanted.
func (w *Wanted) HasObject(r Ref) bool {
	return slices.ContainsFunc(w.ListSteps(), func(s Step) bool { return s.Ref == r })
}

// FindBehind returns the steps to the wanted objects that the load balancer does not have, or has otherwise, in the order of creation.
// They have the wanted objects, without what the load balancer has and the layout does not decide. NextSteps returns those that are
// possible now.
func FindBehind(live *Live, wanted *Wanted) []Step {
	steps := slices.DeleteFunc(wanted.ListSteps(), func(s Step) bool { return s.isDone(live, wanted) })
	for i := range steps {
		steps[i].Action = Create
		if live.HasObject(steps[i].Ref) {
			steps[i].Action = Update
		}
	}
	return steps
}

// isDone reports whether the load balancer has the wanted object of a step.
func (s *Step) isDone(live *Live, wanted *Wanted) bool {
	switch s.Kind {
	case lbrecord.Hostname:
		have, found := live.Hostnames[s.Name]
		return found && strings.EqualFold(have.Hostname, s.Hostname.Hostname)
	case lbrecord.RuleSet:
		have := live.RuleSets[s.Name]
		return have.Redirect != nil && *have.Redirect == *s.RuleSet.Redirect
	case lbrecord.RoutingPolicy: // one without rules may be missing
		have := live.Policies[s.Name]
		return slices.Equal(s.Policy.mergeForeign(&have).Rules, have.Rules)
	case lbrecord.Listener:
		have, found := live.Listeners[s.Name]
		return found && s.Listener.mergeLive(&have, wanted.RuleSetNames).isEqual(&have)
	}
	return live.HasObject(s.Ref) // certificates cannot be changed, and actors change backend sets
}
