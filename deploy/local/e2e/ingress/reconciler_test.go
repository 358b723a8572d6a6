package ingress_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
)

// TestReconcilerAtTraefik runs the ingress-reconciler beside OME's emulator and Traefik alone: a service moves from an HTTPRoute to an Ingress
// under load, and Traefik answers the cases of the evaluator.
func TestReconcilerAtTraefik(t *testing.T) {
	takeTurn(t)
	s := newTraefikSystem(t)
	s.configure(t, baseConfiguration(hold), nil)
	t.Run("side by side", func(t *testing.T) {
		t.Run("a move", func(t *testing.T) {
			t.Parallel()
			m := s.newMoved(t, "traefik", traefikRoute)
			m.move(t, traefikIngress)
			m.load.finish(t)
		})
		t.Run("conformance", func(t *testing.T) {
			t.Parallel()
			assertConformance(t, s)
		})
	})
}

// TestReconciler runs the ingress-reconciler like its users do, beside OME's emulator and in front of real data planes. It
// begins with an earlier release, which the first subtest upgrades.
func TestReconciler(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: TestReconcilerAtTraefik is short")
	}
	t.Parallel()
	s := newSystem(t)
	t.Run("upgrade", func(t *testing.T) { assertUpgrade(t, s) })
	s.install(t)
	t.Run("stock OME", func(t *testing.T) { assertStockOME(t, s) })
	s.configure(t, baseConfiguration(hold), nil)
	waitForStreams := s.startLongStreams(t)
	t.Run("side by side", func(t *testing.T) { // with one configuration: each subtest has services and overrides of its own
		for _, tt := range []struct {
			name   string
			assert func(*testing.T, *system)
		}{
			{name: "moves", assert: assertMoves},
			{name: "components by HTTPRoute", assert: func(t *testing.T, s *system) { assertComponents(t, s, envoyRoute) }},
			{name: "components by Ingress", assert: func(t *testing.T, s *system) { assertComponents(t, s, traefikIngress) }},
			{name: "requests reach the entry", assert: assertRequestsReachTheEntry},
			{name: "conformance", assert: assertConformance},
			{name: "hostile tenant", assert: assertHostileTenant},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				tt.assert(t, s)
			})
		}
	})
	t.Run("leader", func(t *testing.T) { assertLeader(t, s) })
	t.Run("streams of more than a minute", waitForStreams)
	t.Run("least privilege", func(t *testing.T) { assertLeastPrivilege(t, s) })
	t.Run("one leader at a time", func(t *testing.T) { assertOneLeader(t, s) })
}

// assertStockOME is the first example of the documentation: an unmodified OME, one domain, one Gateway.
func assertStockOME(t *testing.T, s *system) {
	require.NoError(t, stack.ApplyExample(t.Context(), s.Cluster, stack.IngressExamples, "service.yaml"))
	s.namespace(t, "models") // of the example; its services are deleted with the test
	found, err := url.Parse(s.awaitExposed(t, types.NamespacedName{Namespace: "models", Name: "chat"}, envoyRoute.at))
	require.NoError(t, err)
	assert.Equal(t, "http://chat.models.llm.example.com/", found.String())
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		got, err := s.envoy.try(t.Context(), question{host: found.Host, target: completions, body: strings.NewReader("{}")})
		require.NoError(collect, err)
		require.Equal(collect, completions, got.String())
		require.Regexp(collect, "^chat-engine-", got.echo.Name)
	}, kubetest.Patience, tick)
}
