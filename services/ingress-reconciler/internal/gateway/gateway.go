// Package gateway tells of a Gateway, before a route is made, whether it will take it and under which URL, and after that,
// whether it has. Its words are those that a Gateway's own controller would use, where it has some: what is foreseen here
// saves its reader from looking through three objects.
package gateway

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Reasons why a Gateway does not take a route.
const (
	ReasonGatewayNotFound      = "GatewayNotFound"
	ReasonListenerNotFound     = "ListenerNotFound"
	ReasonListenerNotAllowed   = "ListenerNotAllowed"
	ReasonNoMatchingHostname   = "NoMatchingListenerHostname"
	ReasonProtocolNotSupported = "ListenerProtocol"
)

// Gateway is what is known of a Gateway.
type Gateway struct {
	Gateway *gatewayv1.Gateway      // nil: there is none
	Class   *gatewayv1.GatewayClass // nil: there is none
}

// Route is what a Gateway looks at in a route.
type Route struct {
	Namespace string
	Labels    map[string]string // of the namespace; nil: not known
	Host      string
	Listener  string // its sectionName; empty: any
}

// Attachment is what becomes of a route at a Gateway.
type Attachment struct {
	Scheme  string // http or https; empty if no listener takes the route
	Port    int32
	Reason  string // why not; empty if one does
	Message string
}

// Attach foresees what becomes of a route. Of several listeners that take it, one that ends TLS counts.
func (g Gateway) Attach(r Route) Attachment {
	if g.Gateway == nil {
		return Attachment{Reason: ReasonGatewayNotFound, Message: "there is no such Gateway"}
	}
	var worst Attachment // of those that do not take it, the one that came closest
	var found []gatewayv1.Listener
	for i := range g.Gateway.Spec.Listeners {
		l := &g.Gateway.Spec.Listeners[i]
		if r.Listener != "" && r.Listener != string(l.Name) {
			continue
		}
		if refusal := g.refusal(l, r); refusal.Reason != "" {
			if rank(refusal.Reason) > rank(worst.Reason) {
				worst = refusal
			}
			continue
		}
		found = append(found, *l)
	}
	if len(found) == 0 {
		if worst.Reason == "" {
			worst = missing(r.Listener)
		}
		return worst
	}
	best := slices.MinFunc(found, func(a, b gatewayv1.Listener) int { return preference(&a) - preference(&b) })
	return Attachment{Scheme: scheme(&best), Port: best.Port}
}

// missing says that a Gateway has no listener of that name, or none at all.
func missing(listener string) Attachment {
	if listener == "" {
		return Attachment{Reason: ReasonListenerNotFound, Message: "it has no listeners"}
	}
	return Attachment{Reason: ReasonListenerNotFound, Message: fmt.Sprintf("it has no listener %q", listener)}
}

// rank orders reasons by how close a listener came to taking a route.
func rank(reason string) int {
	return slices.Index([]string{"", ReasonProtocolNotSupported, ReasonListenerNotAllowed, ReasonNoMatchingHostname}, reason)
}

// preference puts listeners that end TLS first, then those with a usual port.
func preference(l *gatewayv1.Listener) int {
	p := 0
	if l.Protocol != gatewayv1.HTTPSProtocolType {
		p += 2
	}
	if l.Port != usualPort(scheme(l)) {
		p++
	}
	return p
}

func scheme(l *gatewayv1.Listener) string {
	if l.Protocol == gatewayv1.HTTPSProtocolType {
		return "https"
	}
	return "http"
}

func usualPort(scheme string) int32 {
	if scheme == "https" {
		return 443
	}
	return 80
}

// refusal says why a listener does not take a route.
func (g Gateway) refusal(l *gatewayv1.Listener, r Route) Attachment {
	switch {
	case l.Protocol != gatewayv1.HTTPProtocolType && l.Protocol != gatewayv1.HTTPSProtocolType:
		return Attachment{Reason: ReasonProtocolNotSupported, Message: fmt.Sprintf("listener %s is for %s, not HTTP", l.Name, l.Protocol)}
	case !g.allows(l, r):
		return Attachment{Reason: ReasonListenerNotAllowed, Message: fmt.Sprintf("listener %s takes no HTTPRoutes of namespace %s: see its allowedRoutes", l.Name, r.Namespace)}
	case !intersects(l, r.Host):
		return Attachment{Reason: ReasonNoMatchingHostname, Message: fmt.Sprintf("no listener has host %s: listener %s has %s", r.Host, l.Name, *l.Hostname)}
	}
	return Attachment{}
}

// allows reports whether a listener takes HTTPRoutes of a namespace. Where that cannot be known, it does.
func (g Gateway) allows(l *gatewayv1.Listener, r Route) bool {
	same := r.Namespace == g.Gateway.Namespace
	if l.AllowedRoutes == nil {
		return same
	}
	if !takesHTTPRoutes(l.AllowedRoutes.Kinds) {
		return false
	}
	namespaces := l.AllowedRoutes.Namespaces
	if namespaces == nil || namespaces.From == nil {
		return same
	}
	switch *namespaces.From {
	case gatewayv1.NamespacesFromSame:
		return same
	case gatewayv1.NamespacesFromNone:
		return false
	case gatewayv1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(namespaces.Selector)
		return r.Labels == nil || err == nil && selector.Matches(labels.Set(r.Labels))
	}
	return true // all, or a word of a newer release
}

// takesHTTPRoutes reports whether HTTPRoutes are among the kinds of a listener, which are all of its protocol if it names none.
func takesHTTPRoutes(kinds []gatewayv1.RouteGroupKind) bool {
	return len(kinds) == 0 || slices.ContainsFunc(kinds, func(k gatewayv1.RouteGroupKind) bool {
		return k.Kind == "HTTPRoute" && (k.Group == nil || *k.Group == gatewayv1.GroupName)
	})
}

// intersects reports whether a host is among those of a listener.
func intersects(l *gatewayv1.Listener, host string) bool {
	if l.Hostname == nil || *l.Hostname == "" {
		return true
	}
	pattern := strings.ToLower(string(*l.Hostname))
	if domain, wildcard := strings.CutPrefix(pattern, "*"); wildcard {
		return strings.HasSuffix(host, domain) && len(host) > len(domain)
	}
	return host == pattern
}

// URL returns where a client reaches a path on a host through the listener.
func (a Attachment) URL(host, path string) string {
	url := a.Scheme + "://" + host
	if a.Port != 0 && a.Port != usualPort(a.Scheme) {
		url += fmt.Sprintf(":%d", a.Port)
	}
	return url + path
}

// Programmed says whether a Gateway is, as its controller reports it; nothing if it does not. One without an address is not,
// and may serve all the same.
func (g Gateway) Programmed() string {
	if g.Gateway == nil {
		return ""
	}
	c := meta.FindStatusCondition(g.Gateway.Status.Conditions, string(gatewayv1.GatewayConditionProgrammed))
	switch {
	case c == nil || c.Status == metav1.ConditionUnknown:
		return ""
	case c.Status == metav1.ConditionTrue:
		return "programmed"
	}
	return "not programmed: " + c.Reason
}

// The features of a GatewayClass that routes of ours may use and need not have.
const (
	FeatureRequestTimeout = "HTTPRouteRequestTimeout"
	FeaturePathRewrite    = "HTTPRoutePathRewrite"
)

// Supports reports whether the class of a Gateway has a feature. One that lists none is taken to have all.
func (g Gateway) Supports(feature string) bool {
	if g.Class == nil || len(g.Class.Status.SupportedFeatures) == 0 {
		return true
	}
	return slices.ContainsFunc(g.Class.Status.SupportedFeatures, func(f gatewayv1.SupportedFeature) bool { return string(f.Name) == feature })
}
