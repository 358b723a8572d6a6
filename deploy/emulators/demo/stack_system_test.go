//go:build system

package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/pkg/kubetest"
)

// All programs of several demos listen at once: none of them uses a port that was chosen before.
func TestTwoStacksAtOnce(t *testing.T) {
	t.Parallel()
	o := options{
		envoy: findEnvoy(t), bin: buildPrograms(t), bootstrap: filepath.Join(repository, "deploy", "examples", "inference", "envoy.yaml"),
		servers: 3, requests: 20, concurrency: 4, tokens: 4, startTimeout: kubetest.Patience,
	}
	var stacks []*stack
	for range 2 {
		s, err := startStack(t.Context(), o, t.TempDir())
		t.Cleanup(s.stop)
		require.NoError(t, err)
		stacks = append(stacks, s)
	}
	assert.NotEqual(t, stacks[0].gateway, stacks[1].gateway)
	for _, s := range stacks {
		report, err := chatload.Run(t.Context(), o.load("http://"+s.gateway))
		require.NoError(t, err)
		require.Zero(t, report.Failed(), s.logs())
		awaitPicks(t, s, o.requests)
	}
}
