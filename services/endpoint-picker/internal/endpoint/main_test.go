package endpoint

import (
	"testing"

	"go.uber.org/goleak"

	"fairlead.dev/pkg/depcheck"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Algorithms know endpoints, and not the other way around.
func TestEndpointKnowsNoAlgorithm(t *testing.T) {
	t.Parallel()
	const internal = "fairlead.dev/services/endpoint-picker/internal/"
	depcheck.AssertNoDependency(t, ".", internal+"estimate", internal+"scheduling", internal+"prefixindex")
}
