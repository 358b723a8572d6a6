//go:build system

package main

import (
	"testing"

	"fairlead.dev/pkg/depcheck"
)

func TestDependencies(t *testing.T) {
	t.Parallel()
	for pattern, forbidden := range map[string][]string{
		"./internal/names":   {"k8s.io/client-go/...", "go.uber.org/zap", "go.uber.org/dig"},
		"./internal/plan":    {"k8s.io/client-go/...", "go.uber.org/zap/...", "go.uber.org/dig/...", "github.com/prometheus/..."},
		"./internal/profile": {"k8s.io/client-go/...", "go.uber.org/zap", "go.uber.org/dig"},
	} {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			depcheck.AssertNoDependency(t, pattern, forbidden...)
		})
	}
}
