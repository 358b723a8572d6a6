//go:build system

package cluster

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// current is the minor version that localkube links.
const current = "37"

// With APIServerEnv the tests of all packages would prove nothing if the API server were the usual one.
func TestStart_APIServerOfAnotherVersion(t *testing.T) {
	t.Parallel()
	c := Start(t, ControlPlaneOnly)
	version, err := c.Clientset().Discovery().ServerVersion()
	require.NoError(t, err)
	if os.Getenv(APIServerEnv) == "" {
		assert.Equal(t, current, version.Minor)
	} else {
		assert.Less(t, version.Minor, current)
	}
}
