package gatewayplan

import (
	"cmp"
	"fmt"
	"slices"

	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// Change is a change of the layout of a load balancer.
type Change struct {
	Sign string // +, ~ or -
	lblayout.Ref
	Detail string
}

// kindOrder is the order in which objects are created.
var kindOrder = []lbrecord.Kind{
	lbrecord.Hostname, lbrecord.Certificate, lbrecord.BackendSet, lbrecord.RuleSet, lbrecord.RoutingPolicy, lbrecord.Listener,
}

// LayoutChanges returns the changes that turn the live layout into the wanted one.
func (p *Plan) LayoutChanges(live *lblayout.Live) []Change {
	var changes []Change
	for _, s := range lblayout.FindBehind(live, p.Layout) {
		sign := "+"
		if s.Action == lblayout.Update {
			sign = "~"
		}
		changes = append(changes, Change{Sign: sign, Ref: s.Ref, Detail: p.describeObject(&s)})
	}
	for _, ref := range p.Layout.Delete {
		if live.HasObject(ref) {
			changes = append(changes, Change{Sign: "-", Ref: ref})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Sign, b.Sign), cmp.Compare(slices.Index(kindOrder, a.Kind), slices.Index(kindOrder, b.Kind)),
			cmp.Compare(a.Name, b.Name))
	})
	return changes
}

// describeObject describes the object of a step.
func (p *Plan) describeObject(s *lblayout.Step) string {
	switch s.Kind {
	case lbrecord.Listener:
		return fmt.Sprintf("port %d", s.Listener.Port)
	case lbrecord.RoutingPolicy:
		return fmt.Sprintf("%d rules", len(s.Policy.Rules))
	case lbrecord.Hostname:
		return s.Hostname.Hostname
	case lbrecord.BackendSet:
		if set := p.Sets[s.Name]; set != nil {
			return fmt.Sprintf("%d endpoints", len(set.Wanted.Endpoints))
		}
	}
	return ""
}

// FormatProblems returns what is wrong with Gateways and routes, one line each.
func (p *Plan) FormatProblems() []string {
	var lines []string
	if len(p.Lost) > 0 {
		lines = append(lines, p.lostMessage())
	}
	for _, l := range p.Listeners {
		for _, problem := range []plan.Problem{l.accepted, l.conflicted, l.resolved} {
			if problem.IsSet() {
				lines = append(lines,
					fmt.Sprintf("Gateway %s listener %s: %s: %s", l.gateway.gatewayName(), l.Name, problem.Reason, problem.Message))
			}
		}
	}
	for _, r := range p.Routes {
		name := r.Namespace + "/" + r.Name
		for _, parent := range r.parents {
			if a := &parent.acceptance; !a.Accepted {
				lines = append(lines,
					fmt.Sprintf("HTTPRoute %s at Gateway %s: %s: %s", name, parent.gateway.gatewayName(), a.Reason, a.Message))
			} else if a.Dropped != "" {
				lines = append(lines, fmt.Sprintf("HTTPRoute %s at Gateway %s: %s", name, parent.gateway.gatewayName(), a.Dropped))
			}
		}
		if r.resolved.IsSet() {
			lines = append(lines, fmt.Sprintf("HTTPRoute %s: %s: %s", name, r.resolved.Reason, r.resolved.Message))
		}
	}
	return lines
}
