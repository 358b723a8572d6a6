package stack

import (
	"os"
	"testing"

	"fairlead.dev/pkg/kubetest/cluster"
)

// NeedLimits skips a test where the cluster cannot limit containers. A cluster that the tests did not start can.
func NeedLimits(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if os.Getenv(cluster.KubeconfigEnv) != "" {
		return
	}
	s, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.NoLimits != "" {
		t.Skipf("limits of containers are not enforced here: %s", s.NoLimits)
	}
}
