package settings

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
	AdditionalProperties json.RawMessage    `json:"additionalProperties"`
	Items                *schema            `json:"items"`
	Enum                 []string           `json:"enum"`
	Examples             []any              `json:"examples"`
	Definitions          map[string]*schema `json:"definitions"`
}

// chartSchema is the schema of the chart's values.
type chartSchema struct{ *schema }

// removedKey is a key of earlier releases. Parse reports its replacement; the schema does not contain it.
const removedKey = "annotationPrefixes"

func readSchema(t *testing.T) chartSchema {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "charts", "ingress-reconciler", "values.schema.json"))
	require.NoError(t, err)
	s := chartSchema{&schema{}}
	require.NoError(t, json.Unmarshal(raw, s.schema))
	return s
}

// resolve follows a reference, such as #/definitions/settings/properties/strategy.
func (c chartSchema) resolve(t *testing.T, s *schema) *schema {
	t.Helper()
	if s.Ref == "" {
		return s
	}
	path := strings.Split(strings.TrimPrefix(s.Ref, "#/definitions/"), "/")
	found := c.Definitions[path[0]]
	if len(path) == 3 && found != nil {
		found = found.Properties[path[2]]
	}
	require.NotNil(t, found, "cannot resolve reference %s", s.Ref)
	return found
}

// TestChartSchema compares the schema of the chart's value config with the keys that Parse reads, and their types.
func TestChartSchema(t *testing.T) {
	t.Parallel()
	c := readSchema(t)
	config := c.Properties["config"]
	assert.ElementsMatch(t, []any{"object", "string", "null"}, config.Type)
	c.assertFields(t, "config", reflect.TypeFor[Document](), config)
}

// assertType compares a schema with the Go type of its decoded values.
func (c chartSchema) assertType(t *testing.T, path string, want reflect.Type, s *schema) {
	t.Helper()
	s = c.resolve(t, s)
	switch {
	case want == reflect.TypeFor[Size]():
		assert.ElementsMatch(t, []any{"string", "integer"}, s.Type, path)
		return
	case want.Kind() == reflect.Pointer:
		c.assertType(t, path, want.Elem(), s)
		return
	}
	types := map[reflect.Kind]string{
		reflect.Bool: "boolean", reflect.String: "string", reflect.Int32: "integer", reflect.Int64: "integer", reflect.Slice: "array",
		reflect.Map: "object", reflect.Struct: "object",
	}
	assert.Equal(t, types[want.Kind()], s.Type, path)
	switch want.Kind() {
	case reflect.Slice:
		require.NotNil(t, s.Items, "%s has no items", path)
		c.assertType(t, path+"[]", want.Elem(), s.Items)
	case reflect.Map:
		var values schema
		require.NoError(t, json.Unmarshal(s.AdditionalProperties, &values), "additionalProperties of %s", path)
		c.assertType(t, path+".*", want.Elem(), &values)
	case reflect.Struct:
		c.assertFields(t, path, want, s)
	}
}

// assertFields compares the properties of a schema with the fields of a struct. A key that the schema does not know is an error
// for helm, and a key that Parse does not know has no effect.
func (c chartSchema) assertFields(t *testing.T, path string, want reflect.Type, s *schema) {
	t.Helper()
	assert.JSONEq(t, "false", string(s.AdditionalProperties), "additionalProperties of %s", path)
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(want) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			fields[name] = f.Type
		}
	}
	for name, field := range fields {
		if name == removedKey { // TestParseRefuses checks that Parse refuses it
			delete(fields, name)
			continue
		}
		if assert.Contains(t, keys(s.Properties), name,
			"add %s to definitions.settings of charts/ingress-reconciler/values.schema.json, and a reference to it to %s", name, path) {
			c.assertType(t, path+"."+name, field, s.Properties[name])
		}
	}
	for name := range s.Properties {
		assert.Contains(t, keys(fields), name, "%s.%s of charts/ingress-reconciler/values.schema.json has no effect", path, name)
	}
}

func keys[V any](m map[string]V) []string {
	var all []string
	for key := range m {
		all = append(all, key)
	}
	return all
}

// TestExamplesOfTheChartSchema parses the examples of every key, at the top level and in an override.
func TestExamplesOfTheChartSchema(t *testing.T) {
	t.Parallel()
	c := readSchema(t)
	config := c.Properties["config"]
	inOverride := c.resolve(t, config.Properties["overrides"].Items).Properties
	for name, ref := range config.Properties {
		s := c.resolve(t, ref)
		assert.NotEmpty(t, s.Description, name)
		if name == "overrides" {
			continue
		}
		require.NotEmpty(t, s.Examples, "%s has no examples", name)
		for _, example := range s.Examples {
			assertParses(t, map[string]any{name: example})
			if inOverride[name] != nil {
				assertParses(t, map[string]any{"overrides": []any{map[string]any{name: example}}})
			}
		}
	}
}

func assertParses(t *testing.T, document map[string]any) {
	t.Helper()
	text, err := json.Marshal(document)
	require.NoError(t, err)
	_, err = Parse(text)
	require.NoError(t, err, string(text))
}

// TestPageHasEveryKey searches for each key of the schema in the tables of the page.
func TestPageHasEveryKey(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/services/ingress-reconciler-configuration.md")
	require.NoError(t, err)
	for name := range readSchema(t).Properties["config"].Properties {
		if name != "enableGatewayApi" { // KServe's spelling of enableGatewayAPI
			assert.Regexp(t, "(?m)^\\|[^|]*`"+name+"`[^|]*\\|", string(page), "the page has no row for this key")
		}
	}
}

// TestEnumsOfTheChartSchema parses each value of an enumeration, and a value that is not in it.
func TestEnumsOfTheChartSchema(t *testing.T) {
	t.Parallel()
	c := readSchema(t)
	picker := func(value string) map[string]any {
		return map[string]any{"inferencePool": map[string]any{"endpointPickerRef": map[string]any{"name": "picker", "failureMode": value}}}
	}
	settings := c.Definitions["settings"].Properties
	for _, tt := range []struct {
		name string
		enum *schema
		give func(value string) map[string]any
	}{
		{"strategy", settings["strategy"], func(value string) map[string]any { return map[string]any{"strategy": value} }},
		{"urlScheme", settings["urlScheme"], func(value string) map[string]any { return map[string]any{"urlScheme": value} }},
		{"failureMode", settings["inferencePool"].Properties["endpointPickerRef"].Properties["failureMode"], picker},
		{"type", settings["fallbackService"].Properties["type"], func(value string) map[string]any {
			return map[string]any{"fallbackService": map[string]any{"enabled": true, "type": value}}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, tt.enum.Enum)
			for _, value := range tt.enum.Enum {
				assertParses(t, tt.give(value))
			}
			text, err := json.Marshal(tt.give("Other"))
			require.NoError(t, err)
			_, err = Parse(text)
			assert.Error(t, err, "Parse accepts a value that is not in the schema")
		})
	}
}
