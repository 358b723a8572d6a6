//go:build system

package flow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

func TestTwoServicesThatWantOneHost(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI+"domainTemplate: one.example.com\n")
		r.apply(gateway)
		stop := r.start()
		r.service(ns, "old", "engine")
		r.awaitCondition("old", fmt.Sprintf(accepted, "one.example.com"))
		r.aged(ns, "old")
		r.service("others", "a", "engine")
		r.eventually(func() (string, bool) {
			got := r.condition("others", "a")
			return got, got == "False HostConflict: one.example.com/ belongs to InferenceService models/old"
		}, "the condition of the younger service names the older one")
		assert.Empty(t, r.ours("others"))
		r.settles()

		t.Log("The older service keeps its host with an invalid value, even after a restart")
		r.patch(isvc.Resource, ns, "old",
			`{"metadata":{"annotations":{"ome.io/ingress-domain-template":"{{ .Labels.team }}.example.com"}}}`)
		r.eventually(func() (string, bool) {
			got := r.condition(ns, "old")
			return got, strings.HasPrefix(got, "False InvalidHost")
		}, "the value is invalid")
		stop()
		r.start()
		for range 2 { // the first marker may be in the initial list, whose order is random
			r.notices()
		}
		r.settles()
		assert.Empty(t, r.ours("others"))
		r.has("httproute one.example.com/ -> old-engine by public")

		t.Log("The younger service also waits until the route of the deleted service is gone")
		r.delete(isvc.Resource, ns, "old")
		r.eventually(func() (string, bool) {
			_, err := r.client.Resource(isvc.Resource).Namespace(ns).Get(t.Context(), "old", metav1.GetOptions{})
			return fmt.Sprint(err), apierrors.IsNotFound(err)
		}, "OME removes its finalizer")
		r.notices()
		r.settles()
		assert.Empty(t, r.ours("others"))
		r.collectGarbage()
		r.eventually(func() (string, bool) {
			got := fmt.Sprint(r.ours("others"))
			return got, got == "[httproute one.example.com/ -> a-engine by public]"
		}, "the younger service has the host")
	})
}

func TestForeignObjectsAreNotChanged(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI)
		r.apply(gateway)
		name := render.BuildName("chat", "httproute", "entry", "chat.models.example.com", "/", "", "", "gateways/public")
		r.apply(fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: %s, namespace: %s}, spec: `+
			`{hostnames: [theirs.example.com]}}`, name, ns))
		r.start()
		r.service(ns, "chat", "engine")
		r.service(ns, "other", "engine")
		r.awaitCondition("chat",
			fmt.Sprintf("False NameConflict: http://chat.models.example.com/; Gateway gateways/public: HTTPRoute %s exists and has "+
				"another owner: delete or rename it", name))
		r.has("httproute other.models.example.com/ -> other-engine by public")
		live, err := r.client.Resource(render.HTTPRoutes).Namespace(ns).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, "theirs.example.com", field(live, "spec", "hostnames", 0))
		r.settles()
	})
}

// policy denies a host. The API server may enforce it for some time after its deletion, so no other test uses this host.
const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-denied}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [gateway.networking.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [httproutes]}]
  validations: [{expression: "!object.spec.hostnames.exists(h, h.endsWith('chat.models.denied.example.org'))", message: not here}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-denied}
spec: {policyName: no-denied, validationActions: [Deny]}
`

func TestOneDeniedObjectDoesNotKeepOthersBack(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI+"additionalIngressDomains: [denied.example.org]\n")
		r.apply(gateway)
		r.apply(policy)
		denied := `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: try, namespace: models}, spec: ` +
			`{hostnames: [chat.models.denied.example.org]}}`
		r.eventually(func() (string, bool) { // the API server enforces a policy with a delay
			err := r.cluster.Apply(t.Context(), denied)
			return fmt.Sprint(err), err != nil && strings.Contains(err.Error(), "not here")
		}, "the policy has effect")
		r.start()
		r.service(ns, "chat", "engine")
		r.service(ns, "other", "engine")
		r.has("httproute chat.models.example.com/ -> chat-engine by public",
			"httproute other.models.example.com/ -> other-engine by public",
			"httproute other.models.denied.example.org/ -> other-engine by public")
		r.eventually(func() (string, bool) {
			got := r.condition(ns, "chat")
			return got, assert.Regexp(quiet{},
				"^False NotWritten: http://chat.models.denied.example.org/, http://chat.models.example.com/; .*not here", got)
		}, "the condition has the reason")
	})
}

func TestLeadershipThatIsLostAndWonAgain(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI+"domainTemplate: one.example.com\n")
		r.apply(gateway)
		r.start(func(c *config.Config) { c.Leader.Elect, c.Leader.Namespace = true, "fairlead" })
		r.service(ns, "old", "engine")
		r.has("httproute one.example.com/ -> old-engine by public")
		r.aged(ns, "old")
		r.service("others", "young", "engine")
		r.eventually(func() (string, bool) {
			got := r.condition("others", "young")
			return got, strings.HasPrefix(got, "False HostConflict")
		}, "the younger service has no host")

		logged := func(message string) int { return r.logs.FilterMessage(message).Len() }
		const lost, won = "Lost leadership, rejoining the election", "Became leader"
		before := logged(lost) // a slow API server takes it, too
		r.patch(leases, "fairlead", "fairlead-ingress-reconciler",
			`{"spec":{"holderIdentity":"another","leaseDurationSeconds":3600,"renewTime":"`+
				time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")+`"}}`)
		r.eventually(func() (string, bool) { return "", logged(lost) > before }, "another program is leader")
		r.delete(isvc.Resource, ns, "old")
		r.collectGarbage()
		r.settles()
		before = logged(won)
		r.delete(leases, "fairlead", "fairlead-ingress-reconciler")
		r.eventually(func() (string, bool) { return "", logged(won) > before }, "the program is leader again")
		r.eventually(func() (string, bool) {
			got := fmt.Sprint(r.ours("others"))
			return got, got == "[httproute one.example.com/ -> young-engine by public]"
		}, "claims of services that were deleted in the meantime do not count")
	})
}
