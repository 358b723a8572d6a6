package stack

import (
	"context"
	"fmt"
	"path/filepath"

	"fairlead.dev/pkg/kubetest/cluster"
)

// InstallGatewayAPI installs the kinds of the Gateway API.
func InstallGatewayAPI(ctx context.Context, c *cluster.Cluster) error {
	return applyKinds(ctx, c, "gateway-api.yaml")
}

// applyKinds applies a file of CRDs, and waits until all CRDs of the cluster are established.
func applyKinds(ctx context.Context, c *cluster.Cluster, name string) error {
	root, err := cluster.Repository()
	if err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(root, "bin", "crds", name)); err != nil {
		return fmt.Errorf("apply CRDs of %s (make images-race fetches them): %w", name, err)
	}
	_, err = c.Kubectl(ctx, "wait", "--for=condition=Established", WaitTimeout, "crd", "--all")
	return err
}
