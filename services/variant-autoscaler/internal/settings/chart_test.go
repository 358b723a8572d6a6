package settings

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/strictyaml"
)

// chartValues are the values of the chart that become entries of ConfigMaps.
var chartValues = map[string]struct {
	kind     Kind
	document reflect.Type
}{
	"acceleratorUnitCosts": {Accelerators, reflect.TypeFor[unitCost]()},
	"serviceClasses":       {Classes, reflect.TypeFor[classDocument]()},
	"scaleToZero":          {Zero, reflect.TypeFor[zeroDocument]()},
	"saturation":           {Saturation, reflect.TypeFor[saturationDocument]()},
	"limits":               {Limits, reflect.TypeFor[limitDocument]()},
}

// otherSpellings are names of fields that the chart does not have: those of other releases.
var otherSpellings = []string{"model_id", "enable_scale_to_zero", "retention_period", "slo-itl"}

// chartSchema is the part of JSON Schema that the chart uses for these values.
type chartSchema struct {
	Properties           map[string]*chartSchema      `json:"properties"`
	AdditionalProperties json.RawMessage              `json:"additionalProperties"`
	Items                *chartSchema                 `json:"items"`
	Examples             []map[string]json.RawMessage `json:"examples"`
}

func readChart(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "charts", "variant-autoscaler", file))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, into))
}

// fieldsOf returns the names of the fields of a document, with those that it embeds.
func fieldsOf(document reflect.Type) []string {
	var names []string
	for _, f := range strictyaml.Fields(document) {
		if !slices.Contains(otherSpellings, f.Name) {
			names = append(names, f.Name)
		}
	}
	return names
}

// TestChartSchema compares the keys that helm accepts with those that the program reads.
func TestChartSchema(t *testing.T) {
	t.Parallel()
	var values chartSchema
	readChart(t, "values.schema.json", &values)
	for name, value := range chartValues {
		require.NotNil(t, values.Properties[name], name)
		var entry chartSchema
		require.NoError(t, json.Unmarshal(values.Properties[name].AdditionalProperties, &entry), name)
		assert.ElementsMatch(t, fieldsOf(value.document), slices.Collect(maps.Keys(entry.Properties)), name)
		assert.JSONEq(t, "false", string(entry.AdditionalProperties), name)
		if data := entry.Properties["data"]; data != nil {
			assert.ElementsMatch(t, fieldsOf(reflect.TypeFor[classItem]()), slices.Collect(maps.Keys(data.Items.Properties)), name)
		}
	}
}

// TestChartEntries reads the defaults of the chart, and the examples of its schema, as entries of ConfigMaps: there is nothing to warn of.
func TestChartEntries(t *testing.T) {
	t.Parallel()
	var values chartSchema
	readChart(t, "values.schema.json", &values)
	defaults := map[string]json.RawMessage{}
	readChart(t, "values.yaml", &defaults)
	for name, value := range chartValues {
		var entries map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(defaults[name], &entries), name)
		require.NotEmpty(t, values.Properties[name].Examples, name)
		for _, entries := range append(values.Properties[name].Examples, entries) {
			data := map[string]string{}
			for key, entry := range entries {
				data[key] = string(entry)
			}
			b := NewBuilder(Options{Namespace: "fairlead"})
			assert.Empty(t, b.SetSources(value.kind, Source{Name: value.kind.Names()[0], Data: data}), "%s: %v", name, data)
		}
	}
}

// TestChartDefaults checks that the defaults of the chart suffice for decisions on any model, as soon as Prometheus is known.
func TestChartDefaults(t *testing.T) {
	t.Parallel()
	defaults := map[string]json.RawMessage{}
	readChart(t, "values.yaml", &defaults)
	b := NewBuilder(Options{Namespace: "fairlead"})
	for _, name := range []string{"acceleratorUnitCosts", "serviceClasses"} {
		var entries map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(defaults[name], &entries), name)
		data := map[string]string{}
		for key, entry := range entries {
			data[key] = string(entry)
		}
		kind := chartValues[name].kind
		b.SetSources(kind, Source{Name: kind.Names()[0], Data: data})
	}
	s := b.Settings()
	class, problem := s.Class("models", "meta/llama-3.1-8b", "")
	require.Nil(t, problem)
	assert.Equal(t, LowestPriority, class.Priority, "classes that users add come first")
	assert.InDelta(t, 2000, class.Targets.TTFT, 0)
	assert.InDelta(t, 100, class.Targets.ITL, 0)
	assert.Equal(t, int64(100_000_000), s.Prices()["H100"])
}
