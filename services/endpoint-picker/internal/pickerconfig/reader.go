package pickerconfig

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxText is the maximum size of a configuration: that of a ConfigMap.
const maxText = 1 << 20

// maxShown limits values in messages.
const maxShown = 100

// place is the position of a field.
type place struct{ line, column int }

// reader reads YAML into structs. It refuses fields that the struct does not have, collects all problems and the position of
// each field, and leaves missing or null fields unchanged.
type reader struct {
	problems []Problem
	warnings []Problem
	places   map[string]place
}

// parse returns the only document of a text, or nil after a problem.
func (r *reader) parse(text []byte) *yaml.Node {
	if len(text) > maxText {
		r.problems = append(r.problems, Problem{Message: fmt.Sprintf("it has %d bytes: the maximum is %d", len(text), maxText)})
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, more yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		r.problems = append(r.problems, Problem{Message: "it is empty: for the defaults, configure no text"})
		return nil
	case err != nil:
		r.problems = append(r.problems, syntaxProblem(err))
		return nil
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		r.problems = append(r.problems, Problem{Line: more.Line, Column: more.Column, Message: "there is more than one document: keep one"})
		return nil
	}
	if r.findAliases(&document); len(r.problems) > 0 {
		return nil
	}
	return document.Content[0]
}

// syntaxProblem extracts the line from an error of the parser.
func syntaxProblem(err error) Problem {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if number, what, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(number); err == nil {
				return Problem{Line: line, Column: 1, Message: "it is not YAML: " + what}
			}
		}
	}
	return Problem{Message: "it is not YAML: " + message}
}

// findAliases refuses aliases, which could make a small text large.
func (r *reader) findAliases(n *yaml.Node) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		r.problems = append(r.problems, Problem{Line: n.Line, Column: n.Column, Message: "anchors and aliases are not supported: write the value out"})
	}
	for _, child := range n.Content {
		r.findAliases(child)
	}
}

// errorf records a problem of the field at a path, or of its nearest existing parent.
func (r *reader) errorf(path, format string, args ...any) {
	r.problems = append(r.problems, r.problem(path, fmt.Sprintf(format, args...)))
}

// warnf records a warning.
func (r *reader) warnf(path, format string, args ...any) {
	r.warnings = append(r.warnings, r.problem(path, fmt.Sprintf(format, args...)))
}

func (r *reader) problem(path, message string) Problem {
	at, holder := r.places[path], path
	for at.line == 0 && holder != "" {
		holder = holder[:max(strings.LastIndexAny(holder, ".["), 0)]
		at = r.places[holder]
	}
	return Problem{Line: at.line, Column: at.column, Path: path, Message: message}
}

// has reports whether a field was set.
func (r *reader) has(path string) bool { return r.places[path].line > 0 }

// raw is a value for a later read.
type raw struct{ node *yaml.Node }

// MarshalYAML writes the value unchanged.
func (v raw) MarshalYAML() (any, error) { return v.node, nil }

// IsZero tells the encoder whether the value is missing.
func (v raw) IsZero() bool { return v.node == nil }

var rawType = reflect.TypeFor[raw]()

// read sets the value that v points to.
func (r *reader) read(path string, n *yaml.Node, v any) { r.value(path, n, reflect.ValueOf(v).Elem()) }

func (r *reader) value(path string, n *yaml.Node, v reflect.Value) {
	r.places[path] = place{n.Line, n.Column}
	if n.ShortTag() == "!!null" {
		return
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		r.text(path, n, u)
		return
	}
	switch {
	case v.Type() == rawType:
		v.Set(reflect.ValueOf(raw{n}))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		r.value(path, n, v.Elem())
	case v.Kind() == reflect.Struct:
		r.structure(path, n, v)
	case v.Kind() == reflect.Map:
		r.labels(path, n, v)
	case v.Kind() == reflect.Slice:
		r.list(path, n, v)
	default:
		r.scalar(path, n, v)
	}
}

// text reads a value with its own text format.
func (r *reader) text(path string, n *yaml.Node, v encoding.TextUnmarshaler) {
	if n.Kind != yaml.ScalarNode {
		r.errorf(path, "%s is not a string", describe(n))
		return
	}
	if err := v.UnmarshalText([]byte(n.Value)); err != nil {
		r.errorf(path, "%v", err)
	}
}

func (r *reader) structure(path string, n *yaml.Node, v reflect.Value) {
	fields := map[string]reflect.Value{}
	var names []string
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		fields[name], names = v.Field(i), append(names, name)
	}
	r.fields(path, n, func(at, name string, value *yaml.Node) {
		if field, ok := fields[name]; ok {
			r.value(at, value, field)
			return
		}
		r.errorf(at, "unknown field: %s", meant(name, names))
	})
}

func (r *reader) labels(path string, n *yaml.Node, v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	r.fields(path, n, func(at, name string, value *yaml.Node) {
		element := reflect.New(v.Type().Elem()).Elem()
		r.value(at, value, element)
		v.SetMapIndex(reflect.ValueOf(name), element)
	})
}

// fields calls f for each field of a mapping.
func (r *reader) fields(path string, n *yaml.Node, f func(at, name string, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.errorf(path, "%s has no fields", describe(n))
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		switch line, twice := first[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			r.places[path] = place{key.Line, key.Column}
			r.errorf(path, "the name of a field must be a string")
		case twice:
			r.problems = append(r.problems, Problem{
				Line: key.Line, Column: key.Column, Path: at, Message: fmt.Sprintf("it is listed twice, first in line %d: keep one", line),
			})
		default:
			first[key.Value] = key.Line
			r.places[at] = place{key.Line, key.Column}
			f(at, key.Value, value)
		}
	}
}

func (r *reader) list(path string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		r.errorf(path, "%s is not a list", describe(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		r.value(fmt.Sprintf("%s[%d]", path, i), item, v.Index(i))
	}
}

func (r *reader) scalar(path string, n *yaml.Node, v reflect.Value) {
	tag, wanted := n.ShortTag(), "not a number"
	ok := tag == "!!int" || tag == "!!float"
	switch v.Kind() {
	case reflect.String:
		ok, wanted = tag == "!!str", "not a string: put it in quotes if it should be"
	case reflect.Bool:
		ok, wanted = tag == "!!bool", "neither true nor false"
	case reflect.Int:
		ok, wanted = tag == "!!int", "no whole number"
	}
	if !ok {
		r.errorf(path, "%s is %s", describe(n), wanted)
		return
	}
	read := reflect.New(v.Type()).Elem()
	if n.Decode(read.Addr().Interface()) != nil || read.CanFloat() && (math.IsNaN(read.Float()) || math.IsInf(read.Float(), 0)) {
		r.errorf(path, "%s is out of range", describe(n))
		return
	}
	v.Set(read)
}

// describe formats a value for a message.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default:
		return strconv.Quote(n.Value[:min(len(n.Value), maxShown)])
	}
}
