package gatewayapi

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Reasons why a Gateway does not accept a route.
const (
	ReasonGatewayNotFound      = "GatewayNotFound"
	ReasonListenerNotFound     = "ListenerNotFound"
	ReasonListenerNotAllowed   = "ListenerNotAllowed"
	ReasonNoMatchingHostname   = "NoMatchingListenerHostname"
	ReasonProtocolNotSupported = "ListenerProtocol"
)

// Optional features of a GatewayClass that a route can use.
const (
	FeatureRequestTimeout = "HTTPRouteRequestTimeout"
	FeaturePathRewrite    = "HTTPRoutePathRewrite"
)

// Gateway is a Gateway with its class. Either is nil if it does not exist.
type Gateway struct {
	Gateway *gatewayv1.Gateway
	Class   *gatewayv1.GatewayClass

	ListenerSet bool // Gateway has the listeners of a ListenerSet, see FromListenerSet
}

// FromListenerSet returns a Gateway with the name and the listeners of a ListenerSet, to which routes attach in the same way. class is
// that of its parent.
func FromListenerSet(s *gatewayv1.ListenerSet, class *gatewayv1.GatewayClass) Gateway {
	g := &gatewayv1.Gateway{ObjectMeta: s.ObjectMeta, Status: gatewayv1.GatewayStatus{Conditions: s.Status.Conditions}}
	for i := range s.Spec.Listeners {
		l := &s.Spec.Listeners[i]
		g.Spec.Listeners = append(g.Spec.Listeners, gatewayv1.Listener{
			Name: l.Name, Hostname: l.Hostname, Port: l.Port, Protocol: l.Protocol, TLS: l.TLS, AllowedRoutes: l.AllowedRoutes,
		})
	}
	return Gateway{Gateway: g, Class: class, ListenerSet: true}
}

// Kind returns the kind of a parent reference to the Gateway.
func (g Gateway) Kind() string {
	if g.ListenerSet {
		return "ListenerSet"
	}
	return "Gateway"
}

// Names reports whether a listener has exactly a host.
func (g Gateway) Names(host string) bool {
	return g.Gateway != nil && slices.ContainsFunc(g.Gateway.Spec.Listeners, func(l gatewayv1.Listener) bool {
		return l.Hostname != nil && string(*l.Hostname) == host
	})
}

// Route has the fields of a planned HTTPRoute that decide whether a listener accepts the route.
type Route struct {
	Namespace string
	Labels    map[string]string // of the namespace; nil if unknown
	Host      string            // may be a wildcard; empty for any host
	Listener  string            // sectionName of the parentRef; empty for any listener
}

// Attachment is the predicted result of attaching a route to a Gateway.
type Attachment struct {
	Scheme  string // http or https; empty if no listener accepts the route
	Port    int32
	Reason  string // why no listener accepts the route; empty if one does
	Message string
}

// Attach predicts which listener accepts a route. If several do, it returns the one that clients should use: a listener that
// terminates TLS is preferred, then one with the default port of its scheme. If none does, the reason is that of the
// listener that came closest.
func (g Gateway) Attach(r Route) Attachment {
	if g.Gateway == nil {
		return Attachment{Reason: ReasonGatewayNotFound, Message: "the Gateway does not exist"}
	}
	var closest Attachment
	var taking []*gatewayv1.Listener
	for i := range g.Gateway.Spec.Listeners {
		l := &g.Gateway.Spec.Listeners[i]
		if r.Listener != "" && r.Listener != string(l.Name) {
			continue
		}
		refusal := g.listenerRefusal(l, r)
		switch {
		case refusal.Reason == "":
			taking = append(taking, l)
		case reasonCloseness(refusal.Reason) > reasonCloseness(closest.Reason):
			closest = refusal
		}
	}
	switch {
	case len(taking) > 0:
		best := slices.MinFunc(taking, func(a, b *gatewayv1.Listener) int { return listenerPreference(a) - listenerPreference(b) })
		return Attachment{Scheme: listenerScheme(best), Port: best.Port}
	case closest.Reason != "":
		return closest
	case r.Listener != "":
		return Attachment{Reason: ReasonListenerNotFound, Message: fmt.Sprintf("the Gateway has no listener %q", r.Listener)}
	}
	return Attachment{Reason: ReasonListenerNotFound, Message: "the Gateway has no listeners"}
}

// listenerRefusal returns why a listener does not accept a route; its reason is empty if the listener accepts it. A namespace with
// unknown labels, and a value of a later release of Gateway API, do not count as a refusal.
func (g Gateway) listenerRefusal(l *gatewayv1.Listener, r Route) Attachment {
	if l.Protocol != gatewayv1.HTTPProtocolType && l.Protocol != gatewayv1.HTTPSProtocolType {
		return Attachment{Reason: ReasonProtocolNotSupported, Message: fmt.Sprintf("listener %s is for %s, not HTTP", l.Name, l.Protocol)}
	}
	allowed, err := AllowsNamespace(g.Gateway, l, r.Namespace, r.Labels)
	if !AllowsHTTPRoutes(l) || !allowed && !isUndecided(err) {
		return Attachment{Reason: ReasonListenerNotAllowed, Message: fmt.Sprintf("listener %s takes no HTTPRoutes of namespace %s: check its allowedRoutes", l.Name, r.Namespace)}
	}
	if hostname := ListenerHostname(l); !HostnamesIntersect(hostname, r.Host) {
		return Attachment{
			Reason:  ReasonNoMatchingHostname,
			Message: fmt.Sprintf("no listener has host %s: listener %s has %s", r.Host, l.Name, hostname),
		}
	}
	return Attachment{}
}

// reasonCloseness orders reasons by how close a listener came to accepting a route.
func reasonCloseness(reason string) int {
	return slices.Index([]string{"", ReasonProtocolNotSupported, ReasonListenerNotAllowed, ReasonNoMatchingHostname}, reason)
}

// listenerPreference orders listeners: lower is better.
func listenerPreference(l *gatewayv1.Listener) int {
	p := 0
	if l.Protocol != gatewayv1.HTTPSProtocolType {
		p += 2
	}
	if l.Port != defaultPort(listenerScheme(l)) {
		p++
	}
	return p
}

func listenerScheme(l *gatewayv1.Listener) string {
	if l.Protocol == gatewayv1.HTTPSProtocolType {
		return "https"
	}
	return "http"
}

func defaultPort(scheme string) int32 {
	if scheme == "https" {
		return 443
	}
	return 80
}

// URL returns the URL of a path on a host through the listener.
func (a Attachment) URL(host, path string) string {
	url := a.Scheme + "://" + host
	if a.Port != 0 && a.Port != defaultPort(a.Scheme) {
		url += fmt.Sprintf(":%d", a.Port)
	}
	return url + path
}

// Programmed returns the Gateway's condition Programmed as "programmed" or "not programmed: <reason>", or nothing if the
// controller does not report it. A Gateway without an address is not programmed, but may still serve.
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

// Supports reports whether the Gateway's class has a feature. A class that lists no features counts as having all of them.
func (g Gateway) Supports(feature string) bool {
	if g.Class == nil || len(g.Class.Status.SupportedFeatures) == 0 {
		return true
	}
	return slices.ContainsFunc(g.Class.Status.SupportedFeatures,
		func(f gatewayv1.SupportedFeature) bool { return string(f.Name) == feature })
}
