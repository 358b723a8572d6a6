package stack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"fairlead.dev/pkg/kubetest/cluster"
)

// IngressExamples is the folder with what a user of the ingress-reconciler applies, in the repository.
const IngressExamples = "deploy/examples/ingress"

// The release of the ingress-reconciler: its Deployment, its ConfigMap and its ServiceAccount go by its name.
const (
	Reconciler          = "ingress-reconciler"
	ReconcilerNamespace = "fairlead"
)

// ApplyExample applies a file of the repository.
func ApplyExample(ctx context.Context, c *cluster.Cluster, folder, name string) error {
	root, err := cluster.Repository()
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(root, folder, name))
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, string(raw)); err != nil {
		return fmt.Errorf("apply %s: %w", name, err)
	}
	return nil
}

// UpgradeReconciler installs the ingress-reconciler as its example has it, or rolls it to another tag or other values, and waits
// until the old replicas are not counted any more.
func UpgradeReconciler(ctx context.Context, c *cluster.Cluster, tag string, args ...string) error {
	root, err := cluster.Repository()
	if err != nil {
		return err
	}
	all := append([]string{
		"upgrade", "--install", Reconciler, filepath.Join(root, "charts", "ingress-reconciler"), "--namespace", ReconcilerNamespace, "--create-namespace",
		"--values", filepath.Join(root, IngressExamples, "values.yaml"), "--set", "image.tag=" + tag,
	}, args...)
	if _, err := c.Helm(ctx, all...); err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "-n", ReconcilerNamespace, "rollout", "status", "deployment/"+Reconciler, "--timeout="+rollTimeout)
	return err
}

// InstallEnvoyGateway installs Envoy Gateway, with nothing beside it and the kinds of the Gateway API in the version that we
// speak, and waits until its class is accepted.
func InstallEnvoyGateway(ctx context.Context, c *cluster.Cluster) error {
	root, err := cluster.Repository()
	if err != nil {
		return err
	}
	s := &Stack{cluster: c, root: root}
	gatewayAPI, own := filepath.Join(root, "bin", "crds", "gateway-api.yaml"), s.chartPath("gateway-helm", "charts", "crds", "crds", "generated")
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		_, err := c.Kubectl(gctx, "apply", "--server-side", "-f", gatewayAPI, "-f", own)
		return err
	})
	g.Go(func() error { // it waits for the kinds by itself
		return s.chart(gctx, "eg", "gateway-helm", gatewaySystem, "--skip-crds", "--set", "crds.enabled=false",
			"--set", "deployment.envoyGateway.readinessProbe.periodSeconds=1")
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("install Envoy Gateway (make gateways traefik fetches its chart and the kinds): %w", err)
	}
	if err := s.applyExample(ctx, ClassFile); err != nil {
		return err
	}
	return s.wait(ctx, "Accepted", "gatewayclass/"+className)
}
