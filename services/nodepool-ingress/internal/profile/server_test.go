//go:build system

package profile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/kubetest/cluster"
)

// TestServerAcceptsEveryCombination lets an API server validate the objects of each profile with each exposure, with and without a cache.
// It drops no field, and warns about external IPs alone, which Kubernetes has deprecated.
func TestServerAcceptsEveryCombination(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.ControlPlaneOnly)
	_, err := c.Kubectl(t.Context(), "create", "namespace", "fairlead")
	require.NoError(t, err)
	for exposure, flag := range map[string]string{
		v1alpha1.ExposureExternalIPs: "--warnings-as-errors=false", "": "--warnings-as-errors=true",
	} {
		documents := combinations(t, func(e string) bool { return (e == v1alpha1.ExposureExternalIPs) == (e == exposure) })
		require.Greater(t, len(documents), 50)
		file := filepath.Join(t.TempDir(), "objects.yaml")
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(documents, "---\n")), 0o600))
		out, err := c.Kubectl(t.Context(), "apply", "--server-side", "--dry-run=server", "--validate=strict", flag, "-f", file)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, strings.Count(out, "serverside-applied"), len(documents))
	}
}

// combinations returns the objects of each profile with some exposures, of a pool for each combination.
func combinations(t *testing.T, chosen func(exposure string) bool) []string {
	t.Helper()
	var documents []string
	for _, name := range v1alpha1.Profiles() {
		for _, exposure := range v1alpha1.Exposures() {
			for _, cache := range []*Cache{nil, {}} {
				if !chosen(exposure) {
					continue
				}
				p := pool(name)
				p.Name = fmt.Sprintf("pool-%d", len(documents))
				p.Class, p.Cache = p.Name, cache
				p.Exposure = v1alpha1.Exposure{Type: exposure, HTTPPort: 30080, HTTPSPort: 30443}
				if exposure == v1alpha1.ExposureExternalIPs || exposure == v1alpha1.ExposureLoadBalancer {
					p.Addresses = []string{"192.0.2.10"}
				}
				built, _ := Build(install(), p)
				for _, o := range built.Objects {
					content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
					require.NoError(t, err)
					delete(content, "status")
					text, err := yaml.Marshal(content)
					require.NoError(t, err)
					documents = append(documents, string(text))
				}
			}
		}
	}
	return documents
}
