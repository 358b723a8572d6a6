package semantics

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
)

// This file models Ingresses, from the API documentation (https://kubernetes.io/docs/concepts/services-networking/ingress/). The model of
// the class's controller defines the behavior that the documentation leaves open.
//
// An Ingress belongs to the class in its specification or in the older annotation. Without either it belongs to the default class. A
// host of an Ingress is a name, or a wildcard for exactly one label.
//
// Modeled: Services with a port number as backends; the default backend of an Ingress without rules. Not modeled: resources as backends,
// port names, hosts without paths, parameters of classes, annotations that the model of the controller does not list.

// ingressController is the model of one controller.
type ingressController struct {
	prefixes   []string // prefixes of all annotations that the controller reads
	known      []string // modeled annotations that can change the answer
	irrelevant []string // annotations that change neither the backend nor the path

	// order returns the locations that match a path, the winner first.
	order func(w *World, x *classIndex, r *request) ([]contender, error)
}

// ingressControllers are the models, by controller.
var ingressControllers = map[*ingressclass.Controller]*ingressController{
	&ingressclass.IngressNGINX: &ingressNGINX,
	&ingressclass.Traefik:      &traefik,
}

// location is one path of one Ingress.
type location struct {
	ingress *networkingv1.Ingress
	index   [2]int // indexes of the rule and of the path
	host    string // host of the rule, in lower case; empty: all hosts
	path    string
	kind    networkingv1.PathType
	backend *networkingv1.IngressBackend
}

// classIndex indexes the Ingresses of one class.
type classIndex struct {
	hosts    hostIndex[*location]
	defaults []*networkingv1.Ingress          // with a default backend and without rules
	partial  hostIndex[*networkingv1.Ingress] // with rules and a default backend
}

// servesHost reports whether an Ingress of the class serves a host.
func (x *classIndex) servesHost(host string) bool {
	return len(x.locationsFor(host)) > 0 || len(x.defaults) > 0
}

// locationsFor returns the locations for a host, the most specific hostname first.
func (x *classIndex) locationsFor(host string) []*location {
	var locations []*location
	x.hosts.forEachCovering(host, func(hostname string, found []*location) bool {
		if coversLabel(hostname, host) {
			locations = append(locations, found...)
		}
		return true
	})
	return locations
}

// coversLabel reports whether a hostname that covers a host also covers it in an Ingress, where a wildcard stands for exactly one label.
func coversLabel(hostname, host string) bool {
	_, parent, _ := strings.Cut(host, ".")
	return !strings.HasPrefix(hostname, "*.") || hostname == "*."+parent
}

// addIngress indexes an Ingress by its class.
func (w *World) addIngress(i *networkingv1.Ingress) {
	name, named := i.Annotations[ingressclass.AnnotationClass]
	if i.Spec.IngressClassName != nil {
		name, named = *i.Spec.IngressClassName, true
	}
	if !named {
		name = ingressclass.ResolveClass(w.classes, nil).Name
	}
	x := w.byClass[name]
	if x == nil {
		x = &classIndex{hosts: hostIndex[*location]{}, partial: hostIndex[*networkingv1.Ingress]{}}
		w.byClass[name] = x
	}
	if i.Spec.DefaultBackend != nil && len(i.Spec.Rules) == 0 {
		x.defaults = append(x.defaults, i)
	}
	for n := range i.Spec.Rules {
		rule := &i.Spec.Rules[n]
		if i.Spec.DefaultBackend != nil {
			x.partial.addValue(rule.Host, i)
		}
		if rule.HTTP == nil {
			x.hosts.addValue(rule.Host, &location{ingress: i, index: [2]int{n}, host: strings.ToLower(rule.Host)}) // check rejects the host
			continue
		}
		for p := range rule.HTTP.Paths {
			path := &rule.HTTP.Paths[p]
			x.hosts.addValue(rule.Host, &location{
				ingress: i, index: [2]int{n, p}, host: strings.ToLower(rule.Host), path: path.Path, kind: ptr.Deref(path.PathType, ""),
				backend: &path.Backend,
			})
		}
	}
}

// throughIngress finds the contenders for a request to the controller of a class.
func (w *World) throughIngress(r *request) ([]contender, error) {
	class := ingressclass.ResolveClass(w.classes, &r.entrance.IngressClass)
	if !class.Exists() {
		return nil, fmt.Errorf("IngressClass %s: %w", class.Name, ErrNotFound)
	}
	c := ingressControllers[class.Controller]
	if c == nil {
		return nil, fmt.Errorf("ingress controller %s of IngressClass %s: %w", class.SpecController, class.Name, ErrNotModeled)
	}
	x := w.byClass[class.Name]
	if x == nil {
		return nil, nil // no Ingress has the class
	}
	if err := w.checkLocations(c, x.locationsFor(r.host)); err != nil {
		return nil, err
	}
	found, err := c.order(w, x, r)
	if err != nil {
		return nil, fmt.Errorf("IngressClass %s: %w", class.Name, err)
	}
	if len(found) > 0 {
		return found, nil
	}
	return w.defaultBackend(c, x, r)
}

// checkLocations returns an error if a location for the host cannot be modeled.
func (w *World) checkLocations(c *ingressController, locations []*location) error {
	seen := map[*networkingv1.Ingress]bool{}
	for _, l := range locations {
		id := objectIdentity("Ingress", l.ingress)
		switch {
		case l.backend == nil:
			return fmt.Errorf("%s: rule %d has no paths: %w", id, l.index[0], ErrNotModeled)
		case !slices.Contains([]networkingv1.PathType{
			networkingv1.PathTypeExact, networkingv1.PathTypePrefix, networkingv1.PathTypeImplementationSpecific,
		}, l.kind):
			return fmt.Errorf("%s: path %q of type %q: %w", id, l.path, l.kind, ErrInvalid)
		case !strings.HasPrefix(l.path, "/"):
			return fmt.Errorf("%s: path %q is not absolute: %w", id, l.path, ErrNotModeled)
		case seen[l.ingress]:
			continue
		}
		seen[l.ingress] = true
		if err := w.checkReadable("Ingress", l.ingress); err != nil {
			return err
		}
		for _, key := range sortedKeys(l.ingress.Annotations) {
			if c.readsAnnotation(key) && !slices.Contains(c.known, key) && !slices.Contains(c.irrelevant, key) {
				return fmt.Errorf("%s: annotation %s: %w", id, key, ErrNotModeled)
			}
		}
	}
	return nil
}

func (c *ingressController) readsAnnotation(annotation string) bool {
	return slices.ContainsFunc(c.prefixes, func(p string) bool { return strings.HasPrefix(annotation, p) })
}

// defaultBackend finds the default backend for a request that no path matches. Controllers differ for an Ingress with both rules and a
// default backend, so it is not modeled.
func (w *World) defaultBackend(c *ingressController, x *classIndex, r *request) ([]contender, error) {
	var partial *networkingv1.Ingress
	x.partial.forEachCovering(r.host, func(hostname string, ingresses []*networkingv1.Ingress) bool {
		if coversLabel(hostname, r.host) {
			partial = ingresses[0]
		}
		return partial == nil
	})
	switch {
	case partial != nil:
		return nil, fmt.Errorf("%s: rules and a default backend: %w", objectIdentity("Ingress", partial), ErrNotModeled)
	case len(x.defaults) == 0:
		return nil, nil
	case len(x.defaults) > 1:
		return nil, fmt.Errorf("%d Ingresses have a default backend: %w", len(x.defaults), ErrAmbiguous)
	case c == &ingressNGINX && len(x.locationsFor(r.host)) > 0:
		return nil, nil // nginx answers 404 for a host that it knows
	}
	i := x.defaults[0]
	for _, key := range sortedKeys(i.Annotations) {
		if c.readsAnnotation(key) && !slices.Contains(c.irrelevant, key) {
			return nil, fmt.Errorf("%s: annotation %s of a default backend: %w", objectIdentity("Ingress", i), key, ErrNotModeled)
		}
	}
	return []contender{
		&ingressMatch{request: r, world: w, location: &location{ingress: i, backend: i.Spec.DefaultBackend}, rewrite: noRewrite},
	}, nil
}

// ingressMatch is a location that matches the path of a request.
type ingressMatch struct {
	*location

	request *request
	world   *World
	rewrite func(w *World, l *location, a *Answer) error
	loses   func(loser, winner *ingressMatch) string

	priority int // priority of the rule in Traefik; the highest wins
}

func noRewrite(*World, *location, *Answer) error { return nil }

func (m *ingressMatch) sourceObject() (string, metav1.Object) { return "Ingress", m.ingress }

func (m *ingressMatch) describeRule() string {
	if m.path == "" {
		return "default backend"
	}
	return fmt.Sprintf("rule %d: %s %s on host %s", m.index[0], m.kind, m.path, cmp.Or(m.host, "*"))
}

func (m *ingressMatch) losesBy(winner contender) string {
	return m.loses(m, winner.(*ingressMatch)) // both belong to one controller
}

// resolveAnswer rewrites the path, and returns the Service of the location.
func (m *ingressMatch) resolveAnswer() (*Answer, error) {
	a := m.request.newAnswer()
	if err := m.rewrite(m.world, m.location, a); err != nil {
		return nil, err
	}
	s := m.backend.Service
	switch {
	case m.backend.Resource != nil:
		return nil, fmt.Errorf("a resource as backend: %w", ErrNotModeled)
	case s == nil || s.Name == "":
		return nil, fmt.Errorf("a backend without a Service: %w", ErrInvalid)
	case s.Port.Number == 0:
		return nil, fmt.Errorf("port %q of Service %s: %w", s.Port.Name, s.Name, ErrNotModeled)
	}
	a.Backend = Backend{Kind: KindService, Namespace: m.ingress.Namespace, Name: s.Name, Port: s.Port.Number}
	return a, nil
}

// sortedKeys returns the keys of a map in a stable order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
