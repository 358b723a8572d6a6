//go:build system

package depcheck

import "testing"

func TestDependencies(t *testing.T) {
	t.Parallel()
	pure := []string{"k8s.io/client-go/...", "go.uber.org/zap/...", "go.uber.org/dig/...", "github.com/prometheus/..."}
	for pattern, forbidden := range map[string][]string{
		"fairlead.dev/pkg/...":        {"fairlead.dev/services/...", "fairlead.dev/deploy/...", "k8s.io/kubernetes/...", "sigs.k8s.io/controller-runtime/..."},
		"fairlead.dev/pkg/conditions": pure,
		"fairlead.dev/pkg/gatewayapi": pure,
	} {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			AssertNoDependency(t, pattern, forbidden...)
		})
	}
}
