package gateway

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/depcheck"
	"fairlead.dev/pkg/golden"
)

func TestItIsPure(t *testing.T) {
	t.Parallel()
	depcheck.AssertNoDependency(t, ".", "k8s.io/client-go/...", "go.uber.org/zap/...", "go.uber.org/dig/...", "github.com/prometheus/...")
}

// public is a Gateway in namespace gateways with these listeners, as YAML.
func public(t *testing.T, listeners string) Gateway {
	t.Helper()
	return Gateway{Gateway: &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gateways", Name: "public"},
		Spec:       gatewayv1.GatewaySpec{GatewayClassName: "envoy", Listeners: golden.Decode[[]gatewayv1.Listener](t, []byte(listeners))},
	}}
}

const (
	all       = "allowedRoutes: {namespaces: {from: All}}"
	plain     = "{name: http, port: 80, protocol: HTTP, " + all + "}"
	encrypted = "{name: https, port: 443, protocol: HTTPS, " + all + "}"
)

func TestAttach(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, listeners string
		listener        string // that the route names
		labels          map[string]string
		want            string // URL of the host, or reason
	}{
		{name: "one", listeners: "[" + plain + "]", want: "http://chat.example.com/"},
		{name: "TLS is taken before plain text", listeners: "[" + plain + "," + encrypted + "]", want: "https://chat.example.com/"},
		{name: "the one that is named", listeners: "[" + plain + "," + encrypted + "]", listener: "http", want: "http://chat.example.com/"},
		{name: "the usual port before another", listeners: "[{name: other, port: 8443, protocol: HTTPS, " + all + "}, " + encrypted + "]", want: "https://chat.example.com/"},
		{name: "TLS on another port before plain text on the usual one", listeners: "[" + plain + ", {name: other, port: 8443, protocol: HTTPS, " + all + "}]", want: "https://chat.example.com:8443/"},
		{name: "another port", listeners: "[{name: http, port: 8080, protocol: HTTP, " + all + "}]", want: "http://chat.example.com:8080/"},
		{name: "443 without TLS", listeners: "[{name: http, port: 443, protocol: HTTP, " + all + "}]", want: "http://chat.example.com:443/"},

		{name: "its host", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: chat.example.com, " + all + "}]", want: "http://chat.example.com/"},
		{name: "its host, in upper case", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: Chat.Example.com, " + all + "}]", want: "http://chat.example.com/"},
		{name: "a wildcard", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: '*.example.com', " + all + "}]", want: "http://chat.example.com/"},
		{name: "a wildcard over more than one label", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: '*.com', " + all + "}]", want: "http://chat.example.com/"},
		{name: "a wildcard that ends alike", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: '*.le.com', " + all + "}]", want: ReasonNoMatchingHostname},
		{name: "a wildcard is not the domain itself", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: '*.chat.example.com', " + all + "}]", want: ReasonNoMatchingHostname},
		{name: "another host", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: example.org, " + all + "}]", want: ReasonNoMatchingHostname},

		{name: "no listeners", listeners: "[]", want: ReasonListenerNotFound},
		{name: "not the one that is named", listeners: "[" + plain + "]", listener: "https", want: ReasonListenerNotFound},
		{name: "another protocol", listeners: "[{name: a, port: 443, protocol: TLS, " + all + "}]", want: ReasonProtocolNotSupported},

		{name: "its own namespace, said by nobody", listeners: "[{name: a, port: 80, protocol: HTTP}]", want: ReasonListenerNotAllowed},
		{name: "its own namespace, as it is where only kinds are said", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}]}}]", want: ReasonListenerNotAllowed},
		{name: "its own namespace", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Same}}}]", want: ReasonListenerNotAllowed},
		{name: "no namespace", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: None}}}]", want: ReasonListenerNotAllowed},
		{name: "another kind", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}, kinds: [{kind: GRPCRoute}]}}]", want: ReasonListenerNotAllowed},
		{name: "another group's kind", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}, kinds: [{group: example.com, kind: HTTPRoute}]}}]", want: ReasonListenerNotAllowed},
		{name: "our kind among others", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}, kinds: [{kind: GRPCRoute}, {group: gateway.networking.k8s.io, kind: HTTPRoute}]}}]", want: "http://chat.example.com/"},
		{name: "namespaces with a label", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: llm}}}}}]", labels: map[string]string{"team": "llm"}, want: "http://chat.example.com/"},
		{name: "namespaces with another label", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: llm}}}}}]", labels: map[string]string{}, want: ReasonListenerNotAllowed},
		{name: "namespaces with a label, which are not known", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: llm}}}}}]", want: "http://chat.example.com/"},
		{name: "a selector that is none", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchExpressions: [{key: a, operator: Like}]}}}}]", labels: map[string]string{}, want: ReasonListenerNotAllowed},
		{name: "a word of a newer release", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Friends}}}]", want: "http://chat.example.com/"},

		{name: "the host is the closest", listeners: `[{name: tcp, port: 1, protocol: TCP}, {name: b, port: 80, protocol: HTTP}, {name: c, port: 80, protocol: HTTP, hostname: example.org, ` + all + `}]`, want: ReasonNoMatchingHostname},
		{name: "the namespace is closer than the protocol", listeners: "[{name: b, port: 80, protocol: HTTP, hostname: example.org}, {name: tcp, port: 1, protocol: TCP}]", want: ReasonListenerNotAllowed},
		{name: "one that takes it among those that do not", listeners: "[{name: tcp, port: 1, protocol: TCP}, {name: b, port: 80, protocol: HTTP}, " + encrypted + "]", want: "https://chat.example.com/"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := public(t, tt.listeners).Attach(Route{Namespace: "models", Labels: tt.labels, Host: "chat.example.com", Listener: tt.listener})
			said := got.Reason
			if said == "" {
				said = got.URL("chat.example.com", "/")
			}
			assert.Equal(t, tt.want, said)
			assert.Equal(t, got.Reason == "", got.Message == "", "a reason comes with a message")
			assert.Equal(t, got.Reason == "", got.Scheme != "", "and without a scheme")
		})
	}
}

func TestAttachToNothing(t *testing.T) {
	t.Parallel()
	assert.Equal(t, ReasonGatewayNotFound, Gateway{}.Attach(Route{Host: "chat.example.com"}).Reason)
}

func TestAttachFromTheSameNamespace(t *testing.T) {
	t.Parallel()
	for _, listener := range []string{
		"[{name: a, port: 80, protocol: HTTP}]", "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {}}]",
		"[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Same}}}]",
	} {
		assert.Equal(t, "http", public(t, listener).Attach(Route{Namespace: "gateways", Host: "chat.example.com"}).Scheme, listener)
	}
}

func TestAttachNamesWhatItMisses(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, listeners, listener, want string }{
		{name: "host", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: '*.example.org', " + all + "}]", want: "no listener has host chat.example.com: listener a has *.example.org"},
		{name: "namespace", listeners: "[{name: a, port: 80, protocol: HTTP}]", want: "listener a takes no HTTPRoutes of namespace models: see its allowedRoutes"},
		{name: "protocol", listeners: "[{name: a, port: 80, protocol: UDP}]", want: "listener a is for UDP, not HTTP"},
		{name: "listener", listeners: "[" + plain + "]", listener: "https", want: `it has no listener "https"`},
		{name: "any listener", listeners: "[]", want: "it has no listeners"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := public(t, tt.listeners).Attach(Route{Namespace: "models", Host: "chat.example.com", Listener: tt.listener})
			assert.Equal(t, tt.want, got.Message)
		})
	}
}

func TestSupports(t *testing.T) {
	t.Parallel()
	assert.True(t, Gateway{}.Supports(FeaturePathRewrite), "there is no class to say otherwise")
	silent := Gateway{Class: &gatewayv1.GatewayClass{}}
	assert.True(t, silent.Supports(FeaturePathRewrite), "its class says nothing")
	some := Gateway{Class: &gatewayv1.GatewayClass{Status: gatewayv1.GatewayClassStatus{
		SupportedFeatures: []gatewayv1.SupportedFeature{{Name: FeaturePathRewrite}},
	}}}
	assert.True(t, some.Supports(FeaturePathRewrite))
	assert.False(t, some.Supports(FeatureRequestTimeout))
}

const ours, others = "example.com/gateway", "example.com/policy"

// route is of generation 3, with one parent, and what controllers say of it, as YAML.
func route(t *testing.T, parents string) *gatewayv1.HTTPRoute {
	t.Helper()
	return &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "models", Generation: 3},
		Spec: gatewayv1.HTTPRouteSpec{CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{
			Group: ptr.To(gatewayv1.Group(gatewayv1.GroupName)), Kind: ptr.To(gatewayv1.Kind("Gateway")),
			Namespace: ptr.To(gatewayv1.Namespace("gateways")), Name: "public",
		}}}},
		Status: gatewayv1.HTTPRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: golden.Decode[[]gatewayv1.RouteParentStatus](t, []byte(parents))}},
	}
}

// said is what a controller says of the Gateway.
func said(controller, conditions string) string {
	return "{parentRef: {namespace: gateways, name: public}, controllerName: " + controller + ", conditions: [" + conditions + "]}"
}

// is one condition.
func is(kind, status, reason, generation string) string {
	return "{type: " + kind + ", status: '" + status + "', reason: " + reason + ", message: ' why ', observedGeneration: " + generation + ", lastTransitionTime: null}"
}

func TestJudge(t *testing.T) {
	t.Parallel()
	accepted, resolved := is("Accepted", "True", "Accepted", "3"), is("ResolvedRefs", "True", "ResolvedRefs", "3")
	refused := is("Accepted", "False", "NotAllowedByListeners", "3")
	tests := []struct {
		name       string
		parents    string
		controller string
		want       Verdict
	}{
		{name: "nothing", parents: "[]", controller: ours, want: Verdict{Reason: ReasonParentStatusNotAvailable, Message: "no controller has looked at it yet"}},
		{name: "accepted and resolved", parents: "[" + said(ours, accepted+","+resolved) + "]", controller: ours, want: Verdict{Acceptance: Accepted}},
		{name: "accepted, and nothing to resolve", parents: "[" + said(ours, accepted) + "]", controller: ours, want: Verdict{Acceptance: Accepted}},
		{name: "refused", parents: "[" + said(ours, refused) + "]", controller: ours, want: Verdict{Acceptance: Refused, Reason: "NotAllowedByListeners", Message: "why"}},
		{name: "a host that no listener has", parents: "[" + said(ours, is("Accepted", "False", "NoMatchingListenerHostname", "3")) + "]", controller: ours, want: Verdict{Acceptance: Refused, Reason: "NoMatchingListenerHostname", Message: "why"}},
		{name: "a backend that is not found", parents: "[" + said(ours, is("ResolvedRefs", "False", "BackendNotFound", "3")+","+accepted) + "]", controller: ours, want: Verdict{Acceptance: Refused, Reason: "BackendNotFound", Message: "why"}},
		{name: "refused before backends count", parents: "[" + said(ours, is("ResolvedRefs", "False", "BackendNotFound", "3")+","+refused) + "]", controller: ours, want: Verdict{Acceptance: Refused, Reason: "NotAllowedByListeners", Message: "why"}},
		{name: "not decided", parents: "[" + said(ours, is("Accepted", "Unknown", "Pending", "3")) + "]", controller: ours, want: Verdict{Reason: "Pending", Message: "why"}},
		{name: "of an older route", parents: "[" + said(ours, is("Accepted", "True", "Accepted", "2")) + "]", controller: ours, want: Verdict{Reason: ReasonStaleParentStatus, Message: "the controller has yet to look at the latest route"}},
		{name: "a refusal of an older route", parents: "[" + said(ours, is("Accepted", "False", "NotAllowedByListeners", "2")) + "]", controller: ours, want: Verdict{Reason: ReasonStaleParentStatus, Message: "the controller has yet to look at the latest route"}},
		{name: "accepted, and references of an older route", parents: "[" + said(ours, accepted+","+is("ResolvedRefs", "True", "ResolvedRefs", "2")) + "]", controller: ours, want: Verdict{Reason: ReasonStaleParentStatus, Message: "the controller has yet to look at the latest route"}},
		{name: "a policy refuses", parents: "[" + said(others, is("example.com/Attached", "False", "Conflicted", "3")) + "," + said(ours, accepted) + "]", controller: ours, want: Verdict{Acceptance: Accepted}},
		{name: "a policy refuses, whoever runs the Gateway", parents: "[" + said(others, is("example.com/Attached", "False", "Conflicted", "3")) + "," + said(ours, accepted) + "]", want: Verdict{Acceptance: Accepted}},
		{name: "another controller accepts", parents: "[" + said(others, accepted) + "," + said(ours, refused) + "]", controller: ours, want: Verdict{Acceptance: Refused, Reason: "NotAllowedByListeners", Message: "why"}},
		{name: "only another controller accepts", parents: "[" + said(others, accepted) + "]", controller: ours, want: Verdict{Reason: ReasonParentStatusNotAvailable, Message: "no controller has looked at it yet"}},
		{name: "a policy's word on acceptance beside", parents: "[" + said(ours, accepted+","+resolved+","+is("example.com/Programmed", "False", "Busy", "3")) + "]", controller: ours, want: Verdict{Acceptance: Accepted}},
		{name: "of a Gateway of the same name elsewhere", parents: "[{parentRef: {name: public}, controllerName: " + ours + ", conditions: [" + accepted + "]}]", controller: ours, want: Verdict{Reason: ReasonParentStatusNotAvailable, Message: "no controller has looked at it yet"}},
		{name: "of one listener", parents: "[{parentRef: {namespace: gateways, name: public, sectionName: http}, controllerName: " + ours + ", conditions: [" + accepted + "]}]", controller: ours, want: Verdict{Reason: ReasonParentStatusNotAvailable, Message: "no controller has looked at it yet"}},
		{name: "of a Service of that name", parents: "[{parentRef: {namespace: gateways, name: public, kind: Service, group: ''}, controllerName: " + ours + ", conditions: [" + accepted + "]}]", controller: ours, want: Verdict{Reason: ReasonParentStatusNotAvailable, Message: "no controller has looked at it yet"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, Judge(route(t, tt.parents), tt.controller))
		})
	}
}

func TestJudgeAsksEveryParent(t *testing.T) {
	t.Parallel()
	accepted := is("Accepted", "True", "Accepted", "3")
	r := route(t, "["+said(ours, accepted)+", {parentRef: {name: inner}, controllerName: "+ours+", conditions: ["+is("Accepted", "False", "NotAllowedByListeners", "3")+"]}]")
	r.Spec.ParentRefs = append(r.Spec.ParentRefs, gatewayv1.ParentReference{Name: "inner"})
	assert.Equal(t, "NotAllowedByListeners", Judge(r, ours).Reason)

	r.Status.Parents[1].Conditions[0].Status = metav1.ConditionTrue
	assert.Equal(t, Accepted, Judge(r, ours).Acceptance)

	r.Status.Parents[1].ParentRef.Namespace = ptr.To(gatewayv1.Namespace("models"))
	require.Equal(t, Accepted, Judge(r, ours).Acceptance, "its own namespace may be written or not")
}
