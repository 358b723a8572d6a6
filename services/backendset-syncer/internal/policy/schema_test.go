package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// schema is the part of JSON Schema that the chart uses for its value config.
type schema struct {
	Ref                  string             `json:"$ref"`
	Type                 any                `json:"type"`
	Description          string             `json:"description"`
	Properties           map[string]*schema `json:"properties"`
	PatternProperties    map[string]*schema `json:"patternProperties"`
	AdditionalProperties *bool              `json:"additionalProperties"`
	Items                *schema            `json:"items"`
	Examples             []any              `json:"examples"`
}

// readSchema returns the schema of the chart's value config.
func readSchema(t *testing.T) *schema {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "charts", "backendset-syncer", "values.schema.json"))
	require.NoError(t, err)
	var values schema
	require.NoError(t, json.Unmarshal(raw, &values))
	require.NotNil(t, values.Properties["config"])
	return values.Properties["config"]
}

// TestChartSchema compares the schema with the keys that Parse reads, and their types.
func TestChartSchema(t *testing.T) {
	t.Parallel()
	config := readSchema(t)
	assert.ElementsMatch(t, []any{"object", "string", "null"}, config.Type)
	assertFields(t, "config", reflect.TypeFor[Document](), config)
}

// assertType compares a schema with the Go type of its decoded values.
func assertType(t *testing.T, path string, want reflect.Type, s *schema) {
	t.Helper()
	if s.Ref != "" { // a name
		assert.Equal(t, reflect.String, want.Kind(), path)
		return
	}
	if want.Kind() == reflect.Pointer {
		want = want.Elem()
	}
	types := map[reflect.Kind]string{
		reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Slice: "array", reflect.Map: "object",
		reflect.Struct: "object",
	}
	assert.Equal(t, types[want.Kind()], s.Type, path)
	switch want.Kind() {
	case reflect.Slice:
		require.NotNil(t, s.Items, "%s has no items", path)
		assertType(t, path+"[]", want.Elem(), s.Items)
	case reflect.Map:
		assertClosed(t, path, s)
		require.Len(t, s.PatternProperties, 1, "patternProperties of %s", path)
		for _, values := range s.PatternProperties {
			assertType(t, path+".*", want.Elem(), values)
		}
	case reflect.Struct:
		assertFields(t, path, want, s)
	}
}

// assertClosed checks that helm refuses other keys.
func assertClosed(t *testing.T, path string, s *schema) {
	t.Helper()
	require.NotNil(t, s.AdditionalProperties, "additionalProperties of %s", path)
	assert.False(t, *s.AdditionalProperties, "additionalProperties of %s", path)
}

// assertFields compares the properties of a schema with the fields of a struct.
func assertFields(t *testing.T, path string, want reflect.Type, s *schema) {
	t.Helper()
	assertClosed(t, path, s)
	fields := map[string]bool{}
	for _, f := range reflect.VisibleFields(want) {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" {
			continue
		}
		fields[name] = true
		if assert.NotNil(t, s.Properties[name], "add %s.%s to charts/backendset-syncer/values.schema.json", path, name) {
			assertType(t, path+"."+name, f.Type, s.Properties[name])
		}
	}
	for name := range s.Properties {
		assert.True(t, fields[name], "%s.%s of charts/backendset-syncer/values.schema.json is unknown to Parse", path, name)
	}
}

// TestExamplesOfTheChartSchema parses the examples of every key.
func TestExamplesOfTheChartSchema(t *testing.T) {
	t.Parallel()
	for name, s := range readSchema(t).Properties {
		assert.NotEmpty(t, s.Description, name)
		require.NotEmpty(t, s.Examples, "%s has no examples", name)
		for _, example := range s.Examples {
			text, err := json.Marshal(map[string]any{name: example})
			require.NoError(t, err)
			_, err = Parse(text)
			require.NoError(t, err, string(text))
		}
	}
}
