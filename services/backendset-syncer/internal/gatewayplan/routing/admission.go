package routing

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
	"fairlead.dev/services/backendset-syncer/internal/policy"
)

// Limits are the limits of a load balancer, and of the namespaces that share it.
type Limits struct {
	Sets       int // backend sets of the load balancer
	Conditions int // conditions of a routing policy

	// Namespaces are the limits of namespaces: the sets that their routes are the first to need, and the conditions of these in one policy.
	// 0: no limit.
	Namespaces map[string]policy.RouteLimits
	// Redirects are the listeners that may redirect all requests: each needs a rule of a rule set. 0: no limit.
	Redirects int
}

// admission admits rules until a limit is reached.
type admission struct {
	in        *Input
	listeners []listenerState
	sets      map[string]Set    // admitted sets by key
	order     []string          // keys of sets
	names     map[string]string // keys by the names of sets
	owned     map[string]int    // sets by the namespace of the route that needed them first
	redirects int               // listeners that redirect all requests
	problems  []Problem
}

// listenerState is what a listener has admitted.
type listenerState struct {
	*Listener

	candidates []candidate
	conditions int
	owned      map[string]int // conditions by namespace
	redirect   *plan.Redirect
}

// candidate is an admitted rule of a policy.
type candidate struct {
	gatewayapi.RouteMatch

	condition string
	set       string // key
}

// request is a rule of a route that asks a listener for admission.
type request struct {
	set        Set
	candidates []candidate
	conditions int
}

func newAdmission(in *Input) *admission {
	a := &admission{in: in, sets: map[string]Set{}, names: map[string]string{}, owned: map[string]int{}}
	for i := range in.Listeners {
		l := &in.Listeners[i]
		a.listeners = append(a.listeners, listenerState{Listener: l, conditions: l.Reserved, owned: map[string]int{}})
	}
	for _, name := range in.Foreign {
		a.names[name] = "foreign"
	}
	if len(in.Listeners) > 0 {
		a.addFallback()
	}
	return a
}

// addFallback adds the set for rules without a backend, and that for requests without a rule.
func (a *admission) addFallback() {
	sets := []Set{newSet(nil)}
	if f := a.in.Fallback; f != nil {
		sets[0].Members = []Member{{Backend: f.NoBackends, Weight: 1}}
		sets = append(sets, Set{Key: DefaultKey, Name: defaultSet, Members: []Member{{Backend: f.NotFound, Weight: 1}}})
	}
	for _, s := range sets {
		if a.names[s.Name] != "" {
			s.Name = NameFor(s.Key, s.Name)
		}
		a.addSet(&s)
	}
}

// addSet adds a set under its recorded name.
func (a *admission) addSet(s *Set) {
	a.applyRecordedName(s)
	a.sets[s.Key], a.names[s.Name] = *s, s.Key
	a.order = append(a.order, s.Key)
}

// identifySet gives a set the key of its backends without their weights, unless an older rule uses it with other weights. So a set stays
// the same when weights change, as they do in each step of a canary.
func (a *admission) identifySet(s *Set) {
	if known, found := a.sets[s.backendsKey()]; !found || slices.Equal(known.Members, s.Members) {
		s.setKey(s.backendsKey())
	}
}

func (a *admission) applyRecordedName(s *Set) {
	if name := a.in.Names[s.Key]; name != "" {
		s.Name = name
	}
}

// admitRoute admits the rules of a route to its listeners.
func (a *admission) admitRoute(r *attachment) {
	rules := rulesOf(r.HTTPRoute)
	for i := range rules {
		if refused, ok := r.Refused[i]; ok {
			a.addProblem(r.Route, i, nil, &refused)
			continue
		}
		redirect, err := checkRule(&rules[i])
		if err != nil {
			a.addProblem(r.Route, i, nil, unsupportedRefusal(err))
			continue
		}
		for _, n := range r.listeners {
			l := &a.listeners[n]
			var refused *plan.Problem
			if redirect != nil {
				refused = a.admitRedirect(l, r.Route, redirect)
			} else {
				refused = a.admitRule(l, r.Route, i)
			}
			if refused != nil {
				a.addProblem(r.Route, i, l.Listener, refused)
			}
		}
	}
}

// checkRule returns an error if a rule cannot be expressed, whatever its hostnames. The error lists all matches that cannot.
func checkRule(rule *gatewayv1.HTTPRouteRule) (*plan.Redirect, error) {
	redirect, err := checkFields(rule)
	if err != nil {
		return nil, err
	}
	var problems []string
	matches := matchesOf(rule)
	for i := range matches {
		if err := new(conjunction).addMatch(&matches[i]); err != nil {
			problems = append(problems, fmt.Sprintf("matches[%d]: %v", i, err))
		}
	}
	if len(problems) > 0 {
		return nil, errors.New(truncateText(strings.Join(problems, "; "), maxMessage))
	}
	return redirect, nil
}

func unsupportedRefusal(err error) *plan.Problem {
	return &plan.Problem{Reason: ReasonUnsupported, Message: err.Error()}
}

func capacityRefusal(format string, args ...any) *plan.Problem {
	return &plan.Problem{Reason: ReasonCapacity, Message: fmt.Sprintf(format, args...)}
}

// addProblem records a problem, of one listener or of all.
func (a *admission) addProblem(r *Route, rule int, l *Listener, why *plan.Problem) {
	p := Problem{Route: nameOf(r.HTTPRoute), Rule: rule, Problem: *why}
	if l != nil {
		p.Gateway, p.Listener = l.Gateway, l.Name
	}
	a.problems = append(a.problems, p)
}

// Reasons why a listener refuses a rule because of a redirect.
var (
	errRedirectLoop  = errors.New("filter RequestRedirect: the listener has HTTPS already, so the redirect would not end")
	errRedirectHosts = errors.New(
		"filter RequestRedirect: OCI can only redirect all hosts of a listener: remove the hostnames of the route")
	errRedirectRules = errors.New("filter RequestRedirect: OCI would redirect the requests for older rules of the listener, too: attach " +
		"the redirect to a listener of its own")
	errRedirectOwner = errors.New("filter RequestRedirect: OCI would redirect the requests for rules of other namespaces, which the " +
		"listener serves: attach the redirect to a listener of its own")
	errRedirected = errors.New("an older rule redirects all requests of the listener to HTTPS: attach the route to another listener")
)

// admitRedirect admits the redirect of all requests. It cannot leave out requests for which a route has a more specific match, so it is
// refused beside rules of older routes, and later ones are refused beside it. An old route that becomes a redirect takes no requests from
// other namespaces.
func (a *admission) admitRedirect(l *listenerState, r *Route, redirect *plan.Redirect) *plan.Problem {
	hostnames := hostnamesOn(r, l.Listener)
	switch {
	case len(hostnames) == 0:
		return nil // the route is not attached
	case l.TLS:
		return unsupportedRefusal(errRedirectLoop)
	case !slices.Contains(hostnames, strings.ToLower(l.Hostname)):
		return unsupportedRefusal(errRedirectHosts)
	case len(l.candidates) > 0:
		return unsupportedRefusal(errRedirectRules)
	case !l.Redirected && slices.ContainsFunc(l.Served, func(namespace string) bool { return namespace != r.Namespace }):
		return unsupportedRefusal(errRedirectOwner)
	case l.redirect != nil:
		return nil // of two with the same match, the older one wins
	case a.in.Limits.Redirects > 0 && a.redirects >= a.in.Limits.Redirects:
		return capacityRefusal("the redirect needs a rule of a rule set, and %d of them are left for the Gateways of the load balancer",
			a.in.Limits.Redirects)
	}
	l.redirect = redirect
	a.redirects++
	return nil
}

// admitRule admits a rule to a listener.
func (a *admission) admitRule(l *listenerState, r *Route, index int) *plan.Problem {
	if refused := a.checkMinConditions(l, r, index); refused != nil {
		return refused
	}
	rq, err := a.newRequest(l, r, index)
	if err != nil {
		return unsupportedRefusal(err)
	}
	if len(rq.candidates) == 0 {
		return nil // the route is not attached
	}
	if l.redirect != nil {
		return unsupportedRefusal(errRedirected)
	}
	a.applyRecordedName(&rq.set)
	if refused := cmp.Or(a.checkConditions(l, r.Namespace, rq.conditions, ""), a.checkSetLimits(r.Namespace, &rq.set)); refused != nil {
		return refused
	}
	if _, known := a.sets[rq.set.Key]; !known {
		a.addSet(&rq.set)
		a.owned[r.Namespace]++
	}
	l.conditions += rq.conditions
	l.owned[r.Namespace] += rq.conditions
	l.candidates = append(l.candidates, rq.candidates...)
	return nil
}

// checkMinConditions returns why a rule exceeds a limit even if each of its matches needs one condition for a hostname. So rules for which
// there is no room cost little time, however many matches they have.
func (a *admission) checkMinConditions(l *listenerState, r *Route, index int) *plan.Problem {
	rule := rulesOf(r.HTTPRoute)[index]
	least := len(hostnamesOn(r, l.Listener)) * len(matchesOf(&rule))
	if least == 0 {
		return nil // the route is not attached
	}
	return a.checkConditions(l, r.Namespace, least, " or more")
}

// checkConditions returns why there is no room for the conditions of a rule. orMore is a part of the message.
func (a *admission) checkConditions(l *listenerState, namespace string, conditions int, orMore string) *plan.Problem {
	if left := a.in.Limits.Conditions - l.conditions; conditions > left {
		return capacityRefusal("the rule needs %d conditions%s, and older routes leave %d of the %d of a listener", conditions, orMore,
			max(left, 0), a.in.Limits.Conditions)
	}
	own := a.in.Limits.Namespaces[namespace].Conditions
	if left := own - l.owned[namespace]; own > 0 && conditions > left {
		return capacityRefusal("the rule needs %d conditions%s, and the namespace has %d of %d left on a listener", conditions, orMore,
			left, own)
	}
	return nil
}

// newRequest returns the rules that a rule of a route needs on a listener.
func (a *admission) newRequest(l *listenerState, r *Route, index int) (*request, error) {
	rq := &request{set: newSet(nil)}
	if index < len(r.Members) {
		rq.set = newSet(r.Members[index])
		a.identifySet(&rq.set)
	}
	hostnames := hostnamesOn(r, l.Listener)
	rule := rulesOf(r.HTTPRoute)[index]
	matches := matchesOf(&rule)
	for i := range matches {
		for _, hostname := range hostnames {
			var c conjunction
			if err := c.addHostname(hostname, l.Port); err != nil {
				return nil, err
			}
			if err := c.addMatch(&matches[i]); err != nil {
				return nil, err
			}
			text, size, err := c.buildText()
			if err != nil {
				return nil, fmt.Errorf("matches[%d]: %w", i, err)
			}
			rq.conditions += size
			match := gatewayapi.RouteMatch{Route: r.HTTPRoute, Hostname: hostname, Match: &matches[i], RuleIndex: index, MatchIndex: i}
			rq.candidates = append(rq.candidates, candidate{RouteMatch: match, condition: text, set: rq.set.Key})
		}
	}
	return rq, nil
}

// hostnamesOn returns the hostnames that a route has on a listener, sorted.
func hostnamesOn(r *Route, l *Listener) []string {
	own := r.Spec.Hostnames
	if len(own) == 0 {
		own = []gatewayv1.Hostname{""}
	}
	var hostnames []string
	for _, h := range own {
		if both, ok := gatewayapi.IntersectHostnames(string(h), l.Hostname); ok {
			hostnames = append(hostnames, both)
		}
	}
	slices.Sort(hostnames)
	return slices.Compact(hostnames)
}

// checkSetLimits returns why there is no room for a set.
func (a *admission) checkSetLimits(namespace string, s *Set) *plan.Problem {
	if _, known := a.sets[s.Key]; known {
		return nil
	}
	own := a.in.Limits.Namespaces[namespace].BackendSets
	switch limits := &a.in.Limits; {
	case a.names[s.Name] != "":
		return capacityRefusal("the load balancer has another backend set with the name %s", s.Name)
	case len(a.names) >= limits.Sets:
		return capacityRefusal(
			"the rule needs a backend set, and the load balancer has %d of %d already: routes to the same port of a Service share a set",
			len(a.names), limits.Sets)
	case own > 0 && a.owned[namespace] >= own:
		return capacityRefusal("the rule needs a backend set, and the namespace has %d of %d already", a.owned[namespace], own)
	}
	return nil
}
