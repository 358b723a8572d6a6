//go:build system

package flow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// The condition follows a route of somebody else: by events, not only when the service changes.
func TestARouteOfSomebodyElseComesAndGoes(t *testing.T) {
	t.Parallel()
	r := newRig(t, ome.Release12, gatewayAPI)
	r.apply(gateway)
	const legacy = `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: legacy, namespace: models},
	spec: {parentRefs: [{name: public, namespace: gateways}],
		hostnames: [%s], rules: [{matches: [{path: {type: PathPrefix, value: %s}}], backendRefs: [{name: legacy, port: 80}]}]}}`
	const host = "chat.models.example.com"
	r.apply(fmt.Sprintf(legacy, host, "/"))
	r.eventually(func() (string, bool) {
		created := r.get(render.HTTPRoutes, "legacy").GetCreationTimestamp()
		return created.String(), metav1.Now().Unix() > created.Unix()
	}, "the route is older")
	r.start()
	r.service(ns, "chat", "engine")
	r.awaitCondition("chat", "False HostConflict: http://"+host+"/; Gateway gateways/public: HTTPRoute models/legacy answers "+host+
		"/, not this program's route (this program's route loses: its object is younger): delete it, or choose another host")
	r.has("httproute " + host + "/ -> chat-engine by public")
	r.settles()

	t.Log("It changes its path, its host, comes back and is deleted")
	r.apply(fmt.Sprintf(legacy, host, "/v1"))
	r.awaitCondition("chat", fmt.Sprintf(accepted, host)+"; HostConflict: HTTPRoute models/legacy answers "+host+
		"/v1/chat/completions (this program's route loses: its path is shorter)")
	r.apply(fmt.Sprintf(legacy, "other.example.com", "/"))
	r.awaitCondition("chat", fmt.Sprintf(accepted, host))
	r.apply(fmt.Sprintf(legacy, host, "/"))
	r.eventually(func() (string, bool) {
		got := r.condition(ns, "chat")
		return got, strings.HasPrefix(got, "False HostConflict")
	}, "it is back")
	r.delete(render.HTTPRoutes, ns, "legacy")
	r.awaitCondition("chat", fmt.Sprintf(accepted, host))
	r.settles()
}

// Of several services of a namespace on one host, one Ingress requests the certificate. When it is deleted, the next one does.
func TestOneIngressRequestsTheCertificate(t *testing.T) {
	t.Parallel()
	r := newRig(t, ome.Release12, ingress+sharedHost+"tlsIssuer: ClusterIssuer/letsencrypt\n")
	r.apply(`{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: nginx, annotations: ` +
		`{ingressclass.kubernetes.io/is-default-class: "true"}}, spec: {controller: k8s.io/ingress-nginx}}`)
	r.start()
	requesters := func(want ...string) {
		r.eventually(func() (string, bool) {
			list, err := r.client.Resource(render.Ingresses).Namespace(ns).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			var found []string
			for i := range list.Items {
				u := &list.Items[i]
				assert.Equal(t, "llm.example.com-tls", field(u, "spec", "tls", 0, "secretName"))
				if u.GetAnnotations()["cert-manager.io/cluster-issuer"] != "" {
					found = append(found, u.GetOwnerReferences()[0].Name)
				}
			}
			return strings.Join(found, ", "), assert.ElementsMatch(quiet{}, want, found)
		}, "the certificate is requested by %s", want)
	}
	const first, second = "ingress llm.example.com/models/first(/|$)(.*) -> first-engine", "ingress llm.example.com/models/second(/|$)(." +
		"*) -> second-engine"
	r.service(ns, "first", "engine")
	r.has(first)
	r.service(ns, "second", "engine")
	r.has(first, second)
	requesters("first")
	r.settles()
	r.delete(isvc.Resource, ns, "first")
	r.collectGarbage()
	r.has(second)
	requesters("second")
	r.settles()

	t.Log("Two at once")
	for _, name := range []string{"a", "b", "c"} {
		r.service(ns, name, "engine")
	}
	r.eventually(func() (string, bool) { got := r.ours(ns); return strings.Join(got, "\n"), len(got) == 4 }, "four Ingresses")
	requesters("second")
}
