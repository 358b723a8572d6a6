package stack

import (
	"context"

	"fairlead.dev/pkg/kubetest/cluster"
)

// Namespace and programs of KEDA.
const (
	KEDANamespace = "keda"
	KEDAOperator  = "keda-operator"
	KEDAMetrics   = "keda-metrics-apiserver"
)

// InstallKEDA installs KEDA as one of its releases does, but for its admission webhooks, and waits until it is ready. It serves the
// external metrics of the cluster, which prometheus-adapter must not do then.
func InstallKEDA(ctx context.Context, c *cluster.Cluster) error {
	if err := applyKinds(ctx, c, "keda.yaml"); err != nil {
		return err
	}
	for _, name := range []string{KEDAOperator, KEDAMetrics} {
		if _, err := c.Kubectl(ctx, "-n", KEDANamespace, "rollout", "status", "deployment/"+name, WaitTimeout); err != nil {
			return err
		}
	}
	return nil
}
