package ingressnginx

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// Annotations of ingress-nginx.
const (
	prefix           = "nginx.ingress.kubernetes.io/"
	annotationCanary = prefix + "canary"
	annotationRegex  = prefix + "use-regex"
	annotationTarget = prefix + "rewrite-target"
)

// catchAll is the name of the server for all hosts.
const catchAll = "_"

// Check returns the reason why the admission webhook refuses an Ingress, or nil if the webhook admits the Ingress. others are the
// existing Ingresses of the controller. Check ignores the one with the same namespace and name.
func Check(in *networkingv1.Ingress, others []*networkingv1.Ingress) error {
	if in.DeletionTimestamp != nil {
		return nil
	}
	if err := checkPathTypes(in); err != nil {
		return fmt.Errorf("ingress contains invalid paths: %w", err)
	}
	for key := range in.Annotations {
		if strings.HasPrefix(key, prefix) && strings.HasSuffix(key, "-snippet") {
			return fmt.Errorf("%s annotation cannot be used. Snippet directives are disabled by the Ingress administrator", key)
		}
	}
	all := slices.DeleteFunc(slices.Clone(others), func(o *networkingv1.Ingress) bool { return sameName(o, in) })
	slices.SortFunc(all, func(a, b *networkingv1.Ingress) int { // oldest first; with equal ages, the last name first
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(key(b), key(a)))
	})
	return checkOverlap(in, newServers(append(all, in)))
}

func key(i *networkingv1.Ingress) string { return i.Namespace + "/" + i.Name }

func sameName(a, b *networkingv1.Ingress) bool { return key(a) == key(b) }

// plainPath matches the valid paths of types Exact and Prefix.
var plainPath = regexp.MustCompile(`(?i)^/[[:alnum:]._\-/]*$`)

func checkPathTypes(in *networkingv1.Ingress) error {
	var errs []error
	eachPath(in, func(_ string, p *networkingv1.HTTPIngressPath) {
		if p.Path == "" || p.PathType != nil && *p.PathType == networkingv1.PathTypeImplementationSpecific || plainPath.MatchString(p.Path) {
			return
		}
		kind := "<nil>"
		if p.PathType != nil {
			kind = string(*p.PathType)
		}
		errs = append(errs, fmt.Errorf("path %s cannot be used with pathType %s", p.Path, kind))
	})
	return errors.Join(errs...)
}

// eachPath calls f with each path and its host, "_" for all hosts.
func eachPath(in *networkingv1.Ingress, f func(host string, p *networkingv1.HTTPIngressPath)) {
	for i := range in.Spec.Rules {
		r := &in.Spec.Rules[i]
		if r.HTTP == nil {
			continue
		}
		for j := range r.HTTP.Paths {
			f(cmp.Or(r.Host, catchAll), &r.HTTP.Paths[j])
		}
	}
}

// location is a path of a server, and the Ingress that defines it.
type location struct {
	path      string
	kind      networkingv1.PathType
	isDefault bool // added by the controller itself
	ingress   *networkingv1.Ingress
}

// servers has the locations of each host of a configuration.
type servers map[string][]*location

// newServers returns the configuration that the controller builds from Ingresses, which are sorted by age, oldest first.
func newServers(all []*networkingv1.Ingress) servers {
	s := servers{catchAll: {{path: "/", kind: networkingv1.PathTypePrefix, isDefault: true}}}
	for _, in := range all {
		if canary, _ := isCanary(in); !canary {
			s.addHosts(in)
		}
	}
	alternatives := canaryUpstreams(all)
	for _, in := range all {
		eachPath(in, func(host string, p *networkingv1.HTTPIngressPath) {
			if p.Backend.Service == nil || alternatives[upstream(in.Namespace, p.Backend.Service)] {
				return
			}
			if _, found := s[host]; !found {
				host = catchAll
			}
			s.add(host, location{path: cmp.Or(p.Path, "/"), kind: kindOf(p), ingress: in})
		})
	}
	for host, locations := range s {
		s[host] = expand(locations)
	}
	return s
}

// addHosts adds a server for each new host of an Ingress, with a default location. The default backend of an Ingress without
// rules becomes the location of the server for all hosts.
func (s servers) addHosts(in *networkingv1.Ingress) {
	if d := in.Spec.DefaultBackend; d != nil && d.Service != nil && len(in.Spec.Rules) == 0 && s[catchAll][0].isDefault {
		*s[catchAll][0] = location{path: "/", kind: networkingv1.PathTypePrefix, ingress: in}
	}
	for i := range in.Spec.Rules {
		host := cmp.Or(in.Spec.Rules[i].Host, catchAll)
		if _, found := s[host]; !found {
			s[host] = []*location{{path: "/", kind: networkingv1.PathTypePrefix, isDefault: true, ingress: in}}
		}
	}
}

// add adds a location, unless the server already has a location with the same path and type. It replaces a default location.
func (s servers) add(host string, l location) {
	for _, known := range s[host] {
		switch {
		case known.path != l.path:
			continue
		case known.kind != l.kind:
		case known.isDefault:
			*known = l
			return
		default:
			return
		}
		break
	}
	s[host] = append(s[host], &l)
}

// kindOf returns the type of a path. The controller treats ImplementationSpecific as Prefix.
func kindOf(p *networkingv1.HTTPIngressPath) networkingv1.PathType {
	if p.PathType == nil || *p.PathType == networkingv1.PathTypeImplementationSpecific {
		return networkingv1.PathTypePrefix
	}
	return *p.PathType
}

// expand replaces each prefix that is not a regular expression by two locations: one for the paths below the prefix, and one for
// the prefix itself, unless an Exact path has the same text.
func expand(locations []*location) []*location {
	exact := map[string]bool{}
	for _, l := range locations {
		exact[l.path] = exact[l.path] || l.kind == networkingv1.PathTypeExact
	}
	var out []*location
	for _, l := range locations {
		if l.path == "/" || l.kind != networkingv1.PathTypePrefix || rewrites(l) {
			out = append(out, l)
			continue
		}
		below := *l
		below.path = strings.TrimSuffix(l.path, "/") + "/"
		out = append(out, &below)
		if !exact[l.path] {
			own := *l
			own.kind = networkingv1.PathTypeExact
			out = append(out, &own)
		}
	}
	return out
}

// rewrites reports whether the path of a location is a regular expression.
func rewrites(l *location) bool {
	if l.ingress == nil {
		return false
	}
	target := l.ingress.Annotations[annotationTarget]
	regex, _ := strconv.ParseBool(l.ingress.Annotations[annotationRegex])
	return regex || target != "" && target != l.path
}

// upstream returns the name of the backend of a path.
func upstream(namespace string, s *networkingv1.IngressServiceBackend) string {
	return fmt.Sprintf("%s-%s-%s%d", namespace, s.Name, s.Port.Name, s.Port.Number)
}

// canaryUpstreams returns the backends that are only alternatives to other backends. The controller adds no locations for them.
func canaryUpstreams(all []*networkingv1.Ingress) map[string]bool {
	upstreams := map[string]bool{}
	for _, in := range all {
		canary, _ := isCanary(in)
		if d := in.Spec.DefaultBackend; d != nil && d.Service != nil {
			upstreams[upstream(in.Namespace, d.Service)] = canary
		}
		eachPath(in, func(_ string, p *networkingv1.HTTPIngressPath) {
			if p.Backend.Service == nil {
				return
			}
			name := upstream(in.Namespace, p.Backend.Service)
			if _, known := upstreams[name]; !known {
				upstreams[name] = canary
			}
		})
	}
	return upstreams
}

// isCanary reports whether an Ingress is a canary, and whether it has the canary annotation, with any value.
func isCanary(in *networkingv1.Ingress) (canary, given bool) {
	text, given := in.Annotations[annotationCanary]
	canary, err := strconv.ParseBool(text)
	return canary && err == nil, given
}

// checkOverlap refuses an Ingress with a host and path of another Ingress, if both are canaries or neither has the canary
// annotation.
func checkOverlap(in *networkingv1.Ingress, s servers) error {
	canary, given := isCanary(in)
	var refused error
	eachPath(in, func(host string, p *networkingv1.HTTPIngressPath) {
		if refused != nil || p.Backend.Service == nil {
			return
		}
		path := cmp.Or(p.Path, "/")
		for _, l := range s[host] {
			if l.path != path || l.isDefault || sameName(l.ingress, in) {
				continue
			}
			otherCanary, otherGiven := isCanary(l.ingress)
			if canary && otherCanary || !given && !otherGiven {
				refused = fmt.Errorf("host %q and path %q is already defined in ingress %s", host, path, key(l.ingress))
				return
			}
		}
	})
	return refused
}
