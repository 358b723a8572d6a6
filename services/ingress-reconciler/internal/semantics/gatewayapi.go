package semantics

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// The Gateway API, as its specification says (https://gateway-api.sigs.k8s.io/reference/spec/).
//
// Of the listeners of a port, the one with the most specific host name takes a request, and no other does (listener
// isolation). Of the routes that are attached to it, all matches that fit the request compete:
//
//	host name        without a wildcard before one with it, then the longer
//	path             Exact, then the longest PathPrefix, then RegularExpression
//	method           one that is given
//	headers, query   the most of them, headers first
//	route            the oldest, then by "namespace/name"
//	rule             the first; all matches of a rule mean the same
//
// The place of RegularExpression is the implementation's to choose; this one is Istio's. What the specification leaves open
// otherwise is ErrAmbiguous: whether a route of a less specific host name gets what the rules of the more specific ones leave.
//
// Modelled: filters RequestHeaderModifier and URLRewrite, timeouts.request, backendRefs to Services and to InferencePools of the
// route's namespace, of which one has a weight. Not: ListenerSets, default Gateways, ReferenceGrants, other filters, filters of
// backends, retries, session persistence.

// throughGateway answers a request to a Gateway.
func (w *World) throughGateway(r *request) (*answer, error) {
	g, err := w.gateway(r)
	if err != nil {
		return nil, err
	}
	var found *answer
	for _, port := range ports(g, r.entrance.Port) {
		a, err := w.onPort(g, port, r)
		switch {
		case errors.Is(err, ErrNoRoute):
			continue
		case err != nil:
			return nil, fmt.Errorf("port %d of %s: %w", port, identity("Gateway", g), err)
		case found != nil && !reflect.DeepEqual(found, a):
			return nil, fmt.Errorf("ports of %s: %w", identity("Gateway", g), ErrAmbiguous)
		}
		found = a
	}
	if found == nil {
		return nil, fmt.Errorf("%s: %w", identity("Gateway", g), ErrNoRoute)
	}
	return found, nil
}

func (w *World) gateway(r *request) (*gatewayv1.Gateway, error) {
	name := r.entrance.Gateway
	i := slices.IndexFunc(w.Gateways, func(g *gatewayv1.Gateway) bool { return g.Namespace == name.Namespace && g.Name == name.Name })
	if i < 0 {
		return nil, fmt.Errorf("gateway %s: %w", name, ErrNotFound)
	}
	g := w.Gateways[i]
	if err := onlyFields(&g.Spec, "GatewayClassName", "Listeners", "Addresses", "Infrastructure", "AllowedListeners", "TLS"); err != nil {
		return nil, fmt.Errorf("%s: %w", identity("Gateway", g), err)
	}
	if r.entrance.Port != 0 && len(ports(g, r.entrance.Port)) == 0 {
		return nil, fmt.Errorf("%s: port %d: %w", identity("Gateway", g), r.entrance.Port, ErrNotFound)
	}
	return g, nil
}

// ports returns the ports on which a Gateway takes HTTP: one of them, or with 0 all.
func ports(g *gatewayv1.Gateway, port int32) []int32 {
	var all []int32
	for i := range g.Spec.Listeners {
		if l := &g.Spec.Listeners[i]; takesHTTP(l) && (port == 0 || port == l.Port) {
			all = append(all, l.Port)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func takesHTTP(l *gatewayv1.Listener) bool {
	return l.Protocol == gatewayv1.HTTPProtocolType || l.Protocol == gatewayv1.HTTPSProtocolType
}

// onPort answers a request to one port of a Gateway.
func (w *World) onPort(g *gatewayv1.Gateway, port int32, r *request) (*answer, error) {
	l, err := listenerFor(g, port, r.host)
	if err != nil {
		return nil, err
	}
	var all []*candidate
	var best *string // the most specific host name, whether its rules fit or not
	for _, route := range w.HTTPRoutes {
		attached, err := w.attached(route, g, l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", identity("HTTPRoute", route), err)
		}
		hostname, serves := servedHostname(route, l, r.host)
		if !attached || !serves {
			continue
		}
		if best == nil || compareHostnames(hostname, *best) < 0 {
			best = &hostname
		}
		found, err := candidates(route, hostname, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", identity("HTTPRoute", route), err)
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, ErrNoRoute
	}
	first := slices.MinFunc(all, (*candidate).compare)
	if compareHostnames(*best, first.hostname) < 0 {
		return nil, fmt.Errorf("no rule of host name %q fits, one of %q does: %w", *best, first.hostname, ErrAmbiguous)
	}
	a, err := first.answer(r)
	if err != nil {
		return nil, fmt.Errorf("%s: rule %d: %w", identity("HTTPRoute", first.route), first.ruleIndex, err)
	}
	return a, nil
}

// listenerFor returns the listener of a port whose host name is the most specific of those that cover a host.
func listenerFor(g *gatewayv1.Gateway, port int32, host string) (*gatewayv1.Listener, error) {
	var found *gatewayv1.Listener
	for i := range g.Spec.Listeners {
		l := &g.Spec.Listeners[i]
		if l.Port != port || !takesHTTP(l) || !listens(l, host) {
			continue
		}
		if found != nil && listenerHostname(found) == listenerHostname(l) {
			return nil, fmt.Errorf("listeners %s and %s have one host name: %w", found.Name, l.Name, ErrInvalid)
		}
		if found == nil || compareHostnames(listenerHostname(l), listenerHostname(found)) < 0 {
			found = l
		}
	}
	if found == nil {
		return nil, ErrNoRoute
	}
	return found, nil
}

// listenerHostname returns the host name of a listener; that of one for all hosts is empty.
func listenerHostname(l *gatewayv1.Listener) string {
	if l.Hostname == nil {
		return ""
	}
	return strings.ToLower(string(*l.Hostname))
}

func listens(l *gatewayv1.Listener, host string) bool {
	name := listenerHostname(l)
	return name == "" || covers(name, host)
}

// servedHostname returns the most specific host name by which a route has a host. A route without host names has those of
// the listener.
func servedHostname(route *gatewayv1.HTTPRoute, l *gatewayv1.Listener, host string) (hostname string, serves bool) {
	if len(route.Spec.Hostnames) == 0 {
		return listenerHostname(l), true
	}
	for _, h := range route.Spec.Hostnames {
		name := strings.ToLower(string(h))
		if covers(name, host) && (!serves || compareHostnames(name, hostname) < 0) {
			hostname, serves = name, true
		}
	}
	return hostname, serves
}

// candidate is one match of a route that fits the request.
type candidate struct {
	route        *gatewayv1.HTTPRoute
	hostname     string
	rule         *gatewayv1.HTTPRouteRule
	ruleIndex    int
	match        *gatewayv1.HTTPRouteMatch
	rank, length int // of the path
}

// compare orders candidates, the one that wins first.
func (c *candidate) compare(d *candidate) int {
	return cmp.Or(
		compareHostnames(c.hostname, d.hostname),
		cmp.Compare(c.rank, d.rank),
		cmp.Compare(d.length, c.length),
		cmp.Compare(methods(d.match), methods(c.match)),
		cmp.Compare(len(d.match.Headers), len(c.match.Headers)),
		cmp.Compare(len(d.match.QueryParams), len(c.match.QueryParams)),
		c.route.CreationTimestamp.Compare(d.route.CreationTimestamp.Time),
		cmp.Compare(c.route.Namespace+"/"+c.route.Name, d.route.Namespace+"/"+d.route.Name),
		cmp.Compare(c.ruleIndex, d.ruleIndex),
	)
}

func methods(m *gatewayv1.HTTPRouteMatch) int {
	if m.Method == nil {
		return 0
	}
	return 1
}

// candidates returns the matches of a route that fit. As API servers do, it takes no rules for one rule, and no matches for
// one of all paths.
func candidates(route *gatewayv1.HTTPRoute, hostname string, r *request) ([]*candidate, error) {
	rules := route.Spec.Rules
	if len(rules) == 0 {
		rules = make([]gatewayv1.HTTPRouteRule, 1)
	}
	var all []*candidate
	for i := range rules {
		matches := rules[i].Matches
		if len(matches) == 0 {
			matches = make([]gatewayv1.HTTPRouteMatch, 1)
		}
		for j := range matches {
			c := &candidate{route: route, hostname: hostname, rule: &rules[i], ruleIndex: i, match: &matches[j]}
			fits, err := c.fits(r)
			if err != nil {
				return nil, fmt.Errorf("rule %d: match %d: %w", i, j, err)
			}
			if fits {
				all = append(all, c)
			}
		}
	}
	return all, nil
}
