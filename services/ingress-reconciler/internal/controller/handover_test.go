package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/pkg/golden"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
)

const omesOwner = "ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: chat, controller: true}]"

// omesIngress returns an Ingress with a path.
func omesIngress(meta, path, more string) string {
	return fmt.Sprintf(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: models, name: chat,
	creationTimestamp: "2026-01-02T03:04:00Z", %s},
		spec: {rules: [{host: other.example.com, http: {paths: [{path: /, pathType: Prefix}]}}, {host: chat.example.com,
		http: {paths: [%s]}}]}%s}`, meta, path, more)
}

// omesRoute returns an HTTPRoute with the status of a condition.
func omesRoute(parents, accepted string) string {
	return fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: models, name: chat,
	generation: 2, %s}, spec: {hostnames: [chat.example.com],
		parentRefs: [%s], rules: [{matches: [{path: {type: PathPrefix, value: /}}]}]},
		status: {parents: [{parentRef: {name: public}, controllerName: x/y, conditions: [{type: Accepted, %s, reason: R}]}]}}`, omesOwner,
		parents, accepted)
}

func (r *rig) begun() *run {
	service := r.Observer.InferenceService(chat)
	config, _ := r.Configuration()
	return r.newRun(service, config)
}

// A route is handed over only when an accepted route of OME takes its requests.
func TestServedByOME(t *testing.T) {
	t.Parallel()
	const root, address = "{path: /, pathType: Prefix}", ", status: {loadBalancer: {ingress: [{ip: 10.0.0.1}]}}"
	virtual := `{apiVersion: networking.istio.io/v1beta1, kind: VirtualService, metadata: {namespace: models, name: chat, ` + omesOwner +
		`},
		spec: {hosts: [chat.example.com], http: [{match: [%s], route: [{destination: {host: a}}]}]}}`
	tests := []struct {
		name, object string
		path         string // of the route that is handed over; empty: /
		want, again  bool   // it is checked again by time
	}{
		{name: "an Ingress with an address", object: omesIngress(omesOwner, root, address), want: true},
		{name: "for a longer path", object: omesIngress(omesOwner, root, address), path: "/models/chat/", want: true},
		{name: "without an address", object: omesIngress(omesOwner, root, ""), again: true},
		{
			name:   "without an address for long",
			object: strings.Replace(omesIngress(omesOwner, root, ""), "2026-01-02T03:04:00Z", "2026-01-02T03:00:00Z", 1), want: true,
		},
		{name: "of somebody else", object: omesIngress("labels: {ome.io/inferenceservice: chat}", root, address)},
		{name: "of another service", object: omesIngress(strings.Replace(omesOwner, "uid: chat", "uid: other", 1), root, address)},
		{name: "not its controller", object: omesIngress(strings.Replace(omesOwner, ", controller: true", "", 1), root, address)},
		{name: "for another path", object: omesIngress(omesOwner, "{path: /docs, pathType: Prefix}", address)},
		{name: "for one path exactly", object: omesIngress(omesOwner, "{path: /, pathType: Exact}", address)},
		{
			name:   "that is being deleted",
			object: omesIngress(omesOwner+`, deletionTimestamp: "2026-01-02T03:04:00Z", finalizers: [a/b]`, root, address),
		},
		{name: "an accepted HTTPRoute", object: omesRoute("{name: public}", `status: "True", observedGeneration: 2`), want: true},
		{name: "an HTTPRoute that is not accepted", object: omesRoute("{name: public}", `status: "False", observedGeneration: 2`)},
		{name: "an HTTPRoute that was accepted", object: omesRoute("{name: public}", `status: "True", observedGeneration: 1`)},
		{
			name:   "an HTTPRoute that only one Gateway accepted",
			object: omesRoute("{name: public}, {name: other}", `status: "True", observedGeneration: 2`),
		},
		{name: "an HTTPRoute without a Gateway", object: omesRoute("", `status: "True", observedGeneration: 2`)},
		{name: "a VirtualService", object: fmt.Sprintf(virtual, "{uri: {prefix: /}}"), want: true},
		{name: "a VirtualService with a condition", object: fmt.Sprintf(virtual, "{uri: {prefix: /}, headers: {a: {exact: b}}}")},
		{name: "nothing", object: strings.SplitN(world, "---", 3)[2]},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, world+"\n---\n"+tt.object, "ingressDomain: example.com").begun()
			assert.Equal(t, tt.want, r.servedByOME("chat.example.com", strings.ReplaceAll("/"+tt.path, "//", "/")))
			assert.Equal(t, tt.again, r.requeueDelay > 0)
			assert.False(t, r.servedByOME("nobody.example.com", "/"))
		})
	}
}

// ingress-nginx's webhook compares the texts of paths. An expression changes all Ingresses of the host, so it is used only if none of
// somebody else is there.
func TestYielding(t *testing.T) {
	t.Parallel()
	live := &unstructured.Unstructured{
		Object: golden.Decode[map[string]any](t,
			[]byte(omesIngress("annotations: {a: b, fairlead.dev/superseded-at: x}, labels: {c: d}, "+omesOwner,
				"{path: /, pathType: Prefix}, {path: /a, pathType: Prefix}", ""))),
	}
	next := yieldRootPath(live, &ingressclass.IngressNGINX)
	assert.Equal(t, map[string]string{"a": "b", "nginx.ingress.kubernetes.io/use-regex": "true"}, next.GetAnnotations())
	assert.Equal(t, live.GetLabels(), next.GetLabels())
	assert.Equal(t, live.GetOwnerReferences(), next.GetOwnerReferences())
	paths, _, _ := unstructured.NestedSlice(next.Object["spec"].(map[string]any)["rules"].([]any)[1].(map[string]any), "http", "paths")
	assert.Equal(t,
		[]any{map[string]any{"path": "/(.*)", "pathType": "ImplementationSpecific"}, map[string]any{"path": "/a", "pathType": "Prefix"}},
		paths)
	assert.Nil(t, yieldRootPath(next, &ingressclass.IngressNGINX), "once")
	assert.Nil(t, yieldRootPath(live, &ingressclass.Traefik), "it has no webhook")
	assert.Nil(t, yieldRootPath(live, nil))

	alone := newRig(t, world+"\n---\n"+omesIngress(omesOwner, "{path: /, pathType: Prefix}", ""), "ingressDomain: example.com").begun()
	assert.True(t, alone.onlyOMEUsesHost("chat.example.com"))
	beside := newRig(t, world+"\n---\n"+omesIngress("labels: {a: b}", "{path: /, pathType: Prefix}", ""),
		"ingressDomain: example.com").begun()
	assert.False(t, beside.onlyOMEUsesHost("chat.example.com"))
}
