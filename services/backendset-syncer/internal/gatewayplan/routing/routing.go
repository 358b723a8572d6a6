// Package routing turns the HTTPRoutes of a load balancer into routing policies and backend sets of OCI.
//
// Build takes the listeners of all Gateways of one load balancer, each with the routes that are attached to it. It returns a routing
// policy for each listener, the backend sets that the policies use, and problems. It is pure: the same input gives the same result.
//
//	HTTPRoute                        routing policy
//	hostname h                       any(http.request.headers[(i 'host')] eq (i 'h'), http.request.headers[(i 'host')][0] sw (i 'h:'))
//	hostname *.d on port p           any(http.request.headers[(i 'host')][0] ew (i '.d'),
//	                                 http.request.headers[(i 'host')][0] ew (i '.d:p'))
//	path Exact /a                    http.request.url.path eq '/a'
//	path PathPrefix /a, /a/          any(http.request.url.path eq '/a', http.request.url.path sw '/a/')
//	path PathPrefix /                nothing, or http.request.url.path sw '/' in a match without another condition
//	regular expression               eq, sw or ew, if it is a literal text with an anchor; see parsePattern
//	header n Exact v                 http.request.headers[(i 'n')] eq 'v'
//	query parameter n Exact v        http.request.url.query['n'] eq 'v'
//	match                            all(...) of its conditions; those beyond the five of a group are nested
//	rule                             one rule of the policy for each match and hostname, in the precedence of the Gateway API
//	backendRefs                      one backend set, with the endpoints of all backendRefs with a weight above zero
//	RequestRedirect                  a rule set of the listener, if it redirects all requests from HTTP to HTTPS
//
// The condition language has no condition on methods, and a rule has no filters and no timeouts. A policy cannot answer a request itself: a
// rule without a usable backendRef gets the backend set of Fallback.NoBackends, and the default of all listeners is that of
// Fallback.NotFound. Without a Fallback both are one empty set, and the load balancer answers 502 where the Gateway API asks for 500 and
// 404.
//
// The unit of a problem is a rule: if a part of a rule cannot be expressed, or exceeds a limit, the rule is not programmed ("Dropped Rule"
// of the specification). Rules are admitted in the order of their routes, the oldest first, until a limit is reached. A younger route never
// takes the place of an older one.
//
// Values of routes become literals of the condition language only if they consist of characters that cannot end a literal; see literal.
package routing

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// Input is everything that the routing of a load balancer depends on.
type Input struct {
	Listeners []Listener
	Limits    Limits
	// Names are the recorded names of objects by their keys: see Set.Key and Policy.Key. Objects keep these names. The name of
	// another object follows from its key.
	Names map[string]string
	// Fallback answers requests without a backend. If it is nil, the load balancer answers them with 502.
	Fallback *Fallback
	// Foreign are the names of backend sets of others. They count toward the limit, and no route gets a set with such a name.
	Foreign []string
}

// Listener is a listener of a Gateway.
type Listener struct {
	Gateway  types.NamespacedName
	Name     string
	Hostname string // empty: all hosts
	Port     int32
	TLS      bool
	Routes   []*Route // attached to the listener

	// Served are the namespaces whose rules the load balancer serves on the listener now, and Redirected means that it redirects all
	// requests of it now. A redirect of another namespace does not take the requests of those that are served.
	Served     []string
	Redirected bool
	// Reserved are the conditions of others in the policy.
	Reserved int
}

// Route is an HTTPRoute that passed the validation of its CRD.
type Route struct {
	*gatewayv1.HTTPRoute

	// Members are the backendRefs of each rule that exist, and that the route may use.
	Members [][]Member
	// Refused are rules, by index, that an earlier step refused, for example because another namespace owns their host. They are not
	// programmed.
	Refused map[int]plan.Problem
}

// Fallback has the backends for requests that no rule matches, and for those whose rule has no backend.
type Fallback struct{ NotFound, NoBackends Backend }

// Backend is a port of a Service, or of another kind with endpoints.
type Backend struct {
	Kind, Namespace, Name string
	Port                  int32
}

// Desired is the wanted routing of a load balancer.
type Desired struct {
	Policies []Policy  // one for each listener, in the order of the input
	Sets     []Set     // the empty set first, then in the order of admission
	Problems []Problem // in the order of admission
	Default  string    // name of the set for requests that no rule matches
}

// Policy is the routing of a listener.
type Policy struct {
	Gateway  types.NamespacedName
	Listener string
	Key      string
	Name     string // of the routing policy, and of the rule set
	// Rules are the rules in their order. OCI has no empty policies: without rules, the listener has none.
	Rules []plan.Rule
	// Namespaces are those of the routes of the rules, sorted.
	Namespaces []string
	// Redirect is the redirect of all requests of the listener, nil if it has none.
	Redirect *plan.Redirect
}

// Set is a backend set.
type Set struct {
	Key     string
	Name    string
	Members []Member // sorted. Empty: the set for requests without a backend
}

// Member is a part of a set.
type Member struct {
	Backend

	Weight int32 // relative to the others
}

// Build returns the wanted routing of a load balancer.
func Build(in *Input) *Desired {
	a := newAdmission(in)
	for _, r := range collectAttachments(in) {
		a.admitRoute(r)
	}
	return a.buildDesired()
}

// attachment is a route with the listeners to which it is attached, by index.
type attachment struct {
	*Route

	listeners []int
}

// collectAttachments returns the routes of all listeners, the oldest first.
func collectAttachments(in *Input) []*attachment {
	var attachments []*attachment
	known := map[types.NamespacedName]*attachment{}
	for i := range in.Listeners {
		for _, r := range in.Listeners[i].Routes {
			name := nameOf(r.HTTPRoute)
			a := known[name]
			if a == nil {
				a = &attachment{Route: r}
				known[name] = a
				attachments = append(attachments, a)
			}
			if !slices.Contains(a.listeners, i) {
				a.listeners = append(a.listeners, i)
			}
		}
	}
	slices.SortFunc(attachments, ownership.CompareAge)
	return attachments
}

func nameOf(r *gatewayv1.HTTPRoute) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// rulesOf returns the rules of a route. As in the API server, a route without rules has one rule for all paths.
func rulesOf(r *gatewayv1.HTTPRoute) []gatewayv1.HTTPRouteRule {
	if len(r.Spec.Rules) == 0 {
		return make([]gatewayv1.HTTPRouteRule, 1)
	}
	return r.Spec.Rules
}

// matchesOf returns the matches of a rule. As in the API server, a rule without matches has one match for all paths.
func matchesOf(r *gatewayv1.HTTPRouteRule) []gatewayv1.HTTPRouteMatch {
	if len(r.Matches) == 0 {
		return make([]gatewayv1.HTTPRouteMatch, 1)
	}
	return r.Matches
}
