package semantics

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
)

// This file models ingress-nginx, from the configuration that it generates (internal/ingress/controller) and nginx's algorithm for
// locations, and Traefik's NGINX provider, which reads the same Ingresses (pkg/provider/kubernetes/ingress-nginx).
//
//	                          ingress-nginx                            Traefik
//	hosts                     only the most specific host counts       paths of all hosts compete
//	Prefix                    compares elements                        compares elements
//	ImplementationSpecific    as Prefix                                as Prefix
//	a regular expression      all paths of the host, Exact ones too,   all paths of the host except Exact
//	                          become expressions: anchored at the
//	                          start only, and case-insensitive
//	winning path              Exact, then the longest; expressions     the rule with the longest text
//	                          by the length and order of their text
//	a path of two Ingresses   the older Ingress                        either Ingress
//	Prefix "/a/" and "/a"     redirects                                matches
//	rewrite-target            replaces the whole path                  replaces the text that the expression matched
//
// If an answer depends on a difference, the result is ErrAmbiguous: the IngressClass does not show which of the two controllers serves it.

const (
	prefixNGINX           = "nginx.ingress.kubernetes.io/"
	annotationUseRegex    = prefixNGINX + "use-regex"
	annotationNGINXTarget = prefixNGINX + "rewrite-target"
)

// ingressNGINX is the model of both controllers.
var ingressNGINX = ingressController{
	prefixes: []string{prefixNGINX}, known: []string{annotationUseRegex, annotationNGINXTarget},
	irrelevant: append(irrelevantAnnotations(&ingressclass.IngressNGINX, annotationUseRegex, annotationNGINXTarget),
		prefixNGINX+"backend-protocol", prefixNGINX+"client-body-buffer-size", prefixNGINX+"force-ssl-redirect",
		prefixNGINX+"proxy-http-version", prefixNGINX+"ssl-redirect",
	),
	order: orderNGINX,
}

// irrelevantAnnotations returns the annotations that the renderer writes, or copies by default, except those in but. The returned
// annotations change neither the backend nor the path.
func irrelevantAnnotations(c *ingressclass.Controller, but ...string) []string {
	keys := slices.DeleteFunc(c.ComputedAnnotations(), func(key string) bool { return slices.Contains(but, key) })
	for _, safe := range c.Safe {
		keys = append(keys, safe.Key)
	}
	return keys
}

// orderNGINX returns the contenders on which ingress-nginx and Traefik agree.
func orderNGINX(w *World, x *classIndex, r *request) ([]contender, error) {
	locations := x.locationsFor(r.host)
	servers, err := newServers(locations)
	if err != nil {
		return nil, err
	}
	nginx, redirects, err := nginxMatches(servers, locations, r.path)
	if err != nil {
		return nil, err
	}
	traefik, err := traefikNGINXMatches(servers, locations, r.path)
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Concat(nginx, traefik) {
		m.request, m.world, m.rewrite, m.loses = r, w, rewriteNGINX, servers.lossReason
	}
	switch {
	case redirects:
		return nil, fmt.Errorf("path %s is redirected to %s/ by ingress-nginx, and not by Traefik's NGINX provider: %w", r.path, r.path,
			ErrAmbiguous)
	case len(nginx) == 0 && len(traefik) > 0:
		return nil, fmt.Errorf("path %s has no location with ingress-nginx, and reaches %s with Traefik's NGINX provider: %w", r.path,
			objectIdentity("Ingress", traefik[0].ingress), ErrAmbiguous)
	}
	for _, m := range traefik {
		if m.priority < traefik[0].priority {
			break
		}
		if err := checkAgreement(nginx[0], "by ingress-nginx", m, "by Traefik's NGINX provider"); err != nil {
			return nil, err
		}
	}
	return asContenders(nginx), nil
}

// lossReason explains why a location loses to another one.
func (s servers) lossReason(loser, winner *ingressMatch) string {
	switch {
	case gatewayapi.CompareHostnames(loser.host, winner.host) > 0:
		return "its host is less specific"
	case s.isExact(winner.location) && !s.isExact(loser.location):
		return "its path is not exact"
	case len(loser.path) < len(winner.path):
		return "its path is shorter"
	}
	return "its path comes later"
}

// servers are the hosts of Ingresses.
type servers map[string]server

// server records which controllers treat all paths of a host as regular expressions.
type server struct{ nginx, traefik bool }

// newServers returns the servers for the hosts of locations.
func newServers(locations []*location) (servers, error) {
	s := servers{}
	for _, l := range locations {
		expression, err := isExpression(l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", objectIdentity("Ingress", l.ingress), err)
		}
		h := s[l.host]
		h.nginx = h.nginx || expression
		h.traefik = h.traefik || expression || l.ingress.Annotations[annotationNGINXTarget] != ""
		s[l.host] = h
	}
	return s, nil
}

// isExpression reports whether the path of a location is a regular expression.
func isExpression(l *location) (bool, error) {
	switch v := l.ingress.Annotations[annotationUseRegex]; v {
	case "true":
		return true, nil
	case "", "false":
	default:
		return false, fmt.Errorf("annotation %s: %q: %w", annotationUseRegex, v, ErrInvalid)
	}
	target := l.ingress.Annotations[annotationNGINXTarget]
	if target != "" && target == l.path && target != "/" {
		return false, fmt.Errorf("annotation %s is the path: %w", annotationNGINXTarget, ErrNotModeled)
	}
	return target != "" && target != l.path, nil
}

// nginxMatches returns the locations of the most specific host that match a path, as in nginx
// (https://nginx.org/en/docs/http/ngx_http_core_module.html#location). The first location wins. redirects reports whether nginx
// redirects to the path with a trailing slash instead.
func nginxMatches(s servers, locations []*location, path string) (found []*ingressMatch, redirects bool, err error) {
	group := firstHost(locations)
	exact := map[string]bool{} // paths of type Exact
	for _, l := range group {
		exact[l.path] = exact[l.path] || s.isExact(l)
	}
	slash := false // a prefix equals the path with a trailing slash
	for _, l := range oldestOfEach(group) {
		fits, err := nginxFits(s, l, path, exact[path])
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", objectIdentity("Ingress", l.ingress), err)
		}
		if fits {
			found = append(found, &ingressMatch{location: l})
		}
		slash = slash || l.path == path+"/" && l.kind != networkingv1.PathTypeExact && !s[l.host].nginx
	}
	slices.SortFunc(found, s.compareMatches)
	longest := len(found) == 0 || !s.isExact(found[0].location) && len(found[0].path) < len(path)
	return found, slash && longest, nil
}

// nginxFits reports whether a location matches a path. A prefix does not match its own path if an Exact location has the same path.
func nginxFits(s servers, l *location, path string, exact bool) (bool, error) {
	switch {
	case s.isExact(l):
		return l.path == path, nil
	case s[l.host].nginx:
		re, err := compileRegexp("(?i)^" + l.path)
		return err == nil && re.MatchString(path), err
	}
	return strings.HasPrefix(path, strings.TrimSuffix(l.path, "/")+"/") || path == l.path && !exact, nil
}

// isExact reports whether ingress-nginx compares a whole path. On a host with a regular expression, it does not even for type Exact
// (internal/ingress/controller/template: buildLocation).
func (s servers) isExact(l *location) bool {
	return l.kind == networkingv1.PathTypeExact && !s[l.host].nginx
}

// compareMatches orders locations that match a path: Exact first, then the longest path, then the last path in lexical order.
func (s servers) compareMatches(a, b *ingressMatch) int {
	if s.isExact(a.location) != s.isExact(b.location) {
		if s.isExact(a.location) {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(b.path, a.path))
}

// firstHost returns the locations of the most specific host.
func firstHost(locations []*location) []*location {
	i := slices.IndexFunc(locations, func(l *location) bool { return l.host != locations[0].host })
	if i < 0 {
		return locations
	}
	return locations[:i]
}

// oldestOfEach returns the location of the oldest Ingress for each path and type. If several Ingresses have the same age, the last one
// by name counts.
func oldestOfEach(group []*location) []*location {
	type key struct {
		path  string
		exact bool
	}
	group = slices.SortedStableFunc(slices.Values(group), func(a, b *location) int {
		return cmp.Or(
			a.ingress.CreationTimestamp.Compare(b.ingress.CreationTimestamp.Time),
			cmp.Compare(b.ingress.Namespace+"/"+b.ingress.Name, a.ingress.Namespace+"/"+a.ingress.Name),
		)
	})
	seen := map[key]bool{}
	return slices.DeleteFunc(group, func(l *location) bool {
		k := key{l.path, l.kind == networkingv1.PathTypeExact}
		known := seen[k]
		seen[k] = true
		return known
	})
}

// traefikNGINXMatches returns the locations of all hosts that match a path, the longest rule first.
func traefikNGINXMatches(s servers, locations []*location, path string) ([]*ingressMatch, error) {
	var found []*ingressMatch
	for _, l := range locations {
		rule, fits := strictPrefix(l.path)
		switch {
		case l.kind == networkingv1.PathTypeExact:
			rule, fits = fmt.Sprintf("Path(%q)", l.path), func(p string) bool { return p == l.path }
		case s[l.host].traefik:
			re, err := compileRegexp("(?i)^" + l.path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", objectIdentity("Ingress", l.ingress), err)
			}
			rule, fits = fmt.Sprintf("PathRegexp(%q)", "(?i)^"+l.path), re.MatchString
		}
		if fits(path) {
			found = append(found, &ingressMatch{location: l, priority: len(traefikHost(l) + rule)})
		}
	}
	slices.SortStableFunc(found, func(a, b *ingressMatch) int { return cmp.Compare(b.priority, a.priority) })
	return found, nil
}

// rewriteNGINX replaces the path with the target. The target can contain text that groups of the location's expression matched.
func rewriteNGINX(_ *World, l *location, a *Answer) error {
	target := l.ingress.Annotations[annotationNGINXTarget]
	if target == "" || target == l.path {
		return nil
	}
	if !strings.HasPrefix(target, "/") || strings.Contains(target, "$0") || strings.ContainsAny(target, " \t\r\n;{}?#'\"\\") {
		return fmt.Errorf("annotation %s: %q: %w", annotationNGINXTarget, target, ErrNotModeled)
	}
	re, err := compileRegexp("(?i)" + l.path)
	if err != nil {
		return err
	}
	at := re.FindStringSubmatchIndex(a.Path)
	if at == nil {
		return nil
	}
	if at[0] > 0 || at[1] < len(a.Path) {
		return fmt.Errorf("path %q matches only part of %s, the rest is lost with ingress-nginx and kept by Traefik's NGINX provider: %w",
			l.path, a.Path, ErrAmbiguous)
	}
	a.Path, err = expandGroups(target, re.FindStringSubmatch(a.Path))
	return err
}
