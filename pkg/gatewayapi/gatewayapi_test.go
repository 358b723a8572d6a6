package gatewayapi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/golden"
)

// public returns Gateway gateways/public with these listeners, given as YAML.
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
		listener        string // sectionName of the route
		labels          map[string]string
		want            string // URL of the host, or the reason
	}{
		{name: "one listener", listeners: "[" + plain + "]", want: "http://chat.example.com/"},
		{name: "TLS before plain text", listeners: "[" + plain + "," + encrypted + "]", want: "https://chat.example.com/"},
		{name: "the named listener", listeners: "[" + plain + "," + encrypted + "]", listener: "http", want: "http://chat.example.com/"},
		{name: "the default port before another", listeners: "[{name: other, port: 8443, protocol: HTTPS, " + all + "}, " + encrypted + "]", want: "https://chat.example.com/"},
		{name: "TLS on another port before plain text on the default port", listeners: "[" + plain + ", {name: other, port: 8443, protocol: HTTPS, " + all + "}]", want: "https://chat.example.com:8443/"},
		{name: "another port", listeners: "[{name: http, port: 8080, protocol: HTTP, " + all + "}]", want: "http://chat.example.com:8080/"},
		{name: "443 without TLS", listeners: "[{name: http, port: 443, protocol: HTTP, " + all + "}]", want: "http://chat.example.com:443/"},

		{name: "the same host", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: chat.example.com, " + all + "}]", want: "http://chat.example.com/"},
		{name: "the same host in upper case", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: Chat.Example.com, " + all + "}]", want: "http://chat.example.com/"},
		{name: "a wildcard", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: '*.example.com', " + all + "}]", want: "http://chat.example.com/"},
		{name: "a wildcard over more than one label", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: '*.com', " + all + "}]", want: "http://chat.example.com/"},
		{name: "a wildcard with the same ending inside a label", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: '*.le.com', " + all + "}]", want: ReasonNoMatchingHostname},
		{name: "a wildcard does not cover its own domain", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: '*.chat.example.com', " + all + "}]", want: ReasonNoMatchingHostname},
		{name: "another host", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: example.org, " + all + "}]", want: ReasonNoMatchingHostname},

		{name: "no listeners", listeners: "[]", want: ReasonListenerNotFound},
		{name: "not the named listener", listeners: "[" + plain + "]", listener: "https", want: ReasonListenerNotFound},
		{name: "another protocol", listeners: "[{name: a, port: 443, protocol: TLS, " + all + "}]", want: ReasonProtocolNotSupported},

		{name: "the own namespace by default", listeners: "[{name: a, port: 80, protocol: HTTP}]", want: ReasonListenerNotAllowed},
		{name: "the own namespace by default where only kinds are given", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}]}}]", want: ReasonListenerNotAllowed},
		{name: "the own namespace", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Same}}}]", want: ReasonListenerNotAllowed},
		{name: "no namespace", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: None}}}]", want: ReasonListenerNotAllowed},
		{name: "another kind", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}, kinds: [{kind: GRPCRoute}]}}]", want: ReasonListenerNotAllowed},
		{name: "another group's kind", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}, kinds: [{group: example.com, kind: HTTPRoute}]}}]", want: ReasonListenerNotAllowed},
		{name: "HTTPRoute among other kinds", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}, kinds: [{kind: GRPCRoute}, {group: gateway.networking.k8s.io, kind: HTTPRoute}]}}]", want: "http://chat.example.com/"},
		{name: "namespaces with a label", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: llm}}}}}]", labels: map[string]string{"team": "llm"}, want: "http://chat.example.com/"},
		{name: "namespaces with another label", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: llm}}}}}]", labels: map[string]string{}, want: ReasonListenerNotAllowed},
		{name: "namespaces with a label, labels not known", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: llm}}}}}]", want: "http://chat.example.com/"},
		{name: "an invalid selector", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchExpressions: [{key: a, operator: Like}]}}}}]", labels: map[string]string{}, want: ReasonListenerNotAllowed},
		{name: "a value of a later release", listeners: "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Friends}}}]", want: "http://chat.example.com/"},

		{name: "a wrong host is closer than a wrong namespace or protocol", listeners: `[{name: tcp, port: 1, protocol: TCP}, {name: b, port: 80, protocol: HTTP}, {name: c, port: 80, protocol: HTTP, hostname: example.org, ` + all + `}]`, want: ReasonNoMatchingHostname},
		{name: "a wrong namespace is closer than a wrong protocol", listeners: "[{name: b, port: 80, protocol: HTTP, hostname: example.org}, {name: tcp, port: 1, protocol: TCP}]", want: ReasonListenerNotAllowed},
		{name: "one of three listeners takes the route", listeners: "[{name: tcp, port: 1, protocol: TCP}, {name: b, port: 80, protocol: HTTP}, " + encrypted + "]", want: "https://chat.example.com/"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := public(t, tt.listeners).Attach(Route{Namespace: "models", Labels: tt.labels, Host: "chat.example.com", Listener: tt.listener})
			answer := got.Reason
			if answer == "" {
				answer = got.URL("chat.example.com", "/")
			}
			assert.Equal(t, tt.want, answer)
			assert.Equal(t, got.Reason == "", got.Message == "", "a reason has a message")
			assert.Equal(t, got.Reason == "", got.Scheme != "", "a refused route has no scheme")
		})
	}
}

func TestAttachWithoutGateway(t *testing.T) {
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

func TestAttachMessages(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, listeners, listener, want string }{
		{name: "host", listeners: "[{name: a, port: 80, protocol: HTTP, hostname: '*.example.org', " + all + "}]", want: "no listener has host chat.example.com: listener a has *.example.org"},
		{name: "namespace", listeners: "[{name: a, port: 80, protocol: HTTP}]", want: "listener a takes no HTTPRoutes of namespace models: check its allowedRoutes"},
		{name: "protocol", listeners: "[{name: a, port: 80, protocol: UDP}]", want: "listener a is for UDP, not HTTP"},
		{name: "listener", listeners: "[" + plain + "]", listener: "https", want: `the Gateway has no listener "https"`},
		{name: "any listener", listeners: "[]", want: "the Gateway has no listeners"},
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
	assert.True(t, Gateway{}.Supports(FeaturePathRewrite), "no class")
	silent := Gateway{Class: &gatewayv1.GatewayClass{}}
	assert.True(t, silent.Supports(FeaturePathRewrite), "a class without a list of features")
	some := Gateway{Class: &gatewayv1.GatewayClass{Status: gatewayv1.GatewayClassStatus{
		SupportedFeatures: []gatewayv1.SupportedFeature{{Name: FeaturePathRewrite}},
	}}}
	assert.True(t, some.Supports(FeaturePathRewrite))
	assert.False(t, some.Supports(FeatureRequestTimeout))
}

const gatewayController, policyController = "example.com/gateway", "example.com/policy"

// route returns a route of generation 3 with one parentRef and these entries of status.parents, given as YAML.
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

// entry returns the entry that a controller writes for the Gateway.
func entry(controller, conditions string) string {
	return "{parentRef: {namespace: gateways, name: public}, controllerName: " + controller + ", conditions: [" + conditions + "]}"
}

// condition returns one condition.
func condition(kind, status, reason, generation string) string {
	return "{type: " + kind + ", status: '" + status + "', reason: " + reason + ", message: ' why ', observedGeneration: " + generation + ", lastTransitionTime: null}"
}

func TestJudge(t *testing.T) {
	t.Parallel()
	accepted, resolved := condition("Accepted", "True", "Accepted", "3"), condition("ResolvedRefs", "True", "ResolvedRefs", "3")
	refused := condition("Accepted", "False", "NotAllowedByListeners", "3")
	tests := []struct {
		name       string
		parents    string
		controller string
		want       Verdict
	}{
		{name: "nothing", parents: "[]", controller: gatewayController, want: Verdict{Reason: ReasonParentStatusNotAvailable, Message: "no controller has reported a status yet"}},
		{name: "accepted and resolved", parents: "[" + entry(gatewayController, accepted+","+resolved) + "]", controller: gatewayController, want: Verdict{Acceptance: Accepted}},
		{name: "accepted, and nothing to resolve", parents: "[" + entry(gatewayController, accepted) + "]", controller: gatewayController, want: Verdict{Acceptance: Accepted}},
		{name: "refused", parents: "[" + entry(gatewayController, refused) + "]", controller: gatewayController, want: Verdict{Acceptance: Refused, Reason: "NotAllowedByListeners", Message: "why"}},
		{name: "a host that no listener has", parents: "[" + entry(gatewayController, condition("Accepted", "False", "NoMatchingListenerHostname", "3")) + "]", controller: gatewayController, want: Verdict{Acceptance: Refused, Reason: "NoMatchingListenerHostname", Message: "why"}},
		{name: "a backend that is not found", parents: "[" + entry(gatewayController, condition("ResolvedRefs", "False", "BackendNotFound", "3")+","+accepted) + "]", controller: gatewayController, want: Verdict{Acceptance: Refused, Reason: "BackendNotFound", Message: "why"}},
		{name: "refused before backends count", parents: "[" + entry(gatewayController, condition("ResolvedRefs", "False", "BackendNotFound", "3")+","+refused) + "]", controller: gatewayController, want: Verdict{Acceptance: Refused, Reason: "NotAllowedByListeners", Message: "why"}},
		{name: "not decided", parents: "[" + entry(gatewayController, condition("Accepted", "Unknown", "Pending", "3")) + "]", controller: gatewayController, want: Verdict{Reason: "Pending", Message: "why"}},
		{name: "accepted in an older generation", parents: "[" + entry(gatewayController, condition("Accepted", "True", "Accepted", "2")) + "]", controller: gatewayController, want: Verdict{Reason: ReasonStaleParentStatus, Message: "the controller has not reported about the latest generation of the route yet"}},
		{name: "refused in an older generation", parents: "[" + entry(gatewayController, condition("Accepted", "False", "NotAllowedByListeners", "2")) + "]", controller: gatewayController, want: Verdict{Reason: ReasonStaleParentStatus, Message: "the controller has not reported about the latest generation of the route yet"}},
		{name: "accepted, references resolved in an older generation", parents: "[" + entry(gatewayController, accepted+","+condition("ResolvedRefs", "True", "ResolvedRefs", "2")) + "]", controller: gatewayController, want: Verdict{Reason: ReasonStaleParentStatus, Message: "the controller has not reported about the latest generation of the route yet"}},
		{name: "a policy controller refuses", parents: "[" + entry(policyController, condition("example.com/Attached", "False", "Conflicted", "3")) + "," + entry(gatewayController, accepted) + "]", controller: gatewayController, want: Verdict{Acceptance: Accepted}},
		{name: "a policy controller refuses, the name of the Gateway's controller not known", parents: "[" + entry(policyController, condition("example.com/Attached", "False", "Conflicted", "3")) + "," + entry(gatewayController, accepted) + "]", want: Verdict{Acceptance: Accepted}},
		{name: "another controller accepts", parents: "[" + entry(policyController, accepted) + "," + entry(gatewayController, refused) + "]", controller: gatewayController, want: Verdict{Acceptance: Refused, Reason: "NotAllowedByListeners", Message: "why"}},
		{name: "only another controller accepts", parents: "[" + entry(policyController, accepted) + "]", controller: gatewayController, want: Verdict{Reason: ReasonParentStatusNotAvailable, Message: "no controller has reported a status yet"}},
		{name: "a condition of another kind is False", parents: "[" + entry(gatewayController, accepted+","+resolved+","+condition("example.com/Programmed", "False", "Busy", "3")) + "]", controller: gatewayController, want: Verdict{Acceptance: Accepted}},
		{name: "entry of a Gateway of this name in another namespace", parents: "[{parentRef: {name: public}, controllerName: " + gatewayController + ", conditions: [" + accepted + "]}]", controller: gatewayController, want: Verdict{Reason: ReasonParentStatusNotAvailable, Message: "no controller has reported a status yet"}},
		{name: "entry of one listener", parents: "[{parentRef: {namespace: gateways, name: public, sectionName: http}, controllerName: " + gatewayController + ", conditions: [" + accepted + "]}]", controller: gatewayController, want: Verdict{Reason: ReasonParentStatusNotAvailable, Message: "no controller has reported a status yet"}},
		{name: "entry of one port", parents: "[{parentRef: {namespace: gateways, name: public, port: 8080}, controllerName: " + gatewayController + ", conditions: [" + accepted + "]}]", controller: gatewayController, want: Verdict{Reason: ReasonParentStatusNotAvailable, Message: "no controller has reported a status yet"}},
		{name: "entry of a Service of this name", parents: "[{parentRef: {namespace: gateways, name: public, kind: Service, group: ''}, controllerName: " + gatewayController + ", conditions: [" + accepted + "]}]", controller: gatewayController, want: Verdict{Reason: ReasonParentStatusNotAvailable, Message: "no controller has reported a status yet"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, Judge(route(t, tt.parents), tt.controller))
		})
	}
}

func TestJudgeEveryParent(t *testing.T) {
	t.Parallel()
	accepted := condition("Accepted", "True", "Accepted", "3")
	r := route(t, "["+entry(gatewayController, accepted)+", {parentRef: {name: inner}, controllerName: "+gatewayController+", conditions: ["+condition("Accepted", "False", "NotAllowedByListeners", "3")+"]}]")
	r.Spec.ParentRefs = append(r.Spec.ParentRefs, gatewayv1.ParentReference{Name: "inner"})
	assert.Equal(t, "NotAllowedByListeners", Judge(r, gatewayController).Reason)

	r.Status.Parents[1].Conditions[0].Status = metav1.ConditionTrue
	assert.Equal(t, Accepted, Judge(r, gatewayController).Acceptance)

	r.Status.Parents[1].ParentRef.Namespace = ptr.To(gatewayv1.Namespace("models"))
	require.Equal(t, Accepted, Judge(r, gatewayController).Acceptance, "a reference may leave out its own namespace")
}
