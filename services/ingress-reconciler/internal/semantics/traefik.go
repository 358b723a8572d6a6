package semantics

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// This file models Traefik's provider for Ingresses, from its source (pkg/provider/kubernetes/ingress, pkg/muxer/http).
//
// Each path is a rule. Of all rules that match, for any host, the rule with the highest priority wins. The priority is the value of an
// annotation, or the length of the rule's text. Prefix and ImplementationSpecific compare characters by default ("/a" matches "/ab"),
// and elements with option strictPrefixMatching, which also makes their rules longer. If an answer depends on the option, or on the
// order of two rules with the same priority, the result is ErrAmbiguous.

const (
	prefixTraefik         = "traefik.ingress.kubernetes.io/"
	annotationMiddlewares = prefixTraefik + "router.middlewares"
	annotationPriority    = prefixTraefik + "router.priority"
)

var traefik = ingressController{
	prefixes: []string{prefixTraefik}, known: []string{annotationMiddlewares, annotationPriority},
	irrelevant: []string{prefixTraefik + "router.entrypoints", prefixTraefik + "router.tls", prefixTraefik + "router.tls.certresolver"},
	order:      orderTraefik,
}

func orderTraefik(w *World, x *classIndex, r *request) ([]contender, error) {
	found, err := traefikMatches(w, x, r, traefikPrefix)
	if err != nil {
		return nil, err
	}
	strict, err := traefikMatches(w, x, r, strictPrefix)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, nil // a strict prefix matches fewer paths
	case len(strict) == 0:
		return nil, fmt.Errorf("path %s reaches path %s of %s, but not with option strictPrefixMatching: %w", r.path, found[0].path,
			objectIdentity("Ingress", found[0].ingress), ErrAmbiguous)
	}
	return asContenders(found), checkAgreement(found[0], "without strictPrefixMatching", strict[0], "with it")
}

// traefikMatches returns the locations that match a path, the highest priority first. If several locations have the highest priority,
// they must agree.
func traefikMatches(w *World, x *classIndex, r *request,
	prefix func(path string) (rule string, fits func(string) bool)) ([]*ingressMatch, error) {
	var found []*ingressMatch
	for _, l := range x.locationsFor(r.host) {
		rule, fits := prefix(l.path)
		if l.kind == networkingv1.PathTypeExact {
			rule, fits = fmt.Sprintf("Path(%q)", l.path), func(path string) bool { return path == l.path }
		}
		if !fits(r.path) {
			continue
		}
		priority, err := traefikPriority(l, rule)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", objectIdentity("Ingress", l.ingress), err)
		}
		found = append(found,
			&ingressMatch{location: l, request: r, world: w, rewrite: rewriteTraefik, loses: traefikReason, priority: priority})
	}
	slices.SortStableFunc(found, func(a, b *ingressMatch) int { return cmp.Compare(b.priority, a.priority) })
	for _, m := range found {
		if m.priority < found[0].priority {
			break
		}
		if err := checkAgreement(found[0], "with its priority", m, "with the same one"); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// traefikPrefix returns the rule of a prefix that compares characters.
func traefikPrefix(path string) (rule string, fits func(string) bool) {
	return fmt.Sprintf("PathPrefix(%q)", path), func(p string) bool { return strings.HasPrefix(p, path) }
}

// strictPrefix returns the rule of a prefix that compares elements.
func strictPrefix(path string) (rule string, fits func(string) bool) {
	bare := strings.TrimSuffix(path, "/")
	if bare == "" {
		return traefikPrefix(path)
	}
	return fmt.Sprintf("(Path(%q) || PathPrefix(%q))", bare,
		bare+"/"), func(p string) bool { return p == bare || strings.HasPrefix(p, bare+"/") }
}

func traefikReason(loser, winner *ingressMatch) string {
	if loser.priority == winner.priority {
		return "it has the same priority and gives the same answer"
	}
	return fmt.Sprintf("its priority is %d, and the winner's %d", loser.priority, winner.priority)
}

// traefikPriority returns the priority of the rule of a location.
func traefikPriority(l *location, rule string) (int, error) {
	if text, found := l.ingress.Annotations[annotationPriority]; found {
		priority, err := strconv.Atoi(text)
		if err != nil || priority > math.MaxInt32 {
			return 0, fmt.Errorf("annotation %s: %q: %w", annotationPriority, text, ErrInvalid)
		}
		if priority != 0 {
			return priority, nil
		}
	}
	return len(traefikHost(l) + rule), nil
}

// traefikHost returns the part of a rule that matches the host.
func traefikHost(l *location) string {
	if l.host == "" {
		return ""
	}
	return fmt.Sprintf("Host(%q) && ", l.host)
}

// rewriteTraefik applies the Middlewares that an Ingress lists, in their order.
func rewriteTraefik(w *World, l *location, a *Answer) error {
	annotation, found := l.ingress.Annotations[annotationMiddlewares]
	if !found {
		return nil
	}
	for name := range strings.SplitSeq(annotation, ",") {
		name = strings.TrimSpace(name)
		m, err := w.findMiddleware(name)
		if err != nil {
			return fmt.Errorf("annotation %s: %q: %w", annotationMiddlewares, name, err)
		}
		if err := passMiddleware(m, a); err != nil {
			return fmt.Errorf("%s: %w", objectIdentity("Middleware", m), err)
		}
	}
	return nil
}
