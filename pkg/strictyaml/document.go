// Package strictyaml reads YAML that people write, into structs with yaml tags or, as those of Kubernetes, json tags.
//
// It is strict: fields that a struct does not have, duplicate fields and values of another type are problems. A Document
// collects all problems of a text, each with its line, its path and a hint, so that one look at the text fixes them all.
// Null and missing fields leave the struct unchanged: it contains the defaults.
//
// A struct may have fields of these types: string, bool, int, int32, int64, float64, time.Duration, encoding.TextUnmarshaler, Raw, Scalar,
// and pointers, slices, maps and structs of them. The fields of an embedded struct belong to the outer one.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Options are the limits of a text.
type Options struct {
	MaxBytes int
	// Aliases allows anchors and aliases. Without it they are problems.
	Aliases bool
	// Empty is what to do instead of giving an empty text. If it is not set, an empty text is a mapping without fields.
	Empty string
	// Lenient accepts what sigs.k8s.io/yaml accepts, for texts that were written for it: names of fields in any case, booleans such as Yes
	// and Off, merge keys, and more documents, which are ignored with a warning.
	Lenient bool
	// UnknownField receives each unknown field. Without it, they are problems.
	UnknownField func(name string, p Problem)
	// PlainStrings reads numbers and booleans without quotes as strings where the struct has a string: 2024 can be a name.
	PlainStrings bool
}

// A Document is a parsed text with the problems found in it.
type Document struct {
	options  Options
	root     *yaml.Node
	problems []Problem
	invalid  map[string]bool // paths with problems
	warnings []Problem
	places   map[string]place
	values   int // decoded so far
}

// place is the position of a field in the text, from 1.
type place struct{ line, column int }

// Raw is a value to be decoded later.
type Raw struct{ node *yaml.Node }

// IsSet reports whether the text has the value.
func (r Raw) IsSet() bool { return r.node != nil }

// IsEmpty reports whether the value is missing, null, or a list or mapping without content.
func (r Raw) IsEmpty() bool {
	return r.node == nil || r.node.ShortTag() == nullTag || r.node.Kind != yaml.ScalarNode && len(r.node.Content) == 0
}

// Text returns the value if it is a string.
func (r Raw) Text() (text string, ok bool) {
	if r.node == nil || r.node.ShortTag() != stringTag {
		return "", false
	}
	return r.node.Value, true
}

// Parse parses a text that consists of one document. Its error is of type TextError.
func Parse(text []byte, o Options) (*Document, error) {
	if len(text) > o.MaxBytes {
		return nil, TextError{{Message: fmt.Sprintf("it has %d bytes: the maximum is %d", len(text), o.MaxBytes)}}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, more yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF) && o.Empty == "":
		document.Content = []*yaml.Node{{Kind: yaml.MappingNode, Tag: "!!map"}}
	case errors.Is(err, io.EOF):
		return nil, TextError{{Message: "it is empty: " + o.Empty}}
	case err != nil:
		return nil, TextError{syntaxProblem(err)}
	}
	d := &Document{options: o, root: document.Content[0], places: map[string]place{}, invalid: map[string]bool{}}
	switch err := decoder.Decode(&more); {
	case errors.Is(err, io.EOF):
	case o.Lenient:
		d.Warnf("", "there is more than one document: only the first one is read")
	case err == nil:
		return nil, TextError{{Line: more.Line, Column: more.Column, Message: "there is more than one document: keep one"}}
	default:
		return nil, TextError{syntaxProblem(err)}
	}
	if !o.Aliases {
		d.refuseAliases(&document)
	}
	return d, d.AllProblems()
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

// FieldOf returns the value of a field of the whole text, without decoding it; of the whole text, if the field is empty.
func (d *Document) FieldOf(field string) Raw {
	if field == "" {
		return Raw{d.root}
	}
	var value Raw
	for i := 0; d.root.Kind == yaml.MappingNode && i+1 < len(d.root.Content); i += 2 {
		if d.root.Content[i].Value == field {
			value = Raw{resolveAlias(d.root.Content[i+1])}
		}
	}
	return value
}

// FindText returns the path of the first scalar that matches, other than the whole text, and records its place.
func (d *Document) FindText(matches func(string) bool) (path string, ok bool) {
	return d.findText("", d.root, matches)
}

func (d *Document) findText(path string, n *yaml.Node, matches func(string) bool) (string, bool) {
	for i, child := range n.Content {
		at := Indexed(path, i)
		if n.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue // a key
			}
			at = strings.TrimPrefix(path+"."+n.Content[i-1].Value, ".")
		}
		if child.Kind == yaml.ScalarNode && matches(child.Value) {
			d.places[at] = place{child.Line, child.Column}
			return at, true
		}
		if found, ok := d.findText(at, child, matches); ok {
			return found, true
		}
	}
	return "", false
}

// refuseAliases records anchors and aliases as problems: they could make a small text large.
func (d *Document) refuseAliases(n *yaml.Node) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		d.problems = append(d.problems, Problem{Line: n.Line, Column: n.Column, Message: "anchors and aliases are not supported: write the value out"})
	}
	for _, child := range n.Content {
		d.refuseAliases(child)
	}
}

// AllProblems returns all problems in the order of their lines, as an error of type TextError, or nil.
func (d *Document) AllProblems() error {
	if len(d.problems) == 0 {
		return nil
	}
	return TextError(sortByLine(d.problems))
}

// OK reports whether no problem was found so far.
func (d *Document) OK() bool { return len(d.problems) == 0 }

// Warnings returns the warnings in the order of their lines.
func (d *Document) Warnings() []Problem { return sortByLine(d.warnings) }

// HasField reports whether the text has a field that was decoded.
func (d *Document) HasField(path string) bool { return d.places[path].line > 0 }

// IsInvalid reports whether the field at a path has a problem.
func (d *Document) IsInvalid(path string) bool { return d.invalid[path] }

// Errorf records a problem of the field at a path. Its line is that of the field or of its nearest parent in the text.
func (d *Document) Errorf(path, format string, args ...any) {
	if d.invalid != nil {
		d.invalid[path] = true
	}
	d.problems = append(d.problems, d.newProblem(path, fmt.Sprintf(format, args...)))
}

// Warnf records a warning.
func (d *Document) Warnf(path, format string, args ...any) {
	d.warnings = append(d.warnings, d.newProblem(path, fmt.Sprintf(format, args...)))
}

func (d *Document) newProblem(path, message string) Problem {
	at, parent := d.places[path], path
	for at.line == 0 && parent != "" {
		parent = parent[:max(strings.LastIndexAny(parent, ".["), 0)]
		at = d.places[parent]
	}
	return Problem{Line: at.line, Column: at.column, Path: path, Message: message}
}

// Checker returns a Checker for the fields of the mapping at a path.
func (d *Document) Checker(path string) *Checker { return &Checker{document: d, path: path} }
