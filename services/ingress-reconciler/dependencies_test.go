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
		clients   = "k8s.io/client-go/..."
		logger    = "go.uber.org/zap/..."
		container = "go.uber.org/dig/..."
		metrics   = "github.com/prometheus/..."
	)
	pure := []string{clients, logger, container, metrics}
	tests := []struct {
		pattern string
		want    []string // not to be imported
	}{
		{pattern: "./internal/backend", want: pure},
		{pattern: "./internal/condition", want: pure},
		{pattern: "./internal/hostname", want: pure},
		{pattern: "./internal/ingressclass", want: pure},
		{pattern: "./internal/istiogateway", want: pure},
		{pattern: "./internal/isvc", want: pure},
		{pattern: "./internal/plan", want: pure},
		{pattern: "./internal/render", want: pure},
		{pattern: "./internal/semantics", want: append([]string{"google.golang.org/grpc/..."}, pure...)},
		{pattern: "./internal/settings", want: pure},
		{pattern: "./internal/transition", want: pure},
		{ // it names objects as caches do
			pattern: "./internal/dependents",
			want:    []string{"k8s.io/client-go/kubernetes/...", "k8s.io/client-go/dynamic/...", logger, container},
		},
	}
	for _, tt := range tests {
		t.Run(tt.pattern, func(t *testing.T) {
			t.Parallel()
			depcheck.AssertNoDependency(t, tt.pattern, tt.want...)
		})
	}
}
