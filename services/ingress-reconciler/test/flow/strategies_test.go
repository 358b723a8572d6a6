//go:build system

package flow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// TestEveryChangeOfStrategy tests the change from each strategy to each other strategy.
func TestEveryChangeOfStrategy(t *testing.T) {
	t.Parallel()
	strategies := []struct{ object, configuration string }{
		{"httproute chat.models.example.com/ -> chat-engine by public", gatewayAPI},
		{"ingress chat.models.example.com/ -> chat-engine", ingress},
		{"virtualservice chat.models.example.com/ -> chat-engine", istio},
		{"", gatewayAPI + "enabled: false\n"},
	}
	walk := []int{0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3, 0}
	pairs := map[[2]int]bool{}
	for i := range walk[1:] {
		pairs[[2]int{walk[i], walk[i+1]}] = true
	}
	assert.Len(t, pairs, len(strategies)*(len(strategies)-1))
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI)
		r.apply(gateway)
		r.start()
		r.service(ns, "chat", "engine")
		exactly := func(object string) {
			t.Helper()
			if object == "" {
				r.has()
				return
			}
			r.has(object)
		}
		exactly(strategies[walk[0]].object)
		for i := range walk[1:] {
			from, to := strategies[walk[i]], strategies[walk[i+1]]
			t.Logf("%q to %q", from.object, to.object)
			r.settles()
			gaps := r.planes.watchGaps("chat.models.example.com")
			r.configure(to.configuration)
			exactly(to.object)
			if from.object != "" && to.object != "" {
				assert.Empty(t, gaps(), "new objects are accepted before old objects are deleted")
			}
		}
		r.settles()
	})
}

func TestOldStaysWhileNewIsRefused(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, ingress)
		r.apply(gateway)
		r.planes.refuse(t.Context(), "public")
		r.start()
		r.service(ns, "chat", "engine")
		old, next := "ingress chat.models.example.com/ -> chat-engine", "httproute chat.models.example.com/ -> chat-engine by public"
		r.has(old)
		r.configure(byGateway + subdomain + "holdSeconds: 0\n") // each reconcile deletes replaced objects, and then writes the condition
		r.has(old, next)
		r.awaitCondition("chat", "False NotAllowedByListeners: http://chat.models.example.com/; Gateway gateways/public: by the test")
		assert.ElementsMatch(t, []string{old, next}, r.ours(ns))
		assert.Empty(t, r.marked())

		t.Log("The hold begins when the new object is accepted. The mark is removed when the old object is wanted again")
		loaded := func() int { return r.logs.FilterMessage("Loaded configuration").Len() }
		before := loaded()
		r.configure(byGateway + subdomain + "holdSeconds: 3600\n")
		r.eventually(func() (string, bool) { n := loaded(); return fmt.Sprint(n), n > before }, "the hold is an hour")
		r.planes.refuse(t.Context())
		r.awaitCondition("chat", fmt.Sprintf(accepted, "chat.models.example.com"))
		r.eventually(func() (string, bool) { m := r.marked(); return fmt.Sprint(m), len(m) == 1 && m[0] == old }, "the object is marked")
		r.configure(ingress)
		r.has(old)
		assert.Empty(t, r.marked())
	})
}

func TestPathsOnASharedHost(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, byGateway+sharedHost+hold)
		r.apply(gateway)
		r.start()
		r.service(ns, "chat", "engine")
		r.has("httproute llm.example.com/models/chat -> chat-engine by public")
		r.settles()
		r.configure(istio + sharedHost)
		r.has("virtualservice llm.example.com/models/chat/ -> chat-engine")
		r.settles()

		t.Log("An Ingress needs a controller that can rewrite paths. The old objects stay until such a controller exists")
		r.configure(ingress + sharedHost)
		r.awaitCondition("chat",
			"False PathRewriteUnsupported: the default IngressClass cannot rewrite path /models/chat/ on host llm.example.com: set "+
				"perISVCSubdomain: true")
		r.has("virtualservice llm.example.com/models/chat/ -> chat-engine")
		for _, tt := range []struct{ controller, want string }{
			{controller: "traefik.io/ingress-controller", want: "ingress llm.example.com/models/chat -> chat-engine"},
			{controller: "k8s.io/ingress-nginx", want: "ingress llm.example.com/models/chat(/|$)(.*) -> chat-engine"},
		} {
			class := strings.ReplaceAll(tt.controller, "/", ".")
			r.apply(fmt.Sprintf(`{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: %s, annotations: `+
				`{ingressclass.kubernetes.io/is-default-class: "true"}}, spec: {controller: %s}}`,
				class, tt.controller))
			r.eventually(func() (string, bool) {
				got := r.ours(ns)
				return strings.Join(got, "\n"), assert.Contains(quiet{}, got, tt.want)
			}, "%s", tt.controller)
			r.settles()
			r.delete(ingressClasses, "", class)
		}
	})
}

var ingressClasses = render.Ingresses.GroupVersion().WithResource("ingressclasses")
