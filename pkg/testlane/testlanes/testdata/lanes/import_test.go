//go:build linux

package lanes

import "fairlead.dev/pkg/kubetest/cluster" // want fairlead.dev/pkg/kubetest/cluster

func TestImport(t *testing.T) {
	cluster.Start(t)
}
