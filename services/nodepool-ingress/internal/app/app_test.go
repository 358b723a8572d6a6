package app

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/dig"
	"go.uber.org/zap"

	"fairlead.dev/services/nodepool-ingress/internal/config"
)

func TestContainer(t *testing.T) {
	t.Parallel()
	c, err := newContainer(config.Default(), zap.NewNop(), dig.DryRun(true))
	require.NoError(t, err)
	require.NoError(t, c.Invoke(func(parts) {}))
}

func TestPrintGraph(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, PrintGraph(&out))
	assert.Contains(t, out.String(), "digraph")
}
