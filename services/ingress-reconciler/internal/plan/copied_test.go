package plan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

func TestTooMuchToCopyIsReported(t *testing.T) {
	t.Parallel()
	in := input(t, example, isvc.Engine)
	in.Settings.CopyProblem = "too much"
	got := build(t, in)
	assert.Len(t, got.Exposures, 1, "the service is still exposed")
	assert.Equal(t, []Reason{{Reason: ReasonLimitExceeded, Message: "too much"}}, got.Reasons)
}

func TestFallbackAnnotations(t *testing.T) {
	t.Parallel()
	in := input(t, example+"fallbackService: {enabled: true, annotations: {a: admin}}\n", isvc.Engine)
	in.Settings.Copied.FallbackAnnotations = map[string]string{"a": "tenant", "b": "tenant"}
	assert.Equal(t, map[string]string{"a": "admin", "b": "tenant"}, build(t, in).Fallback.Annotations)
}

func TestTimeoutsAreLeftOut(t *testing.T) {
	t.Parallel()
	in := input(t, byGateway+"disableHTTPRouteTimeout: true\ndefaultRouteTimeoutSeconds: 60\n", isvc.Engine)
	public(in)
	got := build(t, in)
	assert.False(t, got.Exposures[0].Timeouts)
	assert.Equal(t, []string{"engine TimeoutUnsupported (warning)"}, reasons(got))
	assert.True(t, strings.HasPrefix(got.Reasons[0].Message, "disableHTTPRouteTimeout is set"), got.Reasons[0].Message)
	in.Settings.Timeout = 0
	assert.Empty(t, build(t, in).Reasons)
}
