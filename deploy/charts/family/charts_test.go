// Package family_test checks what the charts of the repository have in common: objects that every supported Kubernetes accepts,
// values that have an effect, the same values, templates and defaults in each chart, and alerts, dashboards and guides that keep up with
// the programs.
package family_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
)

// chart is a chart of the repository.
type chart struct {
	name     string
	path     string
	required helm.Values // values that have no default
}

// required are the values that a chart has no default for.
func required(name string) helm.Values {
	switch name {
	case edgeCache:
		return helm.Values{"upstreamServer": "https://203.0.113.10:6443", "pools": []any{helm.Values{"name": "east"}}}
	case "endpoint-picker":
		return helm.Values{"pool": helm.Values{"name": "pool"}}
	case "variant-autoscaler":
		return helm.Values{"prometheus": helm.Values{"url": "https://prometheus.monitoring.svc:9090"}}
	}
	return helm.Values{}
}

// allCharts returns all charts.
func allCharts(t *testing.T) []chart {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(helm.Repository(), "charts", "*", "Chart.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var found []chart
	for _, file := range files {
		path := filepath.Dir(file)
		found = append(found, chart{name: filepath.Base(path), path: path, required: required(filepath.Base(path))})
	}
	return found
}

// edgeCache is the chart of a sidecar: its Deployments run other programs, one for each pool.
const edgeCache = "edge-cache"

// charts returns all charts whose Deployment runs a program of this repository by itself.
func charts(t *testing.T) []chart {
	t.Helper()
	return slices.DeleteFunc(allCharts(t), func(c chart) bool { return c.name == edgeCache })
}

// forEach runs a test for each of charts.
func forEach(t *testing.T, test func(t *testing.T, c chart)) {
	t.Helper()
	runEach(t, charts(t), test)
}

func runEach(t *testing.T, charts []chart, test func(t *testing.T, c chart)) {
	t.Helper()
	for _, c := range charts {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

// render renders a chart with values and with those that it has no default for.
func (c chart) render(t *testing.T, values helm.Values) objects.Set {
	t.Helper()
	return objects.Render(t, c.path, c.with(values))
}

// with adds the values that a chart has no default for.
func (c chart) with(values helm.Values) helm.Values {
	all := maps.Clone(c.required)
	maps.Copy(all, values)
	return all
}

// flagFolders returns the folders of the packages that define the flags of the chart's program.
func (c chart) flagFolders() []string {
	internal := filepath.Join(helm.Repository(), "services", c.name, "internal")
	folders := []string{filepath.Join(helm.Repository(), "pkg"), filepath.Join(internal, "config")}
	if c.name == "backendset-syncer" {
		folders = append(folders, filepath.Join(internal, "ociapi"))
	}
	return folders
}

// defaults returns the values of a chart's values.yaml.
func (c chart) defaults(t *testing.T) helm.Values {
	t.Helper()
	values, err := helm.ReadValues(filepath.Join(c.path, "values.yaml"))
	require.NoError(t, err)
	return values
}

// ciValues returns the files of values that a chart is checked with, by their names.
func (c chart) ciValues(t *testing.T) map[string]helm.Values {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.path, "ci", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	found := map[string]helm.Values{}
	for _, file := range files {
		found[filepath.Base(file)], err = helm.ReadValues(file)
		require.NoError(t, err)
	}
	return found
}

// structure is the part of a JSON Schema that says which values there are.
type structure struct {
	Properties map[string]*structure `json:"properties"`
}

// structure returns the structure of a chart's values. `config` counts as one value: the tests of the services compare its keys with
// those that the programs read.
func (c chart) structure(t *testing.T) *structure {
	t.Helper()
	s := &structure{}
	c.readSchema(t, s)
	if config := s.Properties["config"]; config != nil {
		config.Properties = nil
	}
	return s
}

func (c chart) readSchema(t *testing.T, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(c.path, "values.schema.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, into))
}

// leaves returns the paths of the values that have no values below them, sorted.
func (s *structure) leaves(above ...string) [][]string {
	if len(s.Properties) == 0 {
		return [][]string{above}
	}
	var found [][]string
	for _, key := range slices.Sorted(maps.Keys(s.Properties)) {
		found = append(found, s.Properties[key].leaves(append(slices.Clone(above), key)...)...)
	}
	return found
}
