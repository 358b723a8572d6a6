package decisionapi

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/api"
)

// fieldReader reads the fields of a JSON object. After the first problem all methods do nothing.
type fieldReader struct {
	api.Scanner

	problem *Problem
}

// A field is a field of an object that is read into a T. Its function reads the value; the path names the field in problems.
type field[T any] struct {
	name string
	read func(r *fieldReader, path string, into *T)
}

// readObject reads a text, which must be an object with known fields.
func readObject[T any](text []byte, known []field[T], into *T) *Problem {
	r := &fieldReader{}
	r.Reset(text)
	if r.NextKind() == api.Object {
		readFields(r, "", known, into)
	} else if r.Err() == nil {
		return fieldProblem("", "the body is not a JSON object")
	}
	if r.problem == nil {
		if err := r.CheckEnd(); err != nil {
			return fieldProblem("", "the body is not JSON: %v", err)
		}
	}
	return r.problem
}

// readFields reads the next value, which must be an object with known fields. Paths begin with a prefix.
func readFields[T any](r *fieldReader, prefix string, known []field[T], into *T) {
	r.readMembers(prefix, func(path, name string) {
		i := slices.IndexFunc(known, func(f field[T]) bool { return f.name == name })
		if i < 0 {
			r.setProblem(fieldProblem(path, "unknown field: %s", useOneOf(fieldNames(known))))
			return
		}
		known[i].read(r, path, into)
	})
}

func fieldNames[T any](known []field[T]) (names []string) {
	for _, f := range known {
		names = append(names, f.name)
	}
	return names
}

// readMembers reads the next value, which must be an object. It calls f for each member whose value is not null; f must read the value.
// Paths begin with a prefix.
func (r *fieldReader) readMembers(prefix string, f func(path, name string)) {
	if !r.expectKind(prefix, api.Object, "an object") || !r.EnterValue() {
		return
	}
	for key, ok := r.NextKey(); ok && r.problem == nil; key, ok = r.NextKey() {
		name := string(key[:min(len(key), maxName)])
		if r.NextKind() == api.Null {
			r.SkipValue()
		} else {
			f(joinPath(prefix, name), name)
		}
	}
}

func useOneOf(known []string) string { return "use one of " + strings.Join(known, ", ") }

func joinPath(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

func (r *fieldReader) setProblem(p *Problem) {
	if r.problem == nil {
		r.problem = p
	}
}

// expectKind reports whether the next value has a kind. Otherwise it is a problem of the field.
func (r *fieldReader) expectKind(field string, kind api.ValueKind, name string) bool {
	if r.problem != nil {
		return false
	}
	found := r.NextKind()
	if r.Err() == nil && found != kind {
		r.setProblem(fieldProblem(field, "it is not %s", name))
	}
	return r.Err() == nil && found == kind
}

// readString reads a string of at most a number of bytes. The result may be a part of the text.
func (r *fieldReader) readString(field string, most int) []byte {
	if !r.expectKind(field, api.String, "a string") {
		return nil
	}
	span, escaped := r.ReadString()
	text := r.TextOf(span)
	if escaped && len(text) <= api.MaxEscape*most {
		text = api.Unescape(make([]byte, 0, len(text)), text)
	}
	if len(text) > most {
		r.setProblem(fieldProblem(field, "it is longer than %d bytes", most))
		return nil
	}
	return text
}

func (r *fieldReader) readText(field string, most int) string {
	return string(r.readString(field, most))
}

func (r *fieldReader) readBool(field string) bool {
	return r.expectKind(field, api.Bool, "true or false") && string(r.TextOf(r.SkipValue())) == "true"
}

// readInteger reads a number from 0 to a maximum.
func (r *fieldReader) readInteger(field string, most int) int {
	if !r.expectKind(field, api.Number, "a number") {
		return 0
	}
	n, err := strconv.ParseUint(string(r.TextOf(r.SkipValue())), 10, 63)
	if r.Err() == nil && (err != nil || n > uint64(most)) {
		r.setProblem(fieldProblem(field, "it is not a whole number from 0 to %d", most))
		return 0
	}
	return int(n)
}

// readSeconds reads a number of seconds, 0 or more.
func (r *fieldReader) readSeconds(field string) float64 {
	if !r.expectKind(field, api.Number, "a number") {
		return 0
	}
	n, err := strconv.ParseFloat(string(r.TextOf(r.SkipValue())), 64)
	if r.Err() == nil && (err != nil || n < 0 || n > math.MaxInt32) {
		r.setProblem(fieldProblem(field, "it is not a number from 0 to %d", math.MaxInt32))
		return 0
	}
	return n
}
