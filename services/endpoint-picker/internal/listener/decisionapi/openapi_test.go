package decisionapi

import (
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// schema is the used part of a schema in OpenAPI.
type schema struct {
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
}

// fieldsOf returns the names of the fields of a struct in JSON, sorted.
func fieldsOf(v any) (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestOpenAPI compares the document with the program: the fields of answers, and those that calls may have.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../openapi.yaml")
	require.NoError(t, err)
	var document struct {
		Paths      map[string]any `json:"paths"`
		Components struct {
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	require.NoError(t, yaml.Unmarshal(text, &document))
	schemas := document.Components.Schemas
	assert.Equal(t, []string{PathOutcome, PathPick}, slices.Sorted(maps.Keys(document.Paths)))
	names := func(s schema) []string { return slices.Sorted(maps.Keys(s.Properties)) }
	assert.Equal(t, fieldsOf(Answer{}), names(schemas["Answer"]))
	assert.Equal(t, fieldsOf(Endpoint{}), names(*schemas["Answer"].Properties["endpoints"].Items))
	assert.Equal(t, fieldsOf(errorObject{}), names(schemas["Error"].Properties["error"]))
	r := newRig(t)
	for path, s := range map[string]schema{PathPick: schemas["Pick"], PathOutcome: schemas["Outcome"]} {
		for name := range s.Properties {
			status, answer := r.call(path, `{"`+name+`":true}`) // of the wrong type, or missing others
			if status == http.StatusOK {
				continue
			}
			_, message := wrongOf(t, answer)
			assert.NotContains(t, message, "unknown", name)
		}
	}
	assert.ElementsMatch(t, fieldNames(pickFields), names(schemas["Pick"]))
	assert.ElementsMatch(t, fieldNames(conversationFields), names(schemas["Pick"].Properties["conversation"]))
	assert.ElementsMatch(t, fieldNames(outcomeFields), names(schemas["Outcome"]))
	for _, query := range pickParameters {
		_, answer := r.call(PathPick+"?"+query+"=%20", "{}")
		_, message := wrongOf(t, answer)
		assert.NotContains(t, message, "unknown parameter", query)
	}
}
