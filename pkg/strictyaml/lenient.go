package strictyaml

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Scalar is the text of a string, a number or a boolean. Numbers are in decimal notation, without an exponent.
type Scalar string

func (d *Document) decodeAnyScalar(path string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.ScalarNode {
		d.Errorf(path, "%s is not a string", describeNode(n))
		return
	}
	n = relaxBoolean(n)
	text := n.Value
	switch n.ShortTag() {
	case intTag:
		var number int64
		if n.Decode(&number) == nil {
			text = strconv.FormatInt(number, 10)
		}
	case floatTag:
		var number float64
		if n.Decode(&number) == nil && !math.IsInf(number, 0) && !math.IsNaN(number) {
			text = strconv.FormatFloat(number, 'f', -1, 64)
		}
	}
	v.SetString(text)
}

// relaxBoolean returns the boolean that sigs.k8s.io/yaml reads in a value.
func relaxBoolean(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.ScalarNode || n.Style != 0 {
		return n
	}
	relaxed := *n
	switch strings.ToLower(n.Value) {
	case "y", "yes", "on":
		relaxed.Tag, relaxed.Value = boolTag, "true"
	case "n", "no", "off":
		relaxed.Tag, relaxed.Value = boolTag, "false"
	}
	return &relaxed
}

// eachMergedField calls f for the fields that the merge keys of a mapping add to its own.
func (d *Document) eachMergedField(path string, n *yaml.Node, own map[string]int, f func(at, name string, value *yaml.Node)) {
	var fields map[string]yaml.Node
	if err := n.Decode(&fields); err != nil { // the parser limits aliases, and refuses those that contain themselves
		d.Errorf(path, "%v", syntaxProblem(err))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if value := fields[name]; own[name] == 0 {
			f(strings.TrimPrefix(path+"."+name, "."), name, &value)
		}
	}
}
