package family_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/helm"
)

// withoutEffect are values that are documented to have none, as they are for parent charts, and one whose schema allows its default
// alone.
var withoutEffect = []string{"global", "enabled", "pool.group"}

// TestEveryValueHasAnEffect checks that every value of the schema is set by some file in ci, and that the chart renders something
// else, or refuses the file, without it.
func TestEveryValueHasAnEffect(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c chart) {
		files := c.ciValues(t)
		rendered := map[string]string{}
		for name, values := range files {
			out, err := helm.Run(values, "template", "release", c.path)
			require.NoError(t, err)
			rendered[name] = out
		}
		for _, path := range c.structure(t).leaves() {
			t.Run(strings.Join(path, "."), func(t *testing.T) {
				t.Parallel()
				var set, effect bool
				for name, values := range files {
					rest, had := without(values, path)
					if !had || effect {
						continue
					}
					set = true
					out, err := helm.Run(rest, "template", "release", c.path)
					effect = err != nil || out != rendered[name]
				}
				assert.True(t, set, "no file in ci sets it")
				assert.Equal(t, !slices.Contains(withoutEffect, strings.Join(path, ".")), effect, "the chart renders the same without it")
			})
		}
	})
}

// without returns values without one of them, and whether it was there.
func without(values helm.Values, path []string) (helm.Values, bool) {
	value, found := values[path[0]]
	if !found {
		return values, false
	}
	rest := maps.Clone(values)
	if len(path) == 1 {
		delete(rest, path[0])
		return rest, true
	}
	below, ok := value.(helm.Values)
	if !ok {
		return values, false
	}
	rest[path[0]], found = without(below, path[1:])
	return rest, found
}

// TestSchemaHasTheValues checks that the schema and values.yaml have the same values.
func TestSchemaHasTheValues(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c chart) {
		assertSameKeys(t, "", c.structure(t), c.defaults(t))
	})
}

func assertSameKeys(t *testing.T, path string, s *structure, values helm.Values) {
	t.Helper()
	assert.ElementsMatch(t, slices.Collect(maps.Keys(s.Properties)), slices.Collect(maps.Keys(values)), "keys below %q", path)
	for key, below := range s.Properties {
		if object, ok := values[key].(helm.Values); ok && len(below.Properties) > 0 {
			assertSameKeys(t, path+key+".", below, object)
		}
	}
}

// TestEveryValueIsDescribed checks that the README has a row with a description for every value of values.yaml.
func TestEveryValueIsDescribed(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c chart) {
		raw, err := os.ReadFile(filepath.Join(c.path, "README.md"))
		require.NoError(t, err)
		row := regexp.MustCompile(`(?m)^\| (\S+) \| [^|]+ \| .* \| (.*) \|$`)
		described := map[string]string{}
		for _, match := range row.FindAllStringSubmatch(string(raw), -1) {
			described[match[1]] = match[2]
		}
		for _, path := range c.structure(t).leaves() {
			var text string
			for i := range path { // strategy has one description for its keys
				text += described[strings.Join(path[:i+1], ".")]
			}
			assert.NotEmpty(t, text, strings.Join(path, "."))
		}
	})
}

// TestSharedValues checks that values that several charts have are in the same order, and follow the same schema.
func TestSharedValues(t *testing.T) {
	t.Parallel()
	topLevel := regexp.MustCompile(`(?m)^([a-zA-Z]+):`)
	keys, schemas := map[string][]string{}, map[string]map[string]any{}
	for _, c := range charts(t) {
		raw, err := os.ReadFile(filepath.Join(c.path, "values.yaml"))
		require.NoError(t, err)
		for _, match := range topLevel.FindAllStringSubmatch(string(raw), -1) {
			keys[c.name] = append(keys[c.name], match[1])
		}
		var s struct{ Properties map[string]any }
		c.readSchema(t, &s)
		schemas[c.name] = s.Properties
	}
	own := []string{"config", "configMap", "ports", "service", "rbac", "networkPolicy", "serviceMonitor"} // that each program needs in its way
	const first = "endpoint-picker"                                                                       // the chart that others are compared with
	for name := range keys {
		shared := common(keys[name], keys[first])
		require.Contains(t, shared, "image")
		assert.Equal(t, common(keys[first], keys[name]), shared, "order in values.yaml of %s", name)
		for _, key := range shared {
			if !slices.Contains(own, key) {
				assert.Equal(t, schemas[first][key], schemas[name][key], "%s of %s", key, name)
			}
		}
	}
}

// common returns the members of one list that another one has, too.
func common(of, other []string) []string {
	return slices.DeleteFunc(slices.Clone(of), func(key string) bool { return !slices.Contains(other, key) })
}
