package stack

import (
	"context"
	_ "embed"
	"strings"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/pkg/kubetest/cluster"
)

//go:embed ome.yaml
var omeManifest string

const omeNamespace = "ome"

// InstallOME installs the stand-in for OME as OME is shipped, and waits until it is ready. The pods that it makes for
// components are echo servers that go by the names of their pods.
func InstallOME(ctx context.Context, c *cluster.Cluster, tag string) error {
	if _, err := c.Kubectl(ctx, "create", "namespace", omeNamespace); err != nil {
		return err
	}
	for _, manifest := range []string{ome.CRDs(ome.Release12), ome.Config(ome.Release12), strings.ReplaceAll(omeManifest, "TAG", tag)} {
		if err := c.Apply(ctx, manifest); err != nil {
			return err
		}
	}
	_, err := c.Kubectl(ctx, "-n", omeNamespace, "rollout", "status", "deployment/ome", "--timeout="+rollTimeout)
	return err
}
