//go:build system

package flow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// enableOME turns OME's ingress on in its ConfigMap, with the domain of the tests.
func (r *rig) enableOME(changes ...string) {
	r.t.Helper()
	replaced := append([]string{
		`"disableIngressCreation": true`, `"disableIngressCreation": false`, `: "svc.cluster.local"`, `: "example.com"`,
	}, changes...)
	r.apply(strings.NewReplacer(replaced...).Replace(ome.Config(r.release)))
}

// omeIngress reports whether OME's Ingress exists.
func (r *rig) omeIngress() bool {
	r.t.Helper()
	_, err := r.client.Resource(render.Ingresses).Namespace(ns).Get(r.t.Context(), "chat", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(r.t, err)
	}
	return err == nil
}

const notServed = "False OMEIngressEnabled: OME creates routes for this service: set disableIngressCreation: true in OME's " +
	"configuration to use this controller; " +
	"no accepted route of OME serves chat.models.example.com/: %s stays"

// awaitStays waits until the condition says that an object of a kind stays because OME does not serve its host.
func (r *rig) awaitStays(kind string) {
	r.t.Helper()
	r.eventually(func() (string, bool) {
		got := r.condition(ns, "chat")
		return got, assert.Regexp(quiet{}, "^"+fmt.Sprintf(notServed, kind+" chat-fairlead-[0-9a-f]{8}")+"$", got)
	}, "the condition says that the %s stays", kind)
}

// Routes stay while OME is down, until OME serves the host.
func TestRoutesAreHandedOverWhenOMEServesTheHost(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI)
		r.apply(gateway)
		r.start()
		r.service(ns, "chat", "engine")
		r.awaitCondition("chat", fmt.Sprintf(accepted, "chat.models.example.com"))
		r.settles()
		gaps := r.planes.watchGaps("chat.models.example.com")
		r.stopOME()
		r.enableOME()
		r.awaitStays("HTTPRoute")
		r.has("httproute chat.models.example.com/ -> chat-engine by public")
		r.planes.refuse(t.Context(), "chat.models.example.com")
		r.startOME()
		r.eventually(func() (string, bool) { return "", r.omeIngress() }, "OME creates its Ingress")
		r.settles()
		r.has("httproute chat.models.example.com/ -> chat-engine by public")
		r.planes.refuse(t.Context())
		r.has()
		assert.Empty(t, gaps())
		r.settles()
	})
}

// OME 1.2 cannot create HTTPRoutes. Without its route nothing else would serve the host.
func TestRoutesStayWithAnOMEThatCannotServe(t *testing.T) {
	t.Parallel()
	r := newRig(t, ome.Release12, gatewayAPI)
	r.apply(gateway)
	r.start()
	r.service(ns, "chat", "engine")
	r.awaitCondition("chat", fmt.Sprintf(accepted, "chat.models.example.com"))
	r.enableOME(`"enableGatewayAPI": false`, `"enableGatewayAPI": true`)
	r.awaitStays("HTTPRoute")
	r.settles() // longer than the hold
	r.has("httproute chat.models.example.com/ -> chat-engine by public")
}

// The webhook of ingress-nginx refuses OME's Ingress for the same host and path, so the paths change before OME serves the host.
func TestIngressesAreHandedOverBesideTheWebhook(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, ingress)
		r.start(r.startNginx())
		r.service(ns, "chat", "engine")
		r.awaitCondition("chat", fmt.Sprintf(nginxAllowed, "the default IngressClass"))
		r.settles()
		gaps := r.planes.watchGaps("chat.models.example.com")
		r.stopOME()
		r.enableOME(`: "istio"`, `: "nginx"`)
		r.awaitStays("Ingress")
		const yielded = "ingress chat.models.example.com/(.*) -> chat-engine"
		r.has(yielded)
		r.settles()
		r.startOME()
		r.eventually(func() (string, bool) { return "", r.omeIngress() }, "OME creates its Ingress")
		r.has()
		assert.Empty(t, gaps())

		t.Log("Back again: the webhook refuses the Ingress until adopt deletes OME's")
		r.apply(ome.Config(release))
		r.eventually(func() (string, bool) { got := r.condition(ns, "chat"); return got, strings.Contains(got, "NotWritten") },
			"the webhook refuses it")
		_, _, err := r.command("adopt", "--config-map", "fairlead/ours", "--dry-run=false")
		require.NoError(t, err)
		r.has(nginxIngress)
	})
}
