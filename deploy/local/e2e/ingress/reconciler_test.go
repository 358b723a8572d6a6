package ingress_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/local/e2e/stack"
)

// TestReconciler runs the ingress-reconciler like its users do, beside OME's emulator and in front of real data planes. It
// begins with an earlier release, which the first subtest upgrades.
func TestReconciler(t *testing.T) {
	s := newSystem(t)
	t.Run("upgrade", func(t *testing.T) { assertUpgrade(t, s) })
	s.install(t)
	t.Run("stock OME", func(t *testing.T) { assertStockOME(t, s) })
	waitForStreams := s.startLongStreams(t)
	t.Run("requests reach the entry", func(t *testing.T) { assertRequestsReachTheEntry(t, s) })
	t.Run("conformance", func(t *testing.T) { assertConformance(t, s) })
	t.Run("hostile tenant", func(t *testing.T) { assertHostileTenant(t, s) })
	t.Run("transitions under load", func(t *testing.T) { assertTransitions(t, s) })
	t.Run("leader", func(t *testing.T) { assertLeader(t, s) })
	t.Run("streams of more than a minute", waitForStreams)
	t.Run("least privilege", func(t *testing.T) { assertLeastPrivilege(t, s) })
	t.Run("one leader at a time", func(t *testing.T) { assertOneLeader(t, s) })
}

// assertStockOME is the first example of the documentation: OME as it is shipped, one domain, one Gateway.
func assertStockOME(t *testing.T, s *system) {
	require.NoError(t, stack.ApplyExample(t.Context(), s.Cluster, stack.IngressExamples, "service.yaml"))
	s.namespace(t, "models") // it is there, and ends with the test
	found, err := url.Parse(s.awaitExposed(t, types.NamespacedName{Namespace: "models", Name: "chat"}, envoyRoute.at))
	require.NoError(t, err)
	assert.Equal(t, "http://chat.models.llm.example.com/", found.String())
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		got, err := s.envoy.ask(t.Context(), question{host: found.Host, target: completions, body: strings.NewReader("{}")})
		require.NoError(collect, err)
		require.Equal(collect, completions, got.String())
		require.Regexp(collect, "^chat-engine-", got.echo.Name)
	}, settle, tick)
}
