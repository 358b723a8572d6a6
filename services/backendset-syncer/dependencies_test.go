//go:build system

package main

import (
	"testing"

	"fairlead.dev/pkg/depcheck"
)

// TestDependencies checks what the packages around the plan do not import, directly or indirectly: they are pure.
func TestDependencies(t *testing.T) {
	t.Parallel()
	const (
		clients    = "k8s.io/client-go/..."
		logger     = "go.uber.org/zap/..."
		container  = "go.uber.org/dig/..."
		sdk        = "github.com/oracle/..."
		metrics    = "github.com/prometheus/..."
		sharedCode = "fairlead.dev/pkg/..."
	)
	tests := []struct {
		pattern string
		want    []string // not to be imported
	}{
		{pattern: "./internal/plan", want: []string{clients, "k8s.io/api/...", logger, container, sdk, metrics, sharedCode}},
		{pattern: "./internal/gatewayplan/routing", want: []string{clients, logger, container, sdk, metrics}},
		{pattern: "./internal/gatewayplan/weights", want: []string{"k8s.io/...", logger, container, sdk, metrics, sharedCode}},
	}
	for _, tt := range tests {
		t.Run(tt.pattern, func(t *testing.T) {
			t.Parallel()
			depcheck.AssertNoDependency(t, tt.pattern, tt.want...)
		})
	}
}
