package semantics

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// Ingresses, as the reference of the API says (https://kubernetes.io/docs/concepts/services-networking/ingress/), and where that
// leaves it to the controller, as the controller of the class does: see controller.go.
//
// An Ingress is of the class that it names, by its specification or the older annotation, or else of the default class. A host
// is one name, or all that have one label in the place of the asterisk. The path types are what each controller makes of them.
//
// Modelled: backends that are Services, with the number of a port; a default backend of an Ingress that has nothing else. Not:
// resources as backends, names of ports, hosts without paths, parameters of classes, and annotations that are not listed.

const (
	annotationClass        = "kubernetes.io/ingress.class"
	annotationDefaultClass = networkingv1.AnnotationIsDefaultIngressClass
)

// location is one path of one Ingress.
type location struct {
	ingress *networkingv1.Ingress
	host    string // as the rule says, in lower case; empty: all
	path    string
	kind    networkingv1.PathType
	backend *networkingv1.IngressBackend
}

// throughIngress answers a request to the controller of a class.
func (w *World) throughIngress(r *request) (*answer, error) {
	class, err := w.class(r.entrance.IngressClass)
	if err != nil {
		return nil, err
	}
	c := controllers[class.Spec.Controller]
	if c == nil {
		return nil, fmt.Errorf("controller %q of %s: %w", class.Spec.Controller, identity("IngressClass", class), ErrUnsupported)
	}
	ingresses, err := w.ofClass(class)
	if err != nil {
		return nil, err
	}
	all, err := locations(ingresses, r.host)
	if err != nil {
		return nil, err
	}
	if err := c.checkAnnotations(all); err != nil {
		return nil, err
	}
	l, err := c.choose(all, r.path)
	if err != nil {
		return nil, fmt.Errorf("class %s: %w", class.Name, err)
	}
	if l == nil {
		return c.otherwise(ingresses, all, r)
	}
	a := r.answer()
	if c.rewrite != nil {
		err = c.rewrite(w, l, a)
	}
	if err == nil {
		a.backend, err = serviceOf(l.ingress, l.backend)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: path %s: %w", identity("Ingress", l.ingress), l.path, err)
	}
	return a, nil
}

func (w *World) class(name string) (*networkingv1.IngressClass, error) {
	i := slices.IndexFunc(w.IngressClasses, func(c *networkingv1.IngressClass) bool { return c.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("IngressClass %s: %w", name, ErrNotFound)
	}
	if err := onlyFields(&w.IngressClasses[i].Spec, "Controller"); err != nil {
		return nil, fmt.Errorf("IngressClass %s: %w", name, err)
	}
	return w.IngressClasses[i], nil
}

// ofClass returns the Ingresses of a class, the oldest first.
func (w *World) ofClass(class *networkingv1.IngressClass) ([]*networkingv1.Ingress, error) {
	defaults := 0
	for _, c := range w.IngressClasses {
		if c.Annotations[annotationDefaultClass] == "true" {
			defaults++
		}
	}
	var all []*networkingv1.Ingress
	for _, i := range w.Ingresses {
		name, named := i.Annotations[annotationClass]
		if i.Spec.IngressClassName != nil {
			name, named = *i.Spec.IngressClassName, true
		}
		isDefault := class.Annotations[annotationDefaultClass] == "true"
		if !named && isDefault && defaults > 1 {
			return nil, fmt.Errorf("%s: it has no class, and there are %d default classes: %w", identity("Ingress", i), defaults, ErrAmbiguous)
		}
		if named && name == class.Name || !named && isDefault {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b *networkingv1.Ingress) int {
		return cmp.Or(
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name),
		)
	})
	return all, nil
}

// locations returns the paths of Ingresses for a host, in their order.
func locations(ingresses []*networkingv1.Ingress, host string) ([]*location, error) {
	var all []*location
	for _, i := range ingresses {
		for n := range i.Spec.Rules {
			rule := &i.Spec.Rules[n]
			name := strings.ToLower(rule.Host)
			if name != "" && !coversOneLabel(name, host) {
				continue
			}
			if rule.HTTP == nil {
				return nil, fmt.Errorf("%s: rule %d has no paths: %w", identity("Ingress", i), n, ErrUnsupported)
			}
			for p := range rule.HTTP.Paths {
				l := &location{ingress: i, host: name, path: rule.HTTP.Paths[p].Path, backend: &rule.HTTP.Paths[p].Backend}
				l.kind = value(rule.HTTP.Paths[p].PathType, "")
				if err := l.check(); err != nil {
					return nil, fmt.Errorf("%s: %w", identity("Ingress", i), err)
				}
				all = append(all, l)
			}
		}
	}
	return all, nil
}

func (l *location) check() error {
	switch l.kind {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix, networkingv1.PathTypeImplementationSpecific:
	default:
		return fmt.Errorf("path %q of type %q: %w", l.path, l.kind, ErrInvalid)
	}
	if !strings.HasPrefix(l.path, "/") {
		return fmt.Errorf("path %q: it is not absolute: %w", l.path, ErrUnsupported)
	}
	return nil
}

// byHost returns locations of the same host together, the most specific host first.
func byHost(all []*location) [][]*location {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *location) int { return compareHostnames(a.host, b.host) })
	var groups [][]*location
	for _, l := range all {
		if n := len(groups); n > 0 && groups[n-1][0].host == l.host {
			groups[n-1] = append(groups[n-1], l)
			continue
		}
		groups = append(groups, []*location{l})
	}
	return groups
}

// otherwise answers by the default backend, where no path fits. One that stands beside rules means something else to each
// controller.
func (c *controller) otherwise(ingresses []*networkingv1.Ingress, all []*location, r *request) (*answer, error) {
	var found []*networkingv1.Ingress
	for _, i := range ingresses {
		switch {
		case i.Spec.DefaultBackend == nil:
		case len(i.Spec.Rules) == 0:
			found = append(found, i)
		case slices.ContainsFunc(all, func(l *location) bool { return l.ingress == i }):
			return nil, fmt.Errorf("%s: default backend beside rules: %w", identity("Ingress", i), ErrUnsupported)
		}
	}
	switch {
	case len(found) == 0 || c.defaults == defaultsOfNoHost && len(all) > 0:
		return nil, ErrNoRoute
	case len(found) > 1:
		return nil, fmt.Errorf("%d default backends: %w", len(found), ErrAmbiguous)
	case c.defaults == defaultsUnknown || c.annotated(found[0]):
		return nil, fmt.Errorf("%s: default backend: %w", identity("Ingress", found[0]), ErrUnsupported)
	}
	a := r.answer()
	var err error
	if a.backend, err = serviceOf(found[0], found[0].Spec.DefaultBackend); err != nil {
		return nil, fmt.Errorf("%s: default backend: %w", identity("Ingress", found[0]), err)
	}
	return a, nil
}

func serviceOf(i *networkingv1.Ingress, b *networkingv1.IngressBackend) (Backend, error) {
	switch {
	case b.Resource != nil:
		return Backend{}, fmt.Errorf("backend that is a resource: %w", ErrUnsupported)
	case b.Service == nil || b.Service.Name == "":
		return Backend{}, fmt.Errorf("backend without a Service: %w", ErrInvalid)
	case b.Service.Port.Number == 0:
		return Backend{}, fmt.Errorf("port %q of Service %s: %w", b.Service.Port.Name, b.Service.Name, ErrUnsupported)
	}
	return Backend{Kind: KindService, Namespace: i.Namespace, Name: b.Service.Name, Port: b.Service.Port.Number}, nil
}
