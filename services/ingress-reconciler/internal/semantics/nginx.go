package semantics

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// nginxLocation is what a configuration of nginx has for a path.
type nginxLocation struct {
	exact bool
	name  string
	*location
}

// chooseNginx finds a location as nginx does (https://nginx.org/en/docs/http/ngx_http_core_module.html#location).
func chooseNginx(all []nginxLocation, path string) (*location, error) {
	if err := checkNginx(all); err != nil {
		return nil, err
	}
	var found *location
	longest, redirected := -1, false
	for _, n := range all {
		switch {
		case n.exact && n.name == path:
			return n.location, nil
		case n.exact:
		case n.name == path+"/":
			redirected = true
		case strings.HasPrefix(path, n.name) && len(n.name) > longest:
			found, longest = n.location, len(n.name)
		}
	}
	if redirected && longest < len(path) {
		return nil, fmt.Errorf("from %s to %s/: %w", path, path, ErrRedirected)
	}
	return found, nil
}

// checkNginx refuses a configuration that nginx would refuse.
func checkNginx(all []nginxLocation) error {
	type key struct {
		exact bool
		name  string
	}
	seen := map[key]bool{}
	for _, n := range all {
		k := key{n.exact, n.name}
		if seen[k] {
			return fmt.Errorf("location %s is there twice: %w", n.name, ErrAmbiguous)
		}
		seen[k] = true
	}
	return nil
}

// chooseNginxOrg takes Prefix as nginx takes prefixes: by letters.
func chooseNginxOrg(all []*location, path string) (*location, error) {
	if len(all) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	group := byHost(all)[0]
	owner := slices.MinFunc(group, func(a, b *location) int {
		return cmp.Or(
			a.ingress.CreationTimestamp.Compare(b.ingress.CreationTimestamp.Time),
			cmp.Compare(a.ingress.UID, b.ingress.UID),
		)
	}).ingress
	var nginx []nginxLocation
	for _, l := range group {
		switch {
		case l.ingress == owner:
			nginx = append(nginx, nginxLocation{exact: l.kind == networkingv1.PathTypeExact, name: l.path, location: l})
		case l.ingress.UID == owner.UID && l.ingress.CreationTimestamp.Equal(&owner.CreationTimestamp):
			return nil, fmt.Errorf("%s and %s have host %q: %w",
				identity("Ingress", owner), identity("Ingress", l.ingress), l.host, ErrAmbiguous)
		}
	}
	return chooseNginx(nginx, path)
}

// goodRewrite is what the controller of nginx.org takes as a path.
var goodRewrite = regexp.MustCompile(`^/[^\s{};$]*$`)

// rewriteNginxOrg replaces the letters of the location by what is said for its Service, as proxy_pass with a URI does.
func rewriteNginxOrg(_ *World, l *location, a *answer) error {
	annotation, found := l.ingress.Annotations[annotationNginxRewrites]
	if !found {
		return nil
	}
	to := map[string]string{}
	for part := range strings.SplitSeq(annotation, ";") {
		service, rewrite, _ := strings.Cut(strings.TrimSpace(part), " ")
		service, isService := strings.CutPrefix(service, "serviceName=")
		rewrite, isRewrite := strings.CutPrefix(rewrite, "rewrite=")
		if _, twice := to[service]; twice || !isService || !isRewrite || strings.Contains(rewrite, "=") || !goodRewrite.MatchString(rewrite) {
			return fmt.Errorf("annotation %s: %q: %w", annotationNginxRewrites, part, ErrInvalid)
		}
		to[service] = rewrite
	}
	if l.backend.Service == nil {
		return nil
	}
	if rewrite, found := to[l.backend.Service.Name]; found {
		a.path = rewrite + strings.TrimPrefix(a.path, l.path)
	}
	return nil
}

// chooseIngressNginx takes Prefix by elements, unless the host has an expression. Then all of its paths are expressions, which
// see no case and need not match to the end, and the longest as it is written is the first to be tried.
func chooseIngressNginx(all []*location, path string) (*location, error) {
	if len(all) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	group := oldestOfEach(byHost(all)[0])
	isExpression := false
	for _, l := range group {
		x, err := hasExpression(l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", identity("Ingress", l.ingress), err)
		}
		isExpression = isExpression || x
	}
	slices.SortStableFunc(group, func(a, b *location) int {
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(b.path, a.path))
	})
	nginx := splitPrefixes(group)
	if !isExpression {
		return chooseNginx(nginx, path)
	}
	for _, n := range nginx {
		re, err := compile("(?i)^" + n.name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", identity("Ingress", n.ingress), err)
		}
		if re.MatchString(path) {
			return n.location, nil
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

// oldestOfEach leaves out what another Ingress has said before. Locations come with the oldest Ingress first.
func oldestOfEach(all []*location) []*location {
	var out []*location
	for _, l := range all {
		if !slices.ContainsFunc(out, func(o *location) bool { return o.path == l.path && o.kind == l.kind }) {
			out = append(out, l)
		}
	}
	return out
}

// hasExpression reports whether the path of a location is, or makes, an expression.
func hasExpression(l *location) (bool, error) {
	switch v := l.ingress.Annotations[annotationUseRegex]; v {
	case "true":
		return true, nil
	case "", "false":
	default:
		return false, fmt.Errorf("annotation %s: %q: %w", annotationUseRegex, v, ErrInvalid)
	}
	target := l.ingress.Annotations[annotationNginxTarget]
	if target != "" && target == l.path && target != "/" {
		return false, fmt.Errorf("annotation %s: it is the path: %w", annotationNginxTarget, ErrUnsupported)
	}
	return target != "" && target != l.path, nil
}

// splitPrefixes gives a Prefix two locations: one for what is below it, and one for itself, unless there is an Exact path. A
// Prefix that is an expression stays as it is.
func splitPrefixes(group []*location) []nginxLocation {
	var out []nginxLocation
	for _, l := range group {
		own, _ := hasExpression(l) // asked before: there is no error
		switch {
		case l.kind == networkingv1.PathTypePrefix && l.path != "/" && !own:
			out = append(out, nginxLocation{name: strings.TrimSuffix(l.path, "/") + "/", location: l})
			if !slices.ContainsFunc(group, func(e *location) bool { return e.kind == networkingv1.PathTypeExact && e.path == l.path }) {
				out = append(out, nginxLocation{exact: true, name: l.path, location: l})
			}
		default:
			out = append(out, nginxLocation{exact: l.kind == networkingv1.PathTypeExact, name: l.path, location: l})
		}
	}
	return out
}

// rewriteIngressNginx puts the target in the place of the whole path, with what the groups of its expression have matched.
func rewriteIngressNginx(_ *World, l *location, a *answer) error {
	target := l.ingress.Annotations[annotationNginxTarget]
	if target == "" || target == l.path {
		return nil
	}
	if !strings.HasPrefix(target, "/") || strings.Contains(target, "$0") || strings.ContainsAny(target, " \t\r\n;{}?#'\"\\") {
		return fmt.Errorf("annotation %s: %q: %w", annotationNginxTarget, target, ErrUnsupported)
	}
	re, err := compile("(?i)" + l.path)
	if err != nil {
		return err
	}
	if groups := re.FindStringSubmatch(a.path); groups != nil {
		a.path, err = expand(target, '$', groups)
	}
	return err
}
