package dataplane

import (
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
	"fairlead.dev/deploy/emulators/ocilb/internal/routing"
	"fairlead.dev/deploy/emulators/ocilb/internal/rules"
)

// listener is a listener of a version of a load balancer. It does not change.
type listener struct {
	name      string
	port      int
	kind      kind
	hosts     []string // empty: all
	set       string   // without a route
	policy    []rule
	paths     []routing.Path
	sets      []string // of each path
	rules     *rules.Rules
	idle      time.Duration
	requestID string      // header of the id of requests; empty: none
	tls       *tls.Config // nil without TLS
}

// rule is a rule of a routing policy.
type rule struct {
	condition *routing.Condition
	set       string
}

func (p *Plane) newListener(lb *lbapi.LoadBalancer, from *lbapi.Listener) *listener {
	l := &listener{
		name: from.Name, port: from.Port, kind: kindOf(from), hosts: lb.HostsOf(from), set: from.DefaultBackendSetName,
		rules: rules.New(lb.RulesOf(from)), idle: time.Duration(from.IdleTimeout()) * time.Second, tls: p.serverTLS(lb, from),
	}
	if lb.IsRequestIDEnabled {
		if l.requestID = lb.RequestIDHeader; l.requestID == "" {
			l.requestID = defaultRequestID
		}
	}
	switch {
	case from.RoutingPolicyName != nil && lb.RoutingPolicies[*from.RoutingPolicyName] != nil:
		for _, r := range lb.RoutingPolicies[*from.RoutingPolicyName].Rules {
			if c, err := routing.Parse(r.Condition); err == nil {
				l.policy = append(l.policy, rule{condition: c, set: r.Target()})
			}
		}
	case from.PathRouteSetName != nil && lb.PathRouteSets[*from.PathRouteSetName] != nil:
		for _, r := range lb.PathRouteSets[*from.PathRouteSetName].PathRoutes {
			l.paths, l.sets = append(l.paths, routing.Path{Type: r.PathMatchType.MatchType, Text: r.Path}), append(l.sets, r.BackendSetName)
		}
	}
	return l
}

// defaultRequestID is the header of the id of requests.
const defaultRequestID = "X-Request-Id"

// route returns the name of the backend set for a request, which is nil for a connection.
func (l *listener) route(r *http.Request) string {
	if r == nil {
		return l.set
	}
	for _, rule := range l.policy {
		if rule.condition.Match(r) {
			return rule.set
		}
	}
	if i := routing.BestPath(l.paths, r.URL.Path); i >= 0 {
		return l.sets[i]
	}
	return l.set
}

// listenerFor returns the listener of a port for the name of a host, or nil: the one with this name, then the one with the longest
// wildcard before it, then behind it, and then the one without names. Without such a one, the first listener takes the request: the
// documentation says the first that was configured, and here that is the first by name.
func (b *balancer) listenerFor(number int, host string) *listener {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(host)
	var best *listener
	score := -1
	for _, l := range b.listeners {
		if l.port != number {
			continue
		}
		own := l.score(host)
		if best == nil || own > score || own == score && l.name < best.name {
			best, score = l, own
		}
	}
	return best
}

// Scores of hosts: an exact name, and wildcards, to which the length of the rest is added.
const (
	scoreExact  = 1_000_000
	scoreBefore = 10_000
	scoreBehind = 10
	scoreAll    = 1
)

// score returns how well a listener fits a host: 0 if it has other names.
func (l *listener) score(host string) int {
	if len(l.hosts) == 0 {
		return scoreAll
	}
	best := 0
	for _, name := range l.hosts {
		before, hasBefore := strings.CutPrefix(name, "*")
		behind, hasBehind := strings.CutSuffix(name, "*")
		switch {
		case name == host:
			best = max(best, scoreExact)
		case hasBefore && strings.HasSuffix(host, before):
			best = max(best, scoreBefore+len(before))
		case hasBehind && strings.HasPrefix(host, behind):
			best = max(best, scoreBehind+len(behind))
		}
	}
	return best
}

// sharing returns the listeners of a port, by their names.
func (b *balancer) sharing(number int) []*listener {
	var all []*listener
	for _, l := range b.listeners {
		if l.port == number {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(x, y *listener) int { return strings.Compare(x.name, y.name) })
	return all
}
