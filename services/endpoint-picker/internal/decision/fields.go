package decision

import (
	"math"
	"strconv"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
)

// fields reads the fields of a JSON object. After the first problem all methods do nothing.
type fields struct {
	jsonscan.Scanner

	problem *Problem
}

// readObject reads an object. It calls f for each field whose value is not null; f must read the value, or return false for an
// unknown field. known are the names of all fields.
func readObject(text []byte, known []string, f func(r *fields, name string) bool) *Problem {
	r := &fields{}
	r.Reset(text)
	if r.Next() == jsonscan.Object {
		r.members("", known, f)
	} else if r.Err() == nil {
		return wrong("", "the body is not a JSON object")
	}
	if r.problem == nil {
		if err := r.End(); err != nil {
			return wrong("", "the body is not JSON: %v", err)
		}
	}
	return r.problem
}

// members reads the next value, which must be an object, as readObject does. Names in problems begin with a prefix.
func (r *fields) members(prefix string, known []string, f func(r *fields, name string) bool) {
	if !r.expect(prefix, jsonscan.Object, "an object") || !r.Open() {
		return
	}
	for key, ok := r.Key(); ok && r.problem == nil; key, ok = r.Key() {
		name := string(key[:min(len(key), maxName)])
		if r.Next() == jsonscan.Null {
			r.Value()
		} else if !f(r, name) {
			r.fail(wrong(join(prefix, name), "unknown field: %s", useOneOf(known)))
		}
	}
}

func useOneOf(known []string) string { return "use one of " + strings.Join(known, ", ") }

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

func (r *fields) fail(p *Problem) {
	if r.problem == nil {
		r.problem = p
	}
}

// expect reports whether the next value has a kind. Otherwise it is a problem of the field.
func (r *fields) expect(field string, kind jsonscan.Kind, name string) bool {
	if r.problem != nil {
		return false
	}
	found := r.Next()
	if r.Err() == nil && found != kind {
		r.fail(wrong(field, "it is not %s", name))
	}
	return r.Err() == nil && found == kind
}

// raw reads a string of at most a number of bytes. The result may be a part of the text.
func (r *fields) raw(field string, most int) []byte {
	if !r.expect(field, jsonscan.String, "a string") {
		return nil
	}
	span, escaped := r.String()
	text := r.Text(span)
	if escaped && len(text) <= jsonscan.MaxEscape*most {
		text = jsonscan.Unescape(make([]byte, 0, len(text)), text)
	}
	if len(text) > most {
		r.fail(wrong(field, "it is longer than %d bytes", most))
		return nil
	}
	return text
}

func (r *fields) text(field string, most int) string { return string(r.raw(field, most)) }

func (r *fields) flag(field string) bool {
	return r.expect(field, jsonscan.Bool, "true or false") && string(r.Text(r.Value())) == "true"
}

// integer reads a number from 0 to a maximum.
func (r *fields) integer(field string, most int) int {
	if !r.expect(field, jsonscan.Number, "a number") {
		return 0
	}
	n, err := strconv.ParseUint(string(r.Text(r.Value())), 10, 63)
	if r.Err() == nil && (err != nil || n > uint64(most)) {
		r.fail(wrong(field, "it is not a whole number from 0 to %d", most))
		return 0
	}
	return int(n)
}

// seconds reads a number of seconds, 0 or more.
func (r *fields) seconds(field string) float64 {
	if !r.expect(field, jsonscan.Number, "a number") {
		return 0
	}
	n, err := strconv.ParseFloat(string(r.Text(r.Value())), 64)
	if r.Err() == nil && (err != nil || n < 0 || n > math.MaxInt32) {
		r.fail(wrong(field, "it is not a number from 0 to %d", math.MaxInt32))
		return 0
	}
	return n
}
