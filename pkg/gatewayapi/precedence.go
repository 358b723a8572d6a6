package gatewayapi

import (
	"cmp"
	"strings"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/ownership"
)

// RouteMatch is a match of a rule of an HTTPRoute, for one hostname.
type RouteMatch struct {
	Route      *gatewayv1.HTTPRoute
	Hostname   string // in lower case; see HostnamesIntersect
	Match      *gatewayv1.HTTPRouteMatch
	RuleIndex  int
	MatchIndex int
}

// Criterion is one comparison in the order of precedence.
type Criterion struct {
	Compare func(a, b *RouteMatch) int
	// Reason is why the match that compares greater loses.
	Reason string
}

// Precedence returns the order of precedence of matches that apply to one request: the match that compares less by the first criterion
// for which they differ wins. The specification leaves the place of regular expressions open; here they come after prefixes.
func Precedence() []Criterion {
	return []Criterion{
		{func(a, b *RouteMatch) int { return CompareHostnames(a.Hostname, b.Hostname) }, "its hostname is less specific"},
		{func(a, b *RouteMatch) int { return cmp.Compare(a.PathRank(), b.PathRank()) }, "its type of path match comes later"},
		{func(a, b *RouteMatch) int { return cmp.Compare(b.PathLength(), a.PathLength()) }, "its path is shorter"},
		{func(a, b *RouteMatch) int { return cmp.Compare(b.Methods(), a.Methods()) }, "it does not match the method"},
		{func(a, b *RouteMatch) int { return cmp.Compare(len(b.Match.Headers), len(a.Match.Headers)) }, "it matches fewer headers"},
		{
			func(a, b *RouteMatch) int { return cmp.Compare(len(b.Match.QueryParams), len(a.Match.QueryParams)) },
			"it matches fewer query parameters",
		},
		{func(a, b *RouteMatch) int { return a.Route.CreationTimestamp.Compare(b.Route.CreationTimestamp.Time) }, "its object is younger"},
		{func(a, b *RouteMatch) int { return ownership.CompareAge(a.Route, b.Route) }, "its object has the same age and comes later by name"},
		{func(a, b *RouteMatch) int { return cmp.Compare(a.RuleIndex, b.RuleIndex) }, "its rule comes later in the object"},
		{func(a, b *RouteMatch) int { return cmp.Compare(a.MatchIndex, b.MatchIndex) }, "its match comes later in the rule"},
	}
}

// Ranks of path matches: the lower one wins.
const (
	RankExact = iota
	RankPrefix
	RankRegularExpression
	RankUnknown // a type of a later release of Gateway API
)

// PathRank returns the rank of the path's type.
func (m *RouteMatch) PathRank() int {
	switch kind, _ := PathOf(m.Match); kind {
	case gatewayv1.PathMatchExact:
		return RankExact
	case gatewayv1.PathMatchPathPrefix:
		return RankPrefix
	case gatewayv1.PathMatchRegularExpression:
		return RankRegularExpression
	}
	return RankUnknown
}

// PathLength returns the length of the path. A trailing slash of a prefix does not count.
func (m *RouteMatch) PathLength() int {
	kind, path := PathOf(m.Match)
	if kind == gatewayv1.PathMatchPathPrefix {
		return len(strings.TrimSuffix(path, "/"))
	}
	return len(path)
}

// Methods returns the number of methods of the match: 0, for all methods, or 1.
func (m *RouteMatch) Methods() int {
	if m.Match.Method == nil {
		return 0
	}
	return 1
}

// PathOf returns the path of a match. A match without a path is a prefix match for all paths.
func PathOf(m *gatewayv1.HTTPRouteMatch) (gatewayv1.PathMatchType, string) {
	if m.Path == nil {
		return gatewayv1.PathMatchPathPrefix, "/"
	}
	return ptr.Deref(m.Path.Type, gatewayv1.PathMatchPathPrefix), ptr.Deref(m.Path.Value, "/")
}

// HasPathPrefix reports whether a path begins with the elements of a prefix. It ignores a trailing slash of the prefix.
func HasPathPrefix(path, prefix string) bool {
	rest, found := strings.CutPrefix(path, strings.TrimSuffix(prefix, "/"))
	return found && (rest == "" || rest[0] == '/')
}

// CompareHostnames orders hostnames that cover the same host, the more specific first: an exact hostname, then the longer wildcard,
// then the hostname for all hosts.
func CompareHostnames(a, b string) int {
	return cmp.Or(cmp.Compare(exactLength(b), exactLength(a)), cmp.Compare(len(b), len(a)))
}

func exactLength(hostname string) int {
	if strings.HasPrefix(hostname, "*") {
		return 0
	}
	return len(hostname)
}

// IntersectHostnames returns the hostname that covers the hosts that both hostnames cover, in lower case. It returns false if they have
// no host in common.
func IntersectHostnames(a, b string) (string, bool) {
	if !HostnamesIntersect(a, b) {
		return "", false
	}
	a, b = strings.ToLower(a), strings.ToLower(b)
	if CompareHostnames(a, b) <= 0 {
		return a, true
	}
	return b, true
}
