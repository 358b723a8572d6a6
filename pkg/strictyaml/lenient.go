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
	n = relaxNode(n, reflect.Bool)
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

// relaxNode returns the boolean or the whole number that sigs.k8s.io/yaml reads in a value for a field of a kind.
func relaxNode(n *yaml.Node, kind reflect.Kind) *yaml.Node {
	if n.Kind != yaml.ScalarNode || n.Style != 0 {
		return n
	}
	relaxed := *n
	switch kind {
	case reflect.Bool:
		switch strings.ToLower(n.Value) {
		case "y", "yes", "on":
			relaxed.Tag, relaxed.Value = boolTag, "true"
		case "n", "no", "off":
			relaxed.Tag, relaxed.Value = boolTag, "false"
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		var number float64
		if n.ShortTag() == floatTag && n.Decode(&number) == nil && number == math.Trunc(number) {
			relaxed.Tag, relaxed.Value = intTag, strconv.FormatFloat(number, 'f', -1, 64)
		}
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
