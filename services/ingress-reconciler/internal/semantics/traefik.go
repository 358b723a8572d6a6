package semantics

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// Traefik's provider for Ingresses, by its source (pkg/provider/kubernetes/ingress, pkg/muxer/http), with its default options.
//
// Each path is a rule. Prefix and ImplementationSpecific compare characters: "/a" matches "/ab". Of all rules that match, of all
// hosts, the one with the highest priority wins: that of the annotation, or else the length of the rule's text. Two rules with
// one priority are ErrAmbiguous, unless they give the same answer.

const (
	prefixTraefik         = "traefik.ingress.kubernetes.io/"
	annotationMiddlewares = prefixTraefik + "router.middlewares"
	annotationPriority    = prefixTraefik + "router.priority"
)

var traefik = ingressController{
	prefixes: []string{prefixTraefik}, known: []string{annotationMiddlewares, annotationPriority},
	inert: []string{prefixTraefik + "router.entrypoints", prefixTraefik + "router.tls", prefixTraefik + "router.tls.certresolver"},
	order: orderTraefik,
}

func orderTraefik(w *World, x *classIndex, r *request) ([]contender, error) {
	var found []*ingressMatch
	for _, l := range x.locations(r.host) {
		if l.path != r.path && (l.kind == networkingv1.PathTypeExact || !strings.HasPrefix(r.path, l.path)) {
			continue
		}
		priority, err := traefikPriority(l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", identity("Ingress", l.ingress), err)
		}
		found = append(found, &ingressMatch{location: l, request: r, world: w, rewrite: rewriteTraefik, loses: traefikReason, priority: priority})
	}
	slices.SortStableFunc(found, func(a, b *ingressMatch) int { return cmp.Compare(b.priority, a.priority) })
	contenders := make([]contender, len(found))
	for i, m := range found {
		contenders[i] = m
		if i > 0 && m.priority == found[0].priority && !sameAnswer(found[0], m) {
			return nil, fmt.Errorf("path %s of %s and path %s of %s have priority %d: %w",
				found[0].path, identity("Ingress", found[0].ingress), m.path, identity("Ingress", m.ingress), m.priority, ErrAmbiguous)
		}
	}
	return contenders, nil
}

func traefikReason(loser, winner *ingressMatch) string {
	if loser.priority == winner.priority {
		return "it has the same priority and gives the same answer"
	}
	return fmt.Sprintf("its priority is %d, and the winner's %d", loser.priority, winner.priority)
}

func sameAnswer(a, b contender) bool {
	x, err := a.resolve()
	if err != nil {
		return false
	}
	y, err := b.resolve()
	return err == nil && reflect.DeepEqual(x, y)
}

// traefikPriority returns the priority of a rule.
func traefikPriority(l *location) (int, error) {
	if text, found := l.ingress.Annotations[annotationPriority]; found {
		priority, err := strconv.Atoi(text)
		if err != nil || priority > math.MaxInt32 {
			return 0, fmt.Errorf("annotation %s: %q: %w", annotationPriority, text, ErrInvalid)
		}
		if priority != 0 {
			return priority, nil
		}
	}
	matcher := "PathPrefix"
	if l.kind == networkingv1.PathTypeExact {
		matcher = "Path"
	}
	return len(traefikHost(l)) + len(fmt.Sprintf("%s(%q)", matcher, l.path)), nil
}

// traefikHost returns the part of a rule that matches the host.
func traefikHost(l *location) string {
	if l.host == "" {
		return ""
	}
	return fmt.Sprintf("Host(%q) && ", l.host)
}

// rewriteTraefik passes a request through the Middlewares that an Ingress names, in their order.
func rewriteTraefik(w *World, l *location, a *answer) error {
	annotation, found := l.ingress.Annotations[annotationMiddlewares]
	if !found {
		return nil
	}
	for name := range strings.SplitSeq(annotation, ",") {
		name = strings.TrimSpace(name)
		m, err := w.middleware(name)
		if err != nil {
			return fmt.Errorf("annotation %s: %q: %w", annotationMiddlewares, name, err)
		}
		if err := passMiddleware(m, a); err != nil {
			return fmt.Errorf("%s: %w", identity("Middleware", m), err)
		}
	}
	return nil
}
