package stack

import (
	"context"
	_ "embed"
	"strings"

	"fairlead.dev/pkg/kubetest/cluster"
)

//go:embed echo.yaml
var echoManifest string

// InstallEcho installs echo servers into the default namespace and waits until they are ready: for each name a Deployment
// with one pod, and a Service with port 80.
func InstallEcho(ctx context.Context, c *cluster.Cluster, tag string, names ...string) error {
	var manifests []string
	for _, name := range names {
		manifests = append(manifests, strings.NewReplacer("NAME", name, "IMAGE", image("echo", tag)).Replace(echoManifest))
	}
	if err := c.Apply(ctx, strings.Join(manifests, "---\n")); err != nil {
		return err
	}
	for _, name := range names {
		if _, err := c.Kubectl(ctx, "rollout", "status", "deployment/"+name, WaitTimeout); err != nil {
			return err
		}
	}
	return nil
}
