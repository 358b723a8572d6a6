package ingressreconciler_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/exported"
)

// names returns the metrics of the program, and the reasons of its conditions and Events.
func names(t *testing.T) *exported.Names {
	t.Helper()
	found := exported.Read(t, "ingress-reconciler", filepath.Join("pkg", "configmap"), filepath.Join("pkg", "gatewayapi"))
	require.Subset(t, found.Reasons, []string{"Programmed", "NoDomain", "GatewayNotFound", "NotWritten"})
	return found
}
