package stack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/kubetest/cluster"
)

// IngressExamples is the folder with the manifests of a user of the ingress-reconciler, in the repository.
const IngressExamples = "deploy/examples/ingress"

// The release of the ingress-reconciler: its Deployment, its ConfigMap and its ServiceAccount have its name.
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

// raceMemory is the memory limit of a program with the race detector, which needs several times the memory.
const raceMemory = "1Gi"

// Release is a release of the ingress-reconciler: the folder of its chart in the repository, and the helm values of its image.
type Release struct {
	Chart string
	Image []string
}

// CurrentRelease returns the release of the working tree.
func CurrentRelease(tag string) Release {
	return Release{Chart: filepath.Join("charts", "ingress-reconciler"), Image: imageValues(Reconciler, tag)}
}

// PreviousRelease returns the release of an earlier commit, which `make image-previous` builds.
func PreviousRelease() Release {
	return Release{
		Chart: filepath.Join("bin", "previous", "chart"),
		Image: []string{"--set", "image.repository=" + Registry() + "/" + Reconciler, "--set", "image.tag=previous"},
	}
}

// UpgradeReconciler installs the ingress-reconciler with the values of its example, or upgrades it to another release or other
// values, and waits until the new replicas have replaced the old ones.
func UpgradeReconciler(ctx context.Context, c *cluster.Cluster, r Release, args ...string) error {
	root, err := cluster.Repository()
	if err != nil {
		return err
	}
	all := append([]string{
		"upgrade", "--install", Reconciler, filepath.Join(root, r.Chart), "--namespace", ReconcilerNamespace, "--create-namespace",
		"--values", filepath.Join(root, IngressExamples, "values.yaml"),
		"--set", "resources.limits.memory=" + raceMemory,
	}, append(slices.Clone(r.Image), args...)...)
	if _, err := c.Helm(ctx, all...); err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "-n", ReconcilerNamespace, "rollout", "status", "deployment/"+Reconciler, WaitTimeout)
	return err
}

// InstallEnvoyGateway installs Envoy Gateway without extensions, with the kinds of the Gateway API in the version that this
// repository uses, and waits until its class is accepted.
func InstallEnvoyGateway(ctx context.Context, c *cluster.Cluster) error {
	root, err := cluster.Repository()
	if err != nil {
		return err
	}
	s := &Stack{cluster: c, root: root}
	gatewayAPI, own := filepath.Join(root, "bin", "crds",
		"gateway-api.yaml"), s.chartPath("gateway-helm", "charts", "crds", "crds", "generated")
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		_, err := c.Kubectl(gctx, "apply", "--server-side", "-f", gatewayAPI, "-f", own)
		return err
	})
	g.Go(func() error { // it waits for the kinds itself
		return s.chart(gctx, "eg", "gateway-helm", gatewaySystem, "--skip-crds", "--set", "crds.enabled=false",
			"--set", "deployment.envoyGateway.readinessProbe.periodSeconds=1")
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("install Envoy Gateway (make gateways traefik fetches its chart and the kinds): %w", err)
	}
	return s.applyClass(ctx)
}

// InstallPoolPicker installs an endpoint picker for an InferencePool, with values of its chart. It does not wait: a picker is
// ready when its pool exists.
func InstallPoolPicker(ctx context.Context, c *cluster.Cluster, tag string, name types.NamespacedName, args ...string) error {
	root, err := cluster.Repository()
	if err != nil {
		return err
	}
	_, err = c.Helm(ctx, append([]string{
		"upgrade", "--install", name.Name, filepath.Join(root, "charts", "endpoint-picker"), "--namespace", name.Namespace, "--set",
		onePicker,
	}, append(imageValues(PickerImage, tag), args...)...)...)
	return err
}
