package stack

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/kubetest/cluster"
)

// Namespaces and names of Envoy Gateway and Envoy AI Gateway.
const (
	gatewaySystem = "envoy-gateway-system"
	aiSystem      = "envoy-ai-gateway-system"
	className     = "envoy"
	gatewayName   = "inference"
	aiController  = "ai-gateway-controller"

	proxyPods    = "gateway.envoyproxy.io/owning-gateway-name=" + gatewayName
	proxyMetrics = "19001"
)

// GatewayExamples is the folder with the manifests of a user of the Gateway API, in the repository.
const GatewayExamples = "deploy/examples/inference/gateway-api"

// Manifests in GatewayExamples.
const (
	ClassFile   = "class.yaml"
	GatewayFile = "gateway.yaml"
	RouteFile   = "route.yaml"
	PoolFile    = "pool.yaml"

	TimeoutsFile = "timeouts.yaml"
)

// InstallGateway installs everything, with Envoy Gateway and Envoy AI Gateway, and waits until the Gateway is programmed.
//
// The order matters: Envoy Gateway checks for InferencePools only when it starts, and Envoy AI Gateway's controller does not
// start without the kinds of both.
func InstallGateway(ctx context.Context, c *cluster.Cluster, o Options) (*Stack, error) {
	s, err := newStack(ctx, c, o)
	if err != nil {
		return nil, err
	}
	s.pickerValues = filepath.Join(s.root, GatewayExamples, "picker-values.yaml")
	if err := s.applyExample(ctx, PoolFile); err != nil { // no picker is ready without it
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.installControllers(gctx) })
	g.Go(func() error { return s.UpgradeServers(gctx, o.Tag) })
	g.Go(func() error { return s.UpgradePicker(gctx, o.Tag) })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := s.applyClass(ctx); err != nil {
		return nil, err
	}
	for _, name := range []string{GatewayFile, RouteFile, TimeoutsFile} {
		if err := s.applyExample(ctx, name); err != nil {
			return nil, err
		}
	}
	return s, s.wait(ctx, "Programmed", "gateways.gateway.networking.k8s.io/"+gatewayName)
}

// InstallEnvoyAIGateway installs Envoy Gateway and Envoy AI Gateway, with which HTTPRoutes can have InferencePools as
// backends, and waits until their class is accepted.
func InstallEnvoyAIGateway(ctx context.Context, c *cluster.Cluster) error {
	s, err := newStack(ctx, c, Options{})
	if err != nil {
		return err
	}
	if err := s.installControllers(ctx); err != nil {
		return err
	}
	return s.applyClass(ctx)
}

// applyClass creates the GatewayClass and waits until it is accepted: a Gateway that is created earlier may get an Envoy with the
// default values.
func (s *Stack) applyClass(ctx context.Context) error {
	if err := s.applyExample(ctx, ClassFile); err != nil {
		return err
	}
	return s.wait(ctx, "Accepted", "gatewayclass/"+className)
}

func (s *Stack) wait(ctx context.Context, condition, object string) error {
	_, err := s.cluster.Kubectl(ctx, "wait", "--for=condition="+condition, object, WaitTimeout)
	return err
}

func (s *Stack) applyExample(ctx context.Context, name string) error {
	return ApplyExample(ctx, s.cluster, GatewayExamples, name)
}

// installControllers installs Envoy Gateway and Envoy AI Gateway and waits until they are ready: no pod of an Envoy is
// created without the webhook of the latter. The kinds of both are installed first, so that both can start in parallel; helm
// would install the kinds of one chart, and then wait for its other objects.
func (s *Stack) installControllers(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		_, err := s.cluster.Kubectl(gctx, "apply", "--server-side", "--recursive", "-f",
			s.chartPath("gateway-helm", "charts", "crds", "crds"))
		return err
	})
	g.Go(func() error { return s.chart(gctx, "aieg-crd", "ai-gateway-crds-helm", aiSystem) })
	if err := g.Wait(); err != nil {
		return fmt.Errorf("make the kinds of the gateways (make gateways fetches their charts): %w", err)
	}
	g, gctx = errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.chart(gctx, "eg", "gateway-helm", gatewaySystem, "--skip-crds", "--values",
			filepath.Join(s.root, GatewayExamples, "envoy-gateway-values.yaml"))
	})
	g.Go(func() error { return s.chart(gctx, "aieg", "ai-gateway-helm", aiSystem) })
	if err := g.Wait(); err != nil {
		return err
	}
	for deployment, namespace := range map[string]string{"envoy-gateway": gatewaySystem, aiController: aiSystem} {
		if _, err := s.cluster.Kubectl(ctx, "-n", namespace, "rollout", "status", "deployment/"+deployment, WaitTimeout); err != nil {
			return err
		}
	}
	return nil
}

// chart installs one of the charts of the gateways.
func (s *Stack) chart(ctx context.Context, release, chart, namespace string, args ...string) error {
	args = append([]string{"install", release, s.chartPath(chart), "--namespace", namespace, "--create-namespace"}, args...)
	_, err := s.cluster.Helm(ctx, args...)
	return err
}

func (s *Stack) chartPath(names ...string) string {
	return filepath.Join(append([]string{s.root, "bin", "charts"}, names...)...)
}

// GatewayStats reads the metrics of Envoy Gateway's Envoy whose names contain filter.
func GatewayStats(ctx context.Context, c *cluster.Cluster, filter string) (string, error) {
	pods, err := c.Clientset().CoreV1().Pods(gatewaySystem).List(ctx, metav1.ListOptions{LabelSelector: proxyPods})
	if err != nil {
		return "", err
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if len(pods.Items) != 1 {
		return "", fmt.Errorf("the Gateway has %d pods, want 1", len(pods.Items))
	}
	addr := net.JoinHostPort(pods.Items[0].Status.PodIP, proxyMetrics)
	return Fetch(ctx, c, addr, "/stats/prometheus?filter="+url.QueryEscape(filter))
}
