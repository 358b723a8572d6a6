package edgecache_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/schema"
)

// TestObjectsAreValid validates the objects in the lowest and the newest version of Kubernetes: family has the same test for other charts.
func TestObjectsAreValid(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.34", "1.37"} {
		validator, err := schema.New(version)
		require.NoError(t, err)
		for name, v := range ciValues(t) {
			set, err := helm.Template(chartPath(), v)
			require.NoError(t, err)
			for _, o := range set {
				require.NoError(t, validator.Validate(o), "%s, %s", version, name)
			}
		}
	}
}
