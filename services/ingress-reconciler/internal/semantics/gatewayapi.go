package semantics

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/gatewayapi"
)

// This file models the Gateway API, from its specification (https://gateway-api.sigs.k8s.io/reference/spec/) and the source of Envoy
// Gateway.
//
// Of the listeners on a port, only the listener with the most specific hostname serves a request (listener isolation). All matches of
// the routes that are attached to this listener compete, in the order of the criteria below. If an answer depends on one of these
// differences, or on behavior that the specification leaves open, the result is ErrAmbiguous:
//
//	                                     specification                    Envoy Gateway (internal/gatewayapi/sort.go)
//	method                               before headers                   counts as one header
//	regular expressions                  open; here after prefixes        between Exact and prefixes
//	no rule of the most specific         open: no route, or a rule of a
//	hostname matches                     less specific hostname
//
// Modeled: filters RequestHeaderModifier and URLRewrite, timeouts.request, and backendRefs to Services and InferencePools in the
// namespace of the route, if exactly one has a weight above zero. Not modeled: ListenerSets, default Gateways, ReferenceGrants, other
// filters, filters of backends, retries, session persistence.

// gatewayOrder is the precedence of matches.
var gatewayOrder = gatewayapi.Precedence()

// envoyOrder is the precedence of matches in Envoy Gateway. The later criteria are the same as in gatewayOrder.
var envoyOrder = slices.Concat([]gatewayapi.Criterion{
	gatewayOrder[0],
	{Compare: func(a, b *gatewayapi.RouteMatch) int { return cmp.Compare(envoyRank(a), envoyRank(b)) }},
	gatewayOrder[2],
	{Compare: func(a, b *gatewayapi.RouteMatch) int {
		return cmp.Compare(len(b.Match.Headers)+b.Methods(), len(a.Match.Headers)+a.Methods())
	}},
}, gatewayOrder[5:])

func envoyRank(m *gatewayapi.RouteMatch) int {
	return slices.Index([]int{gatewayapi.RankExact, gatewayapi.RankRegularExpression, gatewayapi.RankPrefix}, m.PathRank())
}

// compareBy returns a function that compares matches by the first criterion for which they differ.
func compareBy(criteria []gatewayapi.Criterion) func(a, b *gatewayMatch) int {
	return func(a, b *gatewayMatch) int {
		for _, c := range criteria {
			if n := c.Compare(&a.RouteMatch, &b.RouteMatch); n != 0 {
				return n
			}
		}
		return 0
	}
}

// throughGateway finds the contenders for a request to a Gateway.
func (w *World) throughGateway(r *request) ([]contender, error) {
	g := w.gateways[r.entrance.Gateway]
	if g == nil {
		return nil, fmt.Errorf("gateway %s: %w", r.entrance.Gateway, ErrNotFound)
	}
	id := objectIdentity("Gateway", g)
	if err := cmp.Or(w.checkReadable("Gateway", g),
		onlyFields(&g.Spec, "GatewayClassName", "Listeners", "Addresses", "Infrastructure", "AllowedListeners", "TLS")); err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	ports := httpPorts(g, r.entrance.Port)
	if r.entrance.Port != 0 && len(ports) == 0 {
		return nil, fmt.Errorf("%s: port %d: %w", id, r.entrance.Port, ErrNotFound)
	}
	var contenders []contender
	var first *Answer
	for _, port := range ports {
		found, err := w.throughPort(g, port, r)
		if err != nil {
			return nil, fmt.Errorf("port %d of %s: %w", port, id, err)
		}
		if len(ports) == 1 {
			return found, nil
		}
		if len(found) == 0 {
			continue
		}
		a, err := resolveContender(found[0])
		switch {
		case err != nil:
			return contenders, fmt.Errorf("port %d of %s: %w", port, id, err)
		case first == nil:
			first, contenders = a, found
		case !reflect.DeepEqual(first, a):
			return contenders, fmt.Errorf("ports of %s give different answers: %w", id, ErrAmbiguous)
		}
	}
	return contenders, nil
}

// httpPorts returns the ports of a Gateway that serve HTTP: the given port if it does, or all of them if port is 0.
func httpPorts(g *gatewayv1.Gateway, port int32) []int32 {
	var ports []int32
	for i := range g.Spec.Listeners {
		if l := &g.Spec.Listeners[i]; servesHTTP(l) && (port == 0 || port == l.Port) {
			ports = append(ports, l.Port)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

func servesHTTP(l *gatewayv1.Listener) bool {
	return l.Protocol == gatewayv1.HTTPProtocolType || l.Protocol == gatewayv1.HTTPSProtocolType
}

// throughPort finds the contenders for a request to one port of a Gateway.
func (w *World) throughPort(g *gatewayv1.Gateway, port int32, r *request) ([]contender, error) {
	l, err := listenerFor(g, port, r.host)
	if err != nil || l == nil {
		return nil, err
	}
	routes, err := w.attachedRoutes(g, l, r.host)
	if err != nil {
		return nil, err
	}
	var matches []*gatewayMatch
	for _, a := range routes {
		found, err := gatewayMatches(a.route, a.hostname, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", objectIdentity("HTTPRoute", a.route), err)
		}
		matches = append(matches, found...)
	}
	if len(matches) == 0 {
		return nil, nil
	}
	slices.SortFunc(matches, compareBy(gatewayOrder))
	if gatewayapi.CompareHostnames(routes[0].hostname, matches[0].Hostname) < 0 {
		err = fmt.Errorf("no rule of hostname %q matches, one of %q does: %w", routes[0].hostname, matches[0].Hostname, ErrAmbiguous)
		return asContenders(matches), err
	}
	byEnvoy := slices.MinFunc(matches, compareBy(envoyOrder))
	return asContenders(matches), checkAgreement(matches[0], "by the specification", byEnvoy, "by Envoy Gateway")
}

// attachedRoute is a route that is attached to a listener, and its most specific hostname for a host.
type attachedRoute struct {
	route    *gatewayv1.HTTPRoute
	hostname string
}

// attachedRoutes returns the routes for a host that are attached to a listener, the most specific hostname first.
func (w *World) attachedRoutes(g *gatewayv1.Gateway, l *gatewayv1.Listener, host string) ([]attachedRoute, error) {
	var found []attachedRoute
	var failed error
	seen := map[*gatewayv1.HTTPRoute]bool{}
	w.routes[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}].forEachCovering(host,
		func(hostname string, routes []*gatewayv1.HTTPRoute) bool {
			if hostname == "" { // the route inherits the hostname of the listener
				hostname = strings.ToLower(gatewayapi.ListenerHostname(l))
			}
			for _, route := range routes {
				if seen[route] {
					continue
				}
				seen[route] = true
				attached, err := w.isAttached(route, g, l)
				if err != nil {
					failed = fmt.Errorf("%s: %w", objectIdentity("HTTPRoute", route), err)
					return false
				}
				if attached {
					found = append(found, attachedRoute{route, hostname})
				}
			}
			return true
		})
	slices.SortStableFunc(found, func(a, b attachedRoute) int { return gatewayapi.CompareHostnames(a.hostname, b.hostname) })
	return found, failed
}

// listenerFor returns the listener of a port with the most specific hostname that covers a host, nil if no listener covers it.
func listenerFor(g *gatewayv1.Gateway, port int32, host string) (*gatewayv1.Listener, error) {
	var found *gatewayv1.Listener
	for i := range g.Spec.Listeners {
		l := &g.Spec.Listeners[i]
		hostname := strings.ToLower(gatewayapi.ListenerHostname(l))
		if l.Port != port || !servesHTTP(l) || !gatewayapi.HostnamesIntersect(hostname, host) {
			continue
		}
		if found != nil {
			other := strings.ToLower(gatewayapi.ListenerHostname(found))
			if hostname == other {
				return nil, fmt.Errorf("listeners %s and %s have the same hostname: %w", found.Name, l.Name, ErrInvalid)
			}
			if gatewayapi.CompareHostnames(hostname, other) > 0 {
				continue
			}
		}
		found = l
	}
	return found, nil
}

// isAttached reports whether a route refers to a listener, and the listener allows the route.
func (w *World) isAttached(route *gatewayv1.HTTPRoute, g *gatewayv1.Gateway, l *gatewayv1.Listener) (bool, error) {
	refers := slices.ContainsFunc(route.Spec.ParentRefs, func(p gatewayv1.ParentReference) bool {
		return gatewayapi.References(&p, route.Namespace, g, l)
	})
	if !refers || !gatewayapi.AllowsHTTPRoutes(l) {
		return false, nil
	}
	allowed, err := gatewayapi.AllowsNamespace(g, l, route.Namespace, w.namespaces[route.Namespace])
	switch {
	case errors.Is(err, gatewayapi.ErrUnknownNamespace):
		return false, fmt.Errorf("%w: %w", err, ErrNotFound)
	case errors.Is(err, gatewayapi.ErrUnknownValue):
		return false, fmt.Errorf("%w: %w", err, ErrNotModeled)
	case err != nil:
		return false, fmt.Errorf("%w: %w", err, ErrInvalid)
	case !allowed:
		return false, nil
	}
	return true, w.checkReadable("HTTPRoute", route)
}

// gatewayMatch is one match of a route that applies to a request.
type gatewayMatch struct {
	gatewayapi.RouteMatch

	request *request
	spec    *gatewayv1.HTTPRouteRule
}

func (m *gatewayMatch) sourceObject() (string, metav1.Object) { return "HTTPRoute", m.Route }

func (m *gatewayMatch) losesBy(winner contender) string {
	w := &winner.(*gatewayMatch).RouteMatch // both belong to one Gateway
	i := slices.IndexFunc(gatewayOrder, func(c gatewayapi.Criterion) bool { return c.Compare(w, &m.RouteMatch) != 0 })
	if i < 0 {
		return ""
	}
	return gatewayOrder[i].Reason
}

// describeRule describes the match.
func (m *gatewayMatch) describeRule() string {
	kind, path := gatewayapi.PathOf(m.Match)
	text := fmt.Sprintf("rule %d: %s %s", m.RuleIndex, kind, path)
	if m.Match.Method != nil {
		text += ", method " + string(*m.Match.Method)
	}
	for i := range m.Match.Headers {
		text += fmt.Sprintf(", header %s: %s", m.Match.Headers[i].Name, m.Match.Headers[i].Value)
	}
	for i := range m.Match.QueryParams {
		text += fmt.Sprintf(", query %s=%s", m.Match.QueryParams[i].Name, m.Match.QueryParams[i].Value)
	}
	return text
}

// gatewayMatches returns the matches of a route that apply to a request. As in the API server, a route without rules has one rule, and
// a rule without matches matches all paths.
func gatewayMatches(route *gatewayv1.HTTPRoute, hostname string, r *request) ([]*gatewayMatch, error) {
	rules := route.Spec.Rules
	if len(rules) == 0 {
		rules = make([]gatewayv1.HTTPRouteRule, 1)
	}
	var found []*gatewayMatch
	for i := range rules {
		matches := rules[i].Matches
		if len(matches) == 0 {
			matches = make([]gatewayv1.HTTPRouteMatch, 1)
		}
		for j := range matches {
			m := &gatewayMatch{
				RouteMatch: gatewayapi.RouteMatch{Route: route, Hostname: hostname, Match: &matches[j], RuleIndex: i, MatchIndex: j},
				request:    r, spec: &rules[i],
			}
			fits, err := m.fitsRequest()
			if err != nil {
				return nil, fmt.Errorf("rule %d: match %d: %w", i, j, err)
			}
			if fits {
				found = append(found, m)
			}
		}
	}
	return found, nil
}
