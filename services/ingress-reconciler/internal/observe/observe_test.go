package observe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/golden"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/dependents"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	return &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(text))}
}

func TestSuperseded(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       time.Time
	}{
		{name: "never", give: "{}"},
		{
			name: "at a time", give: "{metadata: {annotations: {fairlead.dev/superseded-at: '2026-05-04T12:00:00+02:00'}}}",
			want: time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC),
		},
		{name: "at no time", give: "{metadata: {annotations: {fairlead.dev/superseded-at: yesterday}}}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := Live{Object: object(t, tt.give)}
			assert.True(t, l.SupersededAt().Equal(tt.want))
			assert.Equal(t, tt.want.IsZero(), l.SupersededAt().IsZero())
		})
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	live := func(slot, role string) Live {
		return Live{Slot: plan.Slot(slot), Object: object(t, "{metadata: {labels: {fairlead.dev/component: '"+role+"'}}}")}
	}
	assert.Equal(t, map[plan.Slot][]isvc.Role{plan.Entry: {isvc.Router, isvc.Engine}, "decoder": {isvc.Decoder}}, liveRoles([]Live{
		live("entry", "router"), live("entry", "engine"), live("entry", "router"), live("entry", ""), live("decoder", "decoder"),
		live("engine", ""),
	}), "each once, and none of an object that takes no requests")
	assert.Empty(t, liveRoles(nil))
}

func TestClaims(t *testing.T) {
	t.Parallel()
	route := func(kind, name, owner, claim, more string) *unstructured.Unstructured {
		versions := map[string]string{
			"HTTPRoute": "gateway.networking.k8s.io/v1", "VirtualService": "networking.istio.io/v1beta1",
			"Middleware": "traefik.io/v1alpha1",
		}
		return object(t, fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {namespace: models, name: %s,
		creationTimestamp: "2026-05-04T12:00:00Z",
			labels: {fairlead.dev/managed-by: ingress-reconciler}, annotations: {fairlead.dev/claim: %q%s},
			ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: %s, uid: u, controller: true}]}}`,
			versions[kind], kind, name, claim, more, owner))
	}
	caches, err := informers.Declare(nil).Read(kit.Snapshot{Objects: []*unstructured.Unstructured{
		route("HTTPRoute", "a", "chat", "x.example.com/a/", ""),
		route("HTTPRoute", "b", "chat", "y.example.com/", ", fairlead.dev/superseded-at: '2026-05-04T12:00:00Z'"),
		route("HTTPRoute", "c", "chat", "no claim", ""),
		route("HTTPRoute", "d", "gone", "z.example.com/", ""),
		route("VirtualService", "e", "chat", "x.example.com/ X-Model=chat", ""),
		route("Middleware", "f", "chat", "w.example.com/", ""),
	}})
	require.NoError(t, err)
	o, at := New(caches), time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	got := o.LiveClaims(cache.ObjectName{Namespace: "models", Name: "chat"})
	for i := range got {
		assert.True(t, got[i].Live.Equal(at))
		got[i].Live = time.Time{}
	}
	assert.ElementsMatch(t, []ownership.Ask{
		{Claim: ownership.Claim{Host: "x.example.com", Path: "/a/"}},
		{Claim: ownership.Claim{Host: "y.example.com", Path: "/"}},
		{Claim: ownership.Claim{Host: "x.example.com", Path: "/", Header: "X-Model", Value: "chat", Unordered: true}},
	}, got, "superseded objects also have claims; Istio orders routes by age")
	assert.Len(t, o.LiveClaims(cache.ObjectName{Namespace: "models", Name: "gone"}), 1, "the routes of a deleted service have claims")
	assert.ElementsMatch(t, []cache.ObjectName{{Namespace: "models", Name: "chat"}, {Namespace: "models", Name: "gone"}}, o.OwnerNames())
}

// observed returns the observation of service chat with these objects.
func observed(t *testing.T, config string, manifests ...string) Observation {
	t.Helper()
	objects := []*unstructured.Unstructured{
		object(t,
			"{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: chat, namespace: models, uid: u-1}, spec: {engine: "+
				"{}}}"),
	}
	for _, m := range manifests {
		objects = append(objects, object(t, m))
	}
	caches, err := informers.Declare(nil).Read(kit.Snapshot{Objects: objects})
	require.NoError(t, err)
	d, err := settings.Parse([]byte(config))
	require.NoError(t, err)
	o, found := New(caches).ObserveAny(cache.ObjectName{Namespace: "models", Name: "chat"}, settings.Config{Document: d})
	require.True(t, found)
	return o
}

func TestPoolsAndPickers(t *testing.T) {
	t.Parallel()
	const (
		pool = "{apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: shared, namespace: models}, spec: " +
			"{endpointPickerRef: {name: chat-epp, port: {number: 9002}, failureMode: FailOpen}}}"
		picker = "{apiVersion: v1, kind: Service, metadata: {name: chat-epp, namespace: models}, spec: {ports: [{port: 9002}]}}"
		going  = "{apiVersion: v1, kind: Service, metadata: {name: chat-epp, namespace: models, deletionTimestamp: " +
			"'2026-05-04T12:00:00Z'}, spec: {ports: [{port: 9002}]}}"
		other  = "{apiVersion: v1, kind: Service, metadata: {name: chat-epp, namespace: others}, spec: {ports: [{port: 9002}]}}"
		broken = "{apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: shared, namespace: models}, spec: []}"
	)
	const named, created = "inferencePool: {name: shared}", "inferencePool: {endpointPickerRef: {name: '{{ .Name }}-epp'}}"
	uses := func(o Observation) []string {
		var all []string
		for _, u := range o.Dependencies {
			all = append(all, u.Kind+" "+u.Name.String())
		}
		return all
	}
	o := observed(t, created, picker)
	assert.Contains(t, o.Input.Pickers, "chat-epp")
	assert.Contains(t, uses(o), "Service models/chat-epp")
	for _, without := range []string{going, other} {
		o = observed(t, created, without)
		assert.Empty(t, o.Input.Pickers)
		assert.Contains(t, uses(o), "Service models/chat-epp", "the Service may be created later")
	}

	o = observed(t, named, pool, picker)
	assert.Equal(t, "chat-epp", string(o.Input.Pools["shared"].Spec.EndpointPickerRef.Name))
	assert.Contains(t, o.Input.Pickers, "chat-epp")
	assert.Equal(t, "FailOpen", o.FailureMode)
	assert.Subset(t, uses(o), []string{"InferencePool models/shared", "Service models/chat-epp"})

	o = observed(t, named)
	assert.NotNil(t, o.Input.Pools, "the kind is served")
	assert.Empty(t, o.Input.Pools)
	assert.Contains(t, uses(o), "InferencePool models/shared")

	o = observed(t, named, broken)
	assert.NotNil(t, o.Input.Pools["shared"], "the pool exists, although it cannot be decoded")
	assert.Empty(t, o.FailureMode)
}

func TestIstioGateways(t *testing.T) {
	t.Parallel()
	const gateway = "{apiVersion: networking.istio.io/v1beta1, kind: Gateway, metadata: {name: public, namespace: istio}, spec: %}"
	for spec, unreadable := range map[string]bool{"{servers: []}": false, "7": true} {
		o := observed(t, "ingressGateway: istio/public", strings.Replace(gateway, "%", spec, 1))
		g := o.Input.Istio[types.NamespacedName{Namespace: "istio", Name: "public"}]
		require.NotNil(t, g, "the Gateway exists, although it cannot be decoded")
		assert.Equal(t, unreadable, g.Unreadable)
	}
	o := observed(t, "ingressGateway: istio/public")
	assert.NotNil(t, o.Input.Istio, "the kind is served")
	assert.Empty(t, o.Input.Istio)
}

// A Knative Service of a deleted InferenceService with the same name may still exist.
func TestKnativeServicesAreMatchedByUID(t *testing.T) {
	t.Parallel()
	const knative = "{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: chat-engine, namespace: models, " +
		"ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: %, controller: true}]}}"
	for uid, want := range map[string]bool{"u-1": true, "u-0": false} {
		assert.Equal(t, want, observed(t, "", strings.Replace(knative, "%", uid, 1)).Input.Knative[isvc.Engine], uid)
	}
}

// A ListenerSet has the features of its Gateway's class, so the Gateway concerns the services of the ListenerSet, too.
func TestListenerSetsBelongToTheirGateway(t *testing.T) {
	t.Parallel()
	caches, err := informers.Declare(nil).Read(kit.Snapshot{Objects: []*unstructured.Unstructured{
		object(t,
			"{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, metadata: {namespace: team, name: set}, spec: {parentRef: "+
				"{name: public, namespace: gateways}}}"),
		object(t,
			"{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, metadata: {namespace: team, name: near}, spec: {parentRef: "+
				"{name: near}}}"),
		object(t,
			"{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: gateways, name: public}, spec: "+
				"{gatewayClassName: envoy}}"),
		object(t, "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: envoy}}"),
	}})
	require.NoError(t, err)
	o := New(caches)
	for set, want := range map[string]struct{ namespace, name, class string }{
		"set": {"gateways", "public", "envoy"}, "near": {"team", "near", ""},
	} {
		var out Observation
		out.Input.Settings.Gateways = []settings.Parent{{GatewayRef: settings.GatewayRef{Namespace: "team", Name: set}}}
		o.observeGateways(&out)
		g := out.Input.Gateways[types.NamespacedName{Namespace: "team", Name: set}]
		require.True(t, g.ListenerSet)
		assert.Equal(t, want.class != "", g.Class != nil && g.Class.Name == want.class)
		assert.Equal(t, []dependents.Object{
			{Kind: dependents.Gateway, Name: cache.ObjectName{Namespace: "team", Name: set}},
			{Kind: dependents.Gateway, Name: cache.ObjectName{Namespace: want.namespace, Name: want.name}},
		}, out.Dependencies)
	}
}
