//go:build system

package main

import (
	"testing"

	"fairlead.dev/pkg/depcheck"
)

func TestDependencies(t *testing.T) {
	t.Parallel()
	for pattern, forbidden := range map[string][]string{
		"./internal/optimizer": {"k8s.io/...", "go.uber.org/...", "github.com/prometheus/...", "fairlead.dev/pkg/..."},
		"./internal/settings":  {"k8s.io/client-go/...", "go.uber.org/zap/...", "github.com/prometheus/...", "net/http", "os/exec"},
	} {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			depcheck.AssertNoDependency(t, pattern, forbidden...)
		})
	}
}
