package semantics

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
)

// ingress-nginx, by the configuration that it writes (internal/ingress/controller) and nginx's search for a location, and
// Traefik's NGINX provider, which reads the same Ingresses (pkg/provider/kubernetes/ingress-nginx).
//
//	                          ingress-nginx                            Traefik
//	host                      the most specific one decides alone      all compete
//	Prefix                    by elements                              by elements
//	ImplementationSpecific    as Prefix                                as Prefix
//	an expression on a host   all paths of the host but Exact become   likewise
//	                          expressions, from the first character
//	                          on, without case and without an end
//	which path wins           Exact, then the longest; expressions     the rule with the longest text
//	                          by the length and order of their text
//	a path of two Ingresses   the older                                either
//	Prefix "/a/" and "/a"     redirects                                matches
//	rewrite-target            replaces the whole path                  replaces what the expression matched
//
// An answer that depends on a difference is ErrAmbiguous: the class does not tell which of the two serves it.

const (
	prefixNGINX           = "nginx.ingress.kubernetes.io/"
	annotationUseRegex    = prefixNGINX + "use-regex"
	annotationNGINXTarget = prefixNGINX + "rewrite-target"
)

// ingressNGINX is the model of both.
var ingressNGINX = ingressController{
	prefixes: []string{prefixNGINX}, known: []string{annotationUseRegex, annotationNGINXTarget},
	inert: append(inertOf(&ingressclass.IngressNGINX, annotationUseRegex, annotationNGINXTarget),
		prefixNGINX+"backend-protocol", prefixNGINX+"client-body-buffer-size", prefixNGINX+"force-ssl-redirect", prefixNGINX+"proxy-http-version",
		prefixNGINX+"ssl-redirect",
	),
	order: orderNGINX,
}

// inertOf returns the annotations that the renderer writes or copies by default, but for some: none of the others changes the
// backend or the path.
func inertOf(c *ingressclass.Controller, but ...string) []string {
	keys := slices.DeleteFunc(c.ComputedAnnotations(), func(key string) bool { return slices.Contains(but, key) })
	for _, safe := range c.Safe {
		keys = append(keys, safe.Key)
	}
	return keys
}

// errRedirect means that nginx redirects to the path with a slash at its end.
var errRedirect = errors.New("ingress-nginx redirects to the path with a slash")

// orderNGINX returns the contenders on which ingress-nginx and Traefik agree.
func orderNGINX(w *World, x *classIndex, r *request) ([]contender, error) {
	all := x.locations(r.host)
	servers, err := newServers(all)
	if err != nil {
		return nil, err
	}
	nginx, err := nginxMatches(servers, all, r.path)
	if err != nil && !errors.Is(err, errRedirect) {
		return nil, err
	}
	byTraefik, traefikErr := traefikNGINXMatches(servers, all, r.path)
	for _, m := range slices.Concat(nginx, byTraefik) {
		m.request, m.world, m.rewrite, m.loses = r, w, rewriteNGINX, nginxReason
	}
	switch {
	case traefikErr != nil:
		return nil, traefikErr
	case err != nil:
		return nil, fmt.Errorf("%w, Traefik's NGINX provider does not: %w", err, ErrAmbiguous)
	case len(byTraefik) == 0:
		return nil, nil
	case len(nginx) == 0:
		return nil, fmt.Errorf("path %s has no location with ingress-nginx, and reaches %s with Traefik's NGINX provider: %w", r.path, identity("Ingress", byTraefik[0].ingress), ErrAmbiguous)
	}
	for _, m := range byTraefik {
		if m.priority == byTraefik[0].priority && m.location != nginx[0].location && !sameAnswer(m, nginx[0]) {
			return nil, fmt.Errorf("path %s reaches %s with ingress-nginx, and can reach %s with Traefik's NGINX provider: %w",
				r.path, identity("Ingress", nginx[0].ingress), identity("Ingress", m.ingress), ErrAmbiguous)
		}
	}
	contenders := make([]contender, len(nginx))
	for i, m := range nginx {
		contenders[i] = m
	}
	return contenders, nil
}

func nginxReason(loser, winner *ingressMatch) string {
	switch {
	case compareHostnames(loser.host, winner.host) > 0:
		return "its host is less specific"
	case winner.kind == networkingv1.PathTypeExact && loser.kind != winner.kind:
		return "its path is not exact"
	case len(loser.path) < len(winner.path):
		return "its path is shorter"
	}
	return "its path comes later"
}

// servers are the hosts of Ingresses.
type servers map[string]server

// server says who takes the paths of a host for expressions.
type server struct{ nginx, traefik bool }

// newServers returns the hosts of locations.
func newServers(all []*location) (servers, error) {
	s := servers{}
	for _, l := range all {
		expression, err := isExpression(l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", identity("Ingress", l.ingress), err)
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

// nginxMatches returns the locations of the most specific host that take a path, as nginx does
// (https://nginx.org/en/docs/http/ngx_http_core_module.html#location). The first wins.
func nginxMatches(s servers, all []*location, path string) ([]*ingressMatch, error) {
	group := firstHost(all)
	exact := map[string]bool{} // paths that are Exact
	for _, l := range group {
		exact[l.path] = exact[l.path] || l.kind == networkingv1.PathTypeExact
	}
	var found []*ingressMatch
	redirect := 0 // length of a prefix that the path lacks a slash for
	for _, l := range oldestOfEach(group) {
		var fits bool
		switch {
		case l.kind == networkingv1.PathTypeExact:
			fits = l.path == path
		case s[l.host].nginx:
			re, err := compile("(?i)^" + l.path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", identity("Ingress", l.ingress), err)
			}
			fits = re.MatchString(path)
		default:
			fits = l.path == "/" || strings.HasPrefix(path, strings.TrimSuffix(l.path, "/")+"/") || path == l.path && !exact[path]
			if path+"/" == l.path {
				redirect = len(path)
			}
		}
		if fits {
			found = append(found, &ingressMatch{location: l})
		}
	}
	slices.SortFunc(found, compareNGINX)
	if redirect > 0 && (len(found) == 0 || found[0].kind != networkingv1.PathTypeExact && len(found[0].path) < redirect) {
		return found, errRedirect
	}
	return found, nil
}

// compareNGINX orders locations that take a path: an Exact one first, then the longest, of expressions the last by their text.
func compareNGINX(a, b *ingressMatch) int {
	exact := func(m *ingressMatch) int {
		if m.kind == networkingv1.PathTypeExact {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(exact(a), exact(b)), cmp.Compare(len(b.path), len(a.path)), cmp.Compare(b.path, a.path))
}

// firstHost returns the locations of the most specific host.
func firstHost(all []*location) []*location {
	i := slices.IndexFunc(all, func(l *location) bool { return l.host != all[0].host })
	if i < 0 {
		return all
	}
	return all[:i]
}

// oldestOfEach returns the location of the oldest Ingress for each path and type. Of Ingresses of one age the last by name
// counts.
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

// traefikNGINXMatches returns the locations of all hosts that take a path, the one with the longest rule first.
func traefikNGINXMatches(s servers, all []*location, path string) ([]*ingressMatch, error) {
	var found []*ingressMatch
	for _, l := range all {
		rule, fits := "", false
		bare := strings.TrimSuffix(l.path, "/")
		switch {
		case l.kind == networkingv1.PathTypeExact:
			rule, fits = fmt.Sprintf("Path(%q)", l.path), path == l.path
		case s[l.host].traefik:
			re, err := compile("(?i)^" + l.path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", identity("Ingress", l.ingress), err)
			}
			rule, fits = fmt.Sprintf("PathRegexp(%q)", "(?i)^"+l.path), re.MatchString(path)
		case l.path == "/":
			rule, fits = `PathPrefix("/")`, true
		default:
			rule, fits = fmt.Sprintf("(Path(%q) || PathPrefix(%q))", bare, bare+"/"), path == bare || strings.HasPrefix(path, bare+"/")
		}
		if fits {
			found = append(found, &ingressMatch{location: l, priority: len(traefikHost(l) + rule)})
		}
	}
	slices.SortStableFunc(found, func(a, b *ingressMatch) int { return cmp.Compare(b.priority, a.priority) })
	return found, nil
}

// rewriteNGINX puts the target in the place of the path, with what the groups of its expression have matched.
func rewriteNGINX(_ *World, l *location, a *answer) error {
	target := l.ingress.Annotations[annotationNGINXTarget]
	if target == "" || target == l.path {
		return nil
	}
	if !strings.HasPrefix(target, "/") || strings.Contains(target, "$0") || strings.ContainsAny(target, " \t\r\n;{}?#'\"\\") {
		return fmt.Errorf("annotation %s: %q: %w", annotationNGINXTarget, target, ErrNotModeled)
	}
	re, err := compile("(?i)" + l.path)
	if err != nil {
		return err
	}
	at := re.FindStringSubmatchIndex(a.path)
	if at == nil {
		return nil
	}
	if at[0] > 0 || at[1] < len(a.path) {
		return fmt.Errorf("path %q matches only part of %s, the rest is lost with ingress-nginx and kept by Traefik's NGINX provider: %w", l.path, a.path, ErrAmbiguous)
	}
	a.path, err = expand(target, re.FindStringSubmatch(a.path))
	return err
}
