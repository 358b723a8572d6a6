package decisionapi

import (
	"math"
	"strconv"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/api"
)

// fieldReader reads the fields of a JSON object. After the first problem all methods do nothing.
type fieldReader struct {
	api.Scanner

	problem *Problem
}

// readObject reads an object. It calls f for each field whose value is not null; f must read the value, or return false for an
// unknown field. known are the names of all fields.
func readObject(text []byte, known []string, f func(r *fieldReader, name string) bool) *Problem {
	r := &fieldReader{}
	r.Reset(text)
	if r.NextKind() == api.Object {
		r.readMembers("", known, f)
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

// readMembers reads the next value, which must be an object, as readObject does. Names in problems begin with a prefix.
func (r *fieldReader) readMembers(prefix string, known []string, f func(r *fieldReader, name string) bool) {
	if !r.expectKind(prefix, api.Object, "an object") || !r.EnterValue() {
		return
	}
	for key, ok := r.NextKey(); ok && r.problem == nil; key, ok = r.NextKey() {
		name := string(key[:min(len(key), maxName)])
		if r.NextKind() == api.Null {
			r.SkipValue()
		} else if !f(r, name) {
			r.setProblem(fieldProblem(joinPath(prefix, name), "unknown field: %s", useOneOf(known)))
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
