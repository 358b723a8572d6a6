package strictyaml

import (
	"cmp"
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	// maxShown limits values in messages.
	maxShown = 100
	// maxValues limits the decoded values, and so the memory, to some 100 MiB. A text of a mebibyte without aliases has fewer,
	// because each takes at least two bytes. With aliases it could have as many as the square of its length.
	maxValues = 1 << 19

	nullTag   = "!!null"
	boolTag   = "!!bool"
	intTag    = "!!int"
	floatTag  = "!!float"
	mergeTag  = "!!merge"
	stringTag = "!!str"
)

// oldBooleans are the booleans of YAML 1.1 besides true and false. The parser still converts them.
var oldBooleans = []string{"y", "Y", "yes", "on", "n", "N", "no", "off"}

var (
	rawType      = reflect.TypeFor[Raw]()
	scalarType   = reflect.TypeFor[Scalar]()
	durationType = reflect.TypeFor[time.Duration]()
)

// Decode sets the value that v points to from the whole text.
func (d *Document) Decode(v any) { d.decodeNode("", d.root, reflect.ValueOf(v).Elem()) }

// DecodeAt sets the value that v points to from the part of the text at a path.
func (d *Document) DecodeAt(path string, r Raw, v any) {
	if r.node != nil {
		d.decodeNode(path, r.node, reflect.ValueOf(v).Elem())
	}
}

// DecodeFields sets fields of the struct that v points to from values of the mapping at a path, by their names.
func (d *Document) DecodeFields(path string, values map[string]Raw, v any) {
	s := reflect.ValueOf(v).Elem()
	for _, f := range Fields(s.Type()) {
		if r := values[f.Name]; r.node != nil {
			d.decodeNode(path+"."+f.Name, r.node, s.FieldByIndex(f.Index))
		}
	}
}

func (d *Document) decodeNode(path string, n *yaml.Node, v reflect.Value) {
	d.places[path] = place{n.Line, n.Column}
	if n = resolveAlias(n); n.ShortTag() == nullTag {
		return
	}
	if d.values++; d.values == maxValues {
		d.Errorf("", "it has more than %d values: write fewer, or use fewer aliases", maxValues)
	}
	if d.values >= maxValues {
		return
	}
	switch u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); {
	case ok:
		d.decodeText(path, n, u)
	case v.Type() == rawType:
		v.Set(reflect.ValueOf(Raw{n}))
	case v.Type() == scalarType:
		d.decodeAnyScalar(path, n, v)
	case v.Type() == durationType:
		d.decodeDuration(path, n, v)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decodeNode(path, n, v.Elem())
	case v.Kind() == reflect.Struct:
		d.decodeStruct(path, n, v)
	case v.Kind() == reflect.Map:
		d.decodeMap(path, n, v)
	case v.Kind() == reflect.Slice:
		d.decodeList(path, n, v)
	default:
		d.decodeScalar(path, n, v)
	}
}

// resolveAlias returns the value that an alias refers to. An alias that contains itself ends at the depth of the struct's type.
func resolveAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// decodeText decodes a value with its own text format.
func (d *Document) decodeText(path string, n *yaml.Node, v encoding.TextUnmarshaler) {
	if n.Kind != yaml.ScalarNode {
		d.Errorf(path, "%s is not a string", describeNode(n))
		return
	}
	if err := v.UnmarshalText([]byte(n.Value)); err != nil {
		d.Errorf(path, "%v", err)
	}
}

func (d *Document) decodeDuration(path string, n *yaml.Node, v reflect.Value) {
	parsed, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.Errorf(path, "%s is not a duration: give one such as 200ms or 1m30s", describeNode(n))
		return
	}
	v.SetInt(int64(parsed))
}

func (d *Document) decodeStruct(path string, n *yaml.Node, v reflect.Value) {
	fields := Fields(v.Type())
	d.eachField(path, n, func(at, name string, value *yaml.Node) {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		if i < 0 && d.options.Lenient {
			i = slices.IndexFunc(fields, func(f Field) bool { return strings.EqualFold(f.Name, name) })
		}
		switch unknown := "unknown field: " + Hint(name, fieldNames(fields)); {
		case i < 0 && d.options.UnknownField != nil:
			d.options.UnknownField(name, d.newProblem(at, unknown))
			return
		case i < 0:
			d.Errorf(at, "%s", unknown)
			return
		}
		d.decodeNode(at, value, v.FieldByIndex(fields[i].Index))
	})
}

// A Field is a field of a struct that a text can set.
type Field struct {
	Name  string // in the text
	Index []int  // in the struct, for reflect.Value.FieldByIndex
	Type  reflect.Type
}

// Fields returns the fields of a struct that a text can set: the exported ones with a yaml tag, or else a json tag, other than "-".
func Fields(t reflect.Type) []Field {
	var fields []Field
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(cmp.Or(f.Tag.Get("yaml"), f.Tag.Get("json")), ",")
		if f.IsExported() && !f.Anonymous && name != "" && name != "-" {
			fields = append(fields, Field{Name: name, Index: f.Index, Type: f.Type})
		}
	}
	return fields
}

func fieldNames(fields []Field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

func (d *Document) decodeMap(path string, n *yaml.Node, v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	d.eachField(path, n, func(at, name string, value *yaml.Node) {
		element := reflect.New(v.Type().Elem()).Elem()
		d.decodeNode(at, value, element)
		v.SetMapIndex(reflect.ValueOf(name), element)
	})
}

// eachField calls f for each field of a mapping.
func (d *Document) eachField(path string, n *yaml.Node, f func(at, name string, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.Errorf(path, "%s has no fields", describeNode(n))
		return
	}
	first, merges := map[string]int{}, false
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolveAlias(n.Content[i]), n.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		switch line, twice := first[key.Value]; {
		case key.Kind != yaml.ScalarNode || key.ShortTag() == nullTag:
			d.places[path] = place{key.Line, key.Column}
			d.Errorf(path, "the name of a field must be a string")
		case key.ShortTag() == mergeTag && d.options.Lenient:
			merges = true
		case key.ShortTag() == mergeTag:
			d.places[at] = place{key.Line, key.Column}
			d.Errorf(at, "merge keys are not supported: write the fields out")
		case twice:
			d.problems = append(d.problems, Problem{
				Line: key.Line, Column: key.Column, Path: at, Message: fmt.Sprintf("it is listed twice, first in line %d: keep one", line),
			})
		default:
			first[key.Value] = key.Line
			d.places[at] = place{key.Line, key.Column}
			f(at, key.Value, value)
		}
	}
	if merges {
		d.eachMergedField(path, n, first, f)
	}
}

func (d *Document) decodeList(path string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.Errorf(path, "%s is not a list", describeNode(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		d.decodeNode(Indexed(path, i), item, v.Index(i))
	}
}

func (d *Document) decodeScalar(path string, n *yaml.Node, v reflect.Value) {
	if d.options.Lenient && v.Kind() == reflect.Bool {
		n = relaxBoolean(n)
	}
	tag, wanted := n.ShortTag(), "not a number"
	ok := slices.Contains([]string{intTag, floatTag}, tag)
	switch v.Kind() {
	case reflect.String:
		ok, wanted = d.isString(n), "not a string: put it in quotes if it should be"
	case reflect.Bool:
		ok, wanted = isBoolean(n), "neither true nor false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		ok, wanted = isWhole(n), "not a whole number"
	}
	if !ok {
		d.Errorf(path, "%s is %s", describeNode(n), wanted)
		return
	}
	read := reflect.New(v.Type()).Elem()
	if n.Decode(read.Addr().Interface()) != nil || read.CanFloat() && (math.IsNaN(read.Float()) || math.IsInf(read.Float(), 0)) {
		d.Errorf(path, "%s is out of range", describeNode(n))
		return
	}
	v.Set(read)
}

// isString reports whether a value is a string, or one that the options allow to be one.
func (d *Document) isString(n *yaml.Node) bool {
	tag := n.ShortTag()
	return tag == stringTag || tag == "!!timestamp" || d.options.PlainStrings && n.Kind == yaml.ScalarNode
}

// isBoolean reports whether a value is a boolean of YAML 1.2 or 1.1.
func isBoolean(n *yaml.Node) bool {
	tag := n.ShortTag()
	return tag == boolTag || tag == stringTag && n.Style == 0 && slices.Contains(oldBooleans, n.Value)
}

// isWhole reports whether a scalar is a whole number, perhaps with an exponent, such as 3e6.
func isWhole(n *yaml.Node) bool {
	f, err := strconv.ParseFloat(n.Value, 64)
	return n.ShortTag() == intTag || n.ShortTag() == floatTag && err == nil && f == math.Trunc(f)
}

// describeNode formats a value for a message.
func describeNode(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default:
		return strconv.Quote(n.Value[:min(len(n.Value), maxShown)])
	}
}

// Indexed returns the path of an element of a list.
func Indexed(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
