package cluster_test

import (
	"fmt"
	"os"
	"testing"

	"fairlead.dev/pkg/kubetest/cluster"
)

func TestMain(m *testing.M) {
	if os.Getenv(cluster.KubeconfigEnv) != "" {
		fmt.Printf("skipped: these tests are about the embedded Kubernetes, not about the cluster of %s\n", cluster.KubeconfigEnv)
		return
	}
	m.Run()
}
