package semantics

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// attached reports whether a route asks for a listener, and the listener takes it.
func (w *World) attached(route *gatewayv1.HTTPRoute, g *gatewayv1.Gateway, l *gatewayv1.Listener) (bool, error) {
	asks := slices.ContainsFunc(route.Spec.ParentRefs, func(p gatewayv1.ParentReference) bool {
		return names(&p, route.Namespace, g) &&
			(p.SectionName == nil || *p.SectionName == l.Name) &&
			(p.Port == nil || *p.Port == l.Port)
	})
	if !asks || !allowsHTTPRoutes(l) {
		return false, nil
	}
	return w.allowsNamespace(g, l, route.Namespace)
}

// names reports whether a reference from a namespace is to a Gateway.
func names(p *gatewayv1.ParentReference, from string, g *gatewayv1.Gateway) bool {
	return value(p.Group, gatewayv1.GroupName) == gatewayv1.GroupName &&
		value(p.Kind, "Gateway") == "Gateway" &&
		value(p.Namespace, gatewayv1.Namespace(from)) == gatewayv1.Namespace(g.Namespace) &&
		p.Name == gatewayv1.ObjectName(g.Name)
}

// allowsHTTPRoutes reports whether a listener takes routes of this kind; without a list it takes those of its protocol.
func allowsHTTPRoutes(l *gatewayv1.Listener) bool {
	if l.AllowedRoutes == nil || len(l.AllowedRoutes.Kinds) == 0 {
		return true
	}
	return slices.ContainsFunc(l.AllowedRoutes.Kinds, func(k gatewayv1.RouteGroupKind) bool {
		return value(k.Group, gatewayv1.GroupName) == gatewayv1.GroupName && k.Kind == "HTTPRoute"
	})
}

// allowsNamespace reports whether a listener takes routes of a namespace: by default of its Gateway's alone.
func (w *World) allowsNamespace(g *gatewayv1.Gateway, l *gatewayv1.Listener, namespace string) (bool, error) {
	var from gatewayv1.RouteNamespaces
	if l.AllowedRoutes != nil && l.AllowedRoutes.Namespaces != nil {
		from = *l.AllowedRoutes.Namespaces
	}
	switch how := value(from.From, gatewayv1.NamespacesFromSame); how {
	case gatewayv1.NamespacesFromAll:
		return true, nil
	case gatewayv1.NamespacesFromSame:
		return namespace == g.Namespace, nil
	case gatewayv1.NamespacesFromNone:
		return false, nil
	case gatewayv1.NamespacesFromSelector:
		return w.selects(from.Selector, namespace)
	default:
		return false, fmt.Errorf("listener %s: routes of namespaces %q: %w", l.Name, how, ErrUnsupported)
	}
}

// selects reports whether a selector fits the labels of a namespace. Its name is a label that every namespace has.
func (w *World) selects(selector *metav1.LabelSelector, namespace string) (bool, error) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, fmt.Errorf("selector of namespaces: %w: %w", err, ErrInvalid)
	}
	known, found := w.Namespaces[namespace]
	if !found {
		return false, fmt.Errorf("labels of namespace %s: %w", namespace, ErrNotFound)
	}
	set := labels.Set{corev1.LabelMetadataName: namespace}
	maps.Copy(set, known)
	return s.Matches(set), nil
}

// value returns what a pointer is to, or what holds without it.
func value[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
