package gatewayplan

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// Each rule of a route claims a host and path for its namespace, on all listeners of the load balancer. Package ownership decides between
// namespaces. Routes of one namespace never conflict: the Gateway API's precedence orders them. A host is the text of a hostname: one that
// a wildcard covers is another host, and wins by its precedence.
//
// Claims are live if the record has them: the record is written before the load balancer serves a route, so the incumbent stays the same
// after a restart, and a route that is created again later does not inherit the age of its name.

// anyHost is the host of routes for all hosts.
const anyHost = "*"

// claim is a claim of a rule with the listeners that have its host.
type claim struct {
	ownership.Claim

	listeners []*Listener
}

// claimsOf returns the claims of a rule of a route on listeners.
func claimsOf(route *gatewayv1.HTTPRoute, rule *gatewayv1.HTTPRouteRule, listeners []*Listener) []claim {
	hosts := map[string][]*Listener{}
	own := route.Spec.Hostnames
	if len(own) == 0 {
		own = []gatewayv1.Hostname{""}
	}
	for _, l := range listeners {
		for _, h := range own {
			if both, ok := gatewayapi.IntersectHostnames(string(h), l.lowerHostname()); ok {
				host := cmp.Or(both, anyHost)
				if n := len(hosts[host]); n == 0 || hosts[host][n-1] != l {
					hosts[host] = append(hosts[host], l)
				}
			}
		}
	}
	matches := rule.Matches
	if len(matches) == 0 {
		matches = []gatewayv1.HTTPRouteMatch{{}}
	}
	seen := map[ownership.Claim]bool{}
	var claims []claim
	for _, host := range slices.Sorted(maps.Keys(hosts)) { // the same message in each plan
		for i := range matches {
			if c := claimOf(host, &matches[i]); !seen[c] {
				seen[c] = true
				claims = append(claims, claim{c, hosts[host]})
			}
		}
	}
	return claims
}

// claimOf returns the claim of a match. A regular expression claims everything, as it could match any path.
func claimOf(host string, m *gatewayv1.HTTPRouteMatch) ownership.Claim {
	c := ownership.Claim{Host: host, Path: "/"}
	if kind, path := gatewayapi.PathOf(m); kind != gatewayv1.PathMatchRegularExpression {
		c.Path = strings.TrimSuffix(path, "/") + "/"
	}
	if len(m.Headers) > 0 {
		c.Header, c.Value = strings.ToLower(string(m.Headers[0].Name)), m.Headers[0].Value
	}
	return c
}

// isRedirect reports whether a rule only redirects: it sends no requests to backends of its namespace.
func isRedirect(rule *gatewayv1.HTTPRouteRule) bool {
	return slices.ContainsFunc(rule.Filters,
		func(f gatewayv1.HTTPRouteFilter) bool { return f.Type == gatewayv1.HTTPRouteFilterRequestRedirect })
}

// decideClaims refuses the rules whose hosts and paths belong to another namespace.
func (b *planBuilder) decideClaims() {
	claimsByOwner := b.collectClaims()
	registry := ownership.New()
	registry.SetAll(claimsByOwner)
	refused := map[string]map[ownership.Claim]ownership.Conflict{}
	for owner, asks := range claimsByOwner {
		refused[owner.Namespace], _ = registry.Set(owner, asks.Created, asks.Asks)
	}
	for _, r := range b.Routes {
		for i, claims := range r.claims {
			for _, c := range claims {
				if _, lost := refused[r.Namespace][c.Claim]; lost && !isRedirect(&r.Spec.Rules[i]) {
					r.route.Refused[i] = plan.NewProblem(reasonHostConflict,
						"routes of another namespace have host %.120s and path %.120s, or a part of it", c.Host, c.Path)
				}
			}
		}
	}
}

// collectClaims returns what the routes of all namespaces claim.
func (b *planBuilder) collectClaims() map[ownership.Owner]ownership.Claims {
	claimsByOwner := map[ownership.Owner]ownership.Claims{}
	for _, r := range b.Routes {
		owner := ownership.Owner{Namespace: r.Namespace}
		own := claimsByOwner[owner]
		if own.Created.IsZero() || r.CreationTimestamp.Time.Before(own.Created) {
			own.Created = r.CreationTimestamp.Time
		}
		for i, claims := range r.claims {
			if isRedirect(&r.Spec.Rules[i]) {
				continue
			}
			for _, c := range claims {
				own.Asks = append(own.Asks, ownership.Ask{Claim: c.Claim, Live: b.liveSince(r.Namespace, c.Claim)})
			}
		}
		claimsByOwner[owner] = own
	}
	return claimsByOwner
}

// liveSince returns since when the load balancer serves a claim of a namespace, zero if it does not.
func (b *planBuilder) liveSince(namespace string, c ownership.Claim) time.Time {
	if have, found := b.before.Claims[lbrecord.ClaimHash(c.String())]; found && have.Namespace == namespace {
		return have.Since
	}
	return time.Time{}
}

// recordClaims records the claims of the rules that are programmed, with the hosts of the listeners that have them.
func (b *planBuilder) recordClaims() {
	refused := map[ruleAt]bool{}
	for i := range b.desired.Problems {
		p := &b.desired.Problems[i]
		refused[ruleAt{p.Route, p.Rule, p.Gateway, p.Listener}] = true
	}
	for _, r := range b.Routes {
		at := ruleAt{route: types.NamespacedName{Namespace: r.Namespace, Name: r.Name}}
		for at.rule = range r.Spec.Rules {
			if isRedirect(&r.Spec.Rules[at.rule]) || refused[at] { // all listeners refuse it
				continue
			}
			for _, c := range r.claims[at.rule] {
				if slices.ContainsFunc(c.listeners, func(l *Listener) bool {
					return !refused[ruleAt{at.route, at.rule, l.gateway.gatewayName(), string(l.Name)}]
				}) {
					b.recordClaim(r.Namespace, c.Claim)
				}
			}
		}
	}
}

// ruleAt names a rule of a route on a listener of a Gateway; on all, if it has no listener.
type ruleAt struct {
	route    types.NamespacedName
	rule     int
	gateway  types.NamespacedName
	listener string
}

// recordClaim records a claim, with the time since when it is served.
func (b *planBuilder) recordClaim(namespace string, c ownership.Claim) {
	since := b.liveSince(namespace, c)
	if since.IsZero() {
		since = b.Now.UTC().Truncate(time.Second)
	}
	b.Plan.Record.Claims[lbrecord.ClaimHash(c.String())] = lbrecord.Claim{Namespace: namespace, Since: since}
}
