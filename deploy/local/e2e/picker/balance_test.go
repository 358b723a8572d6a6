package picker_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/cluster"
)

// Prompts stay where their prefix is cached. After a stall, one ordinary server can keep most of them, which costs no request its time:
// so each must have some, and the slow one few.
func TestBalance_AServerFourTimesSlowerGetsLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: simulations of the picker show the shares of unlike servers")
	}
	c := cluster.Start(t, stack.Publish("127.0.0.1:0"))
	s, err := stack.Install(t.Context(), c, stack.Options{Tag: tag, Servers: 2, Model: []string{"--step-base=20ms"}, Odd: []string{"--speed=0.25"}})
	require.NoError(t, err)
	require.NoError(t, s.WaitGateway(t.Context()))
	report, err := chatload.Run(t.Context(), chatload.Options{
		BaseURL: s.Gateway(), Model: stack.Model, Concurrency: 24, Requests: 600, MaxTokens: 32, IgnoreEOS: true, KeepAlive: true,
		RequirePicked: true, Prompts: chatload.Prompts{Groups: 48, SharedTokens: 128, Seed: 2},
	})
	require.NoError(t, err)
	require.Zero(t, report.Failed(), "%v %v", report.Failures, report.Examples)
	require.Len(t, report.Servers, 3)
	for _, server := range report.Servers {
		if strings.HasPrefix(server.Server, stack.Pool+"-odd-") {
			assert.Less(t, server.Share, 0.15, "the slow server")
		} else {
			assert.Positive(t, server.Share, "an ordinary server")
		}
	}
}
