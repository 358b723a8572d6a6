package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
)

func TestContainer(t *testing.T) {
	t.Parallel()
	require.NoError(t, service.CheckAssembly[parts](constructors(config.Default(), zap.NewNop())))
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
