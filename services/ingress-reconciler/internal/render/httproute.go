package render

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// httpRoute returns the HTTPRoute of an exposure. It matches a path prefix, which every Gateway supports, and never a regular
// expression.
func (r *renderer) httpRoute(e *plan.Exposure) *gatewayv1.HTTPRoute {
	parent := gatewayv1.ParentReference{
		Group: ptr.To(gatewayv1.Group(gatewayv1.GroupName)), Kind: ptr.To(gatewayv1.Kind(e.ParentKind)),
		Namespace: ptr.To(gatewayv1.Namespace(e.Gateway.Namespace)), Name: gatewayv1.ObjectName(e.Gateway.Name),
	}
	if e.Gateway.Listener != "" {
		parent.SectionName = ptr.To(gatewayv1.SectionName(e.Gateway.Listener))
	}
	rule := gatewayv1.HTTPRouteRule{
		Matches: []gatewayv1.HTTPRouteMatch{routeMatch(e)},
		Filters: []gatewayv1.HTTPRouteFilter{{
			Type: gatewayv1.HTTPRouteFilterRequestHeaderModifier,
			RequestHeaderModifier: &gatewayv1.HTTPHeaderFilter{Set: []gatewayv1.HTTPHeader{
				{Name: headerName, Value: r.Service.Name}, {Name: headerNamespace, Value: r.Service.Namespace},
			}},
		}},
		BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: backendReference(&e.Backend)}}},
	}
	if e.Path != "/" {
		rule.Filters = append(rule.Filters, gatewayv1.HTTPRouteFilter{
			Type: gatewayv1.HTTPRouteFilterURLRewrite,
			URLRewrite: &gatewayv1.HTTPURLRewriteFilter{Path: &gatewayv1.HTTPPathModifier{
				Type: gatewayv1.PrefixMatchHTTPPathModifier, ReplacePrefixMatch: ptr.To("/"),
			}},
		})
	}
	if e.Timeouts {
		rule.Timeouts = &gatewayv1.HTTPRouteTimeouts{Request: ptr.To(formatDuration(e.Timeout))}
	}
	return &gatewayv1.HTTPRoute{
		TypeMeta:   metav1.TypeMeta{APIVersion: gatewayv1.GroupVersion.String(), Kind: "HTTPRoute"},
		ObjectMeta: r.objectMeta(r.objectName(settings.HTTPRoute, e), r.routeAnnotations()),
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{parent}},
			Hostnames:       []gatewayv1.Hostname{gatewayv1.Hostname(e.Host)},
			Rules:           []gatewayv1.HTTPRouteRule{rule},
		},
	}
}

func routeMatch(e *plan.Exposure) gatewayv1.HTTPRouteMatch {
	m := gatewayv1.HTTPRouteMatch{
		Path: &gatewayv1.HTTPPathMatch{Type: ptr.To(gatewayv1.PathMatchPathPrefix), Value: ptr.To(trimSlash(e.Path))},
	}
	if e.Model.Header != "" {
		m.Headers = []gatewayv1.HTTPHeaderMatch{{
			Type: ptr.To(gatewayv1.HeaderMatchExact), Name: gatewayv1.HTTPHeaderName(e.Model.Header), Value: e.Model.Name,
		}}
	}
	return m
}

func backendReference(b *plan.Backend) gatewayv1.BackendObjectReference {
	if b.Pool != "" {
		return gatewayv1.BackendObjectReference{
			Group: ptr.To(gatewayv1.Group(InferencePools.Group)), Kind: ptr.To(gatewayv1.Kind("InferencePool")),
			Name: gatewayv1.ObjectName(b.Pool),
		}
	}
	return gatewayv1.BackendObjectReference{
		Group: ptr.To(gatewayv1.Group("")), Kind: ptr.To(gatewayv1.Kind("Service")), Name: gatewayv1.ObjectName(b.Name),
		Port: ptr.To(b.Port),
	}
}

// formatDuration formats a timeout for the Gateway API (GEP-2257): at most five digits for each unit. "0s" disables the timeout.
func formatDuration(d time.Duration) gatewayv1.Duration {
	if d == 0 {
		return "0s"
	}
	text, rest := "", d
	for _, u := range []struct {
		name string
		size time.Duration
	}{{"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if n := rest / u.size; n > 0 {
			text += fmt.Sprintf("%d%s", n, u.name)
			rest -= n * u.size
		}
	}
	return gatewayv1.Duration(text)
}
