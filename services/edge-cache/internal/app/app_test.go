package app

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/edge-cache/internal/config"
)

func TestContainer(t *testing.T) {
	t.Parallel()
	require.NoError(t, service.CheckAssembly[parts](constructors(config.Default(), zap.NewNop())))
}
