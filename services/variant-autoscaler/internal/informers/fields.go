package informers

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// MaxText is the largest length of a text, in bytes. Names of objects have at most 253; names of models at the usual hubs, 193.
	MaxText = 256
	// maxLabels is the largest number of labels of a pod template, or of a selector. Usual templates have ten.
	maxLabels = 100
	// maxWhole is the largest whole number that every JSON parser keeps.
	maxWhole = 1 << 53
)

// Number is a whole number that may be absent. It is comparable.
type Number struct {
	Value int64
	Set   bool
}

// fields reads the fields of an object, and keeps the first reason why one of them could not be read.
type fields struct {
	object  map[string]any
	prefix  string // of the names of fields in reasons
	invalid string
}

func (f *fields) setInvalid(name string, reason string) {
	f.invalid = cmp.Or(f.invalid, f.prefix+name+" "+reason)
}

// value returns the value of a field, nil if it is absent.
func (f *fields) value(path ...string) any {
	var value any = f.object
	for i, key := range path {
		object, ok := value.(map[string]any)
		if !ok {
			if value != nil {
				f.setInvalid(strings.Join(path[:i], "."), "is not an object")
			}
			return nil
		}
		value = object[key]
	}
	return value
}

// listAt returns the elements of a list.
func (f *fields) listAt(path ...string) []any {
	list, _ := f.value(path...).([]any)
	return list
}

// itemsAt returns the objects in a list, an empty one for each element that is none.
func (f *fields) itemsAt(path ...string) iter.Seq[*fields] {
	return func(yield func(*fields) bool) {
		for _, element := range f.listAt(path...) {
			if !yield(itemOf(element)) {
				return
			}
		}
	}
}

// conditionAt returns the condition of a type, an empty object if there is none.
func (f *fields) conditionAt(kind string) *fields {
	for c := range f.itemsAt("status", "conditions") {
		if c.object["type"] == kind {
			return c
		}
	}
	return &fields{}
}

func itemOf(element any) *fields {
	object, _ := element.(map[string]any)
	return &fields{object: object}
}

// flagAt returns a boolean.
func (f *fields) flagAt(path ...string) bool {
	flag, _ := f.value(path...).(bool)
	return flag
}

// textAt returns a text of at most MaxText bytes.
func (f *fields) textAt(path ...string) string {
	text, ok := f.value(path...).(string)
	if !ok {
		if f.value(path...) != nil {
			f.setInvalid(nameOf(path), "is not a text")
		}
		return ""
	}
	if len(text) > MaxText {
		f.setInvalid(nameOf(path), fmt.Sprintf("has more than %d bytes", MaxText))
	}
	return cutText(text)
}

// cutText returns at most MaxText bytes of a text. The copy does not keep the object in memory.
func cutText(text string) string {
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), MaxText)]), "?")
}

// numberAt returns a whole number.
func (f *fields) numberAt(path ...string) Number {
	switch n := f.value(path...).(type) {
	case nil:
		return Number{}
	case int64:
		return Number{Value: n, Set: true}
	case float64:
		if n == math.Trunc(n) && math.Abs(n) <= maxWhole {
			return Number{Value: int64(n), Set: true}
		}
	}
	f.setInvalid(nameOf(path), "is not a whole number, or too large")
	return Number{}
}

// nameOf returns the name of a field for people.
func nameOf(path []string) string {
	if len(path) == 3 && path[0] == "metadata" {
		return strings.TrimSuffix(path[1], "s") + " " + path[2] // annotation x
	}
	return strings.Join(path, ".")
}

func (f *fields) annotation(key string) string { return f.textAt("metadata", "annotations", key) }

func (f *fields) label(key string) string { return f.textAt("metadata", "labels", key) }

// labelsAt returns a map of at most a number of texts, which all objects share.
func (f *fields) labelsAt(most int, path ...string) map[string]string {
	object, ok := f.value(path...).(map[string]any)
	if !ok || len(object) == 0 {
		return nil
	}
	labels := make(map[string]string, min(len(object), most))
	for _, key := range firstKeys(object, most) {
		if value, ok := object[key].(string); ok {
			labels[internText(key)] = internText(value)
		}
	}
	return labels
}

func newFields(u *unstructured.Unstructured) *fields { return &fields{object: u.Object} }

// firstKeys returns the first n keys in their order.
func firstKeys(m map[string]any, n int) []string {
	keys := slices.Sorted(maps.Keys(m))
	return keys[:min(n, len(keys))]
}
