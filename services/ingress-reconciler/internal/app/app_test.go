package app

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/dig"
	"go.uber.org/zap"

	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
)

func TestContainer(t *testing.T) {
	t.Parallel()
	c, err := newContainer(config.Default(), zap.NewNop(), dig.DryRun(true))
	require.NoError(t, err)
	require.NoError(t, c.Invoke(func(parts) {}))
}

// TestKindsOfTheFlag compares the kinds that --kinds knows with those that the program writes.
func TestKindsOfTheFlag(t *testing.T) {
	t.Parallel()
	var resources []string
	for _, r := range informers.Written {
		resources = append(resources, r.Resource)
	}
	assert.ElementsMatch(t, resources, config.Default().Sources.Kinds)
}

func TestPrintGraph(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, PrintGraph(&out))
	assert.Contains(t, out.String(), "digraph")
}
