package gatewayapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Errors of AllowsNamespace for undecidable questions.
var (
	ErrUnknownNamespace = errors.New("labels of the namespace are not known")
	ErrUnknownValue     = errors.New("value is not known: it may be that of a later release of Gateway API")
)

// isUndecided reports whether the error means that the listener may accept the route.
func isUndecided(err error) bool {
	return errors.Is(err, ErrUnknownNamespace) || errors.Is(err, ErrUnknownValue)
}

// References reports whether a parentRef of a route in a namespace refers to a listener of a Gateway.
func References(ref *gatewayv1.ParentReference, routeNamespace string, g *gatewayv1.Gateway, l *gatewayv1.Listener) bool {
	return ptr.Deref(ref.Group, gatewayv1.GroupName) == gatewayv1.GroupName &&
		ptr.Deref(ref.Kind, "Gateway") == "Gateway" &&
		ptr.Deref(ref.Namespace, gatewayv1.Namespace(routeNamespace)) == gatewayv1.Namespace(g.Namespace) &&
		ref.Name == gatewayv1.ObjectName(g.Name) &&
		(ref.SectionName == nil || *ref.SectionName == l.Name) &&
		(ref.Port == nil || *ref.Port == l.Port)
}

// AllowsHTTPRoutes reports whether HTTPRoutes are among the route kinds of a listener. A listener without a list of kinds
// accepts those of its protocol.
func AllowsHTTPRoutes(l *gatewayv1.Listener) bool {
	if l.AllowedRoutes == nil || len(l.AllowedRoutes.Kinds) == 0 {
		return true
	}
	return slices.ContainsFunc(l.AllowedRoutes.Kinds, func(k gatewayv1.RouteGroupKind) bool {
		return k.Kind == "HTTPRoute" && ptr.Deref(k.Group, gatewayv1.GroupName) == gatewayv1.GroupName
	})
}

// AllowsNamespace reports whether a listener accepts routes of a namespace with these labels: by default only those of its
// Gateway's namespace. It returns ErrUnknownNamespace if the listener selects namespaces and the labels are nil,
// ErrUnknownValue for a `from` that this package does not know, and another error for an invalid selector.
func AllowsNamespace(g *gatewayv1.Gateway, l *gatewayv1.Listener, namespace string, namespaceLabels map[string]string) (bool, error) {
	var setting gatewayv1.RouteNamespaces
	if l.AllowedRoutes != nil && l.AllowedRoutes.Namespaces != nil {
		setting = *l.AllowedRoutes.Namespaces
	}
	switch from := ptr.Deref(setting.From, gatewayv1.NamespacesFromSame); from {
	case gatewayv1.NamespacesFromAll:
		return true, nil
	case gatewayv1.NamespacesFromSame:
		return namespace == g.Namespace, nil
	case gatewayv1.NamespacesFromNone:
		return false, nil
	case gatewayv1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(setting.Selector)
		switch {
		case err != nil:
			return false, fmt.Errorf("listener %s: selector of namespaces: %w", l.Name, err)
		case namespaceLabels == nil:
			return false, fmt.Errorf("listener %s: namespace %s: %w", l.Name, namespace, ErrUnknownNamespace)
		}
		return selector.Matches(labels.Set(namespaceLabels)), nil
	default:
		return false, fmt.Errorf("listener %s: allowedRoutes.namespaces.from %q: %w", l.Name, from, ErrUnknownValue)
	}
}

// ListenerHostname returns the hostname of a listener, empty if it accepts any host.
func ListenerHostname(l *gatewayv1.Listener) string {
	return string(ptr.Deref(l.Hostname, ""))
}

// HostnamesIntersect reports whether both hostnames cover a common host. Each is empty (any host), a wildcard
// ("*.example.com": every host one or more labels below example.com, not example.com itself), or an exact host. The
// comparison ignores case.
func HostnamesIntersect(a, b string) bool {
	if a == "" || b == "" {
		return true
	}
	a, b = strings.ToLower(a), strings.ToLower(b)
	suffixA, wildcardA := strings.CutPrefix(a, "*.")
	suffixB, wildcardB := strings.CutPrefix(b, "*.")
	switch {
	case wildcardA && wildcardB:
		return suffixA == suffixB || strings.HasSuffix(suffixA, "."+suffixB) || strings.HasSuffix(suffixB, "."+suffixA)
	case wildcardA:
		return isBelow(b, suffixA)
	case wildcardB:
		return isBelow(a, suffixB)
	}
	return a == b
}

// isBelow reports whether a host is one or more labels below a domain.
func isBelow(host, domain string) bool {
	prefix, found := strings.CutSuffix(host, "."+domain)
	return found && prefix != ""
}
