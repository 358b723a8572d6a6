package family_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/schema"
)

// versions returns the versions of Kubernetes in the README of the repository: the lowest that is supported, and the newest that
// Fairlead is built with.
func versions(t *testing.T) (lowest, newest string) {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(helm.Repository(), "README.md"))
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| Kubernetes \| (\d+\.\d+) .*\| (\d+\.\d+) and later \|$`).FindSubmatch(readme)
	require.NotNil(t, row, "README.md: the row of Kubernetes in the table of versions")
	return string(row[2]), string(row[1])
}

// TestObjectsAreValid validates the objects of every file in ci, in the lowest and in the newest version of Kubernetes.
func TestObjectsAreValid(t *testing.T) {
	t.Parallel()
	lowest, newest := versions(t)
	for _, version := range []string{lowest, newest} {
		validator, err := schema.New(version)
		require.NoError(t, err)
		t.Run(version, func(t *testing.T) {
			for _, c := range charts(t) {
				kinds := map[string]bool{}
				for name, values := range c.ciValues(t) {
					set, err := helm.Template(c.path, values)
					require.NoError(t, err)
					for _, o := range set {
						kinds[o.GetKind()] = true
						if err := validator.Validate(o); err != nil {
							t.Errorf("%s, %s: %v", c.name, name, err)
						}
					}
				}
				for _, kind := range kindsOfTemplates(t, c) {
					assert.True(t, kinds[kind], "%s: no file in ci renders a %s", c.name, kind)
				}
			}
		})
	}
}

// kindsOfTemplates returns the kinds that the templates of a chart can render.
func kindsOfTemplates(t *testing.T, c chart) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.path, "templates", "*.yaml"))
	require.NoError(t, err)
	var kinds []string
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`(?m)^kind: (\w+)$`).FindAllStringSubmatch(string(raw), -1) {
			kinds = append(kinds, match[1])
		}
	}
	require.Contains(t, kinds, "Deployment")
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// TestMetadata checks the metadata that registries show.
func TestMetadata(t *testing.T) {
	t.Parallel()
	lowest, _ := versions(t)
	forEach(t, func(t *testing.T, c chart) {
		metadata, err := helm.ReadValues(filepath.Join(c.path, "Chart.yaml"))
		require.NoError(t, err)
		assert.Equal(t, ">="+lowest+".0-0", metadata["kubeVersion"], "the README of the repository has another version")
		for _, key := range []string{"description", "home", "sources", "maintainers", "keywords"} {
			assert.NotEmpty(t, metadata[key], key)
		}
		assert.Equal(t, "v"+metadata["version"].(string), metadata["appVersion"], "a release replaces both")
		assert.Subset(t, metadata["annotations"], helm.Values{"artifacthub.io/license": "Apache-2.0", "artifacthub.io/category": "networking"})
		ignored, err := os.ReadFile(filepath.Join(c.path, ".helmignore"))
		require.NoError(t, err)
		assert.Subset(t, strings.Fields(string(ignored)), []string{"ci/", "README.md.gotmpl"}, "files that a package of the chart does not need")
	})
}
