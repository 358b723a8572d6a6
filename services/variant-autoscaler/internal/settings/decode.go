package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	// maxWarnings is the most warnings about one ConfigMap; the next one counts the others. People repair one after the other.
	maxWarnings = 10
	// maxQuoted is the most bytes of a value or an error that a warning quotes: enough for an address, and several warnings fit into the
	// 1024 bytes of an Event.
	maxQuoted = 200
)

// Warning is a problem of an entry of a ConfigMap.
type Warning struct {
	Key     string // of the ConfigMap; empty: of several
	Reason  string
	Message string // what happened, and what to do
}

// String implements fmt.Stringer.
func (w Warning) String() string {
	if w.Key == "" {
		return w.Message
	}
	return fmt.Sprintf("key %q: %s", quoteText(w.Key), w.Message)
}

// warnings collects the first warnings and counts the others.
type warnings struct {
	all  []Warning
	more int
}

func (w *warnings) addWarning(reason, key, format string, args ...any) {
	if len(w.all) == maxWarnings {
		w.more++
		return
	}
	w.all = append(w.all, Warning{Key: key, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (w *warnings) asList() []Warning {
	if w.more == 0 {
		return w.all
	}
	return append(w.all, Warning{Reason: ReasonInvalid, Message: fmt.Sprintf("%d more problems: repair these to see them", w.more)})
}

// quoteText returns a text as one line of valid UTF-8 that is not too long.
func quoteText(text string) string {
	if len(text) > maxQuoted {
		text = text[:maxQuoted] + "..."
	}
	return strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
}

func sortedKeys(data map[string]string) []string { return slices.Sorted(maps.Keys(data)) }

// decodeYAML decodes a document onto a copy of a value. unknown are fields that the value does not have. A field that is there twice is an
// error.
func decodeYAML[T any](text string, initial T) (value T, unknown []string, err error) {
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return initial, nil, plainError(err)
	}
	return decodeJSON(raw, initial)
}

// decodeJSON is decodeYAML for a part of a document that has been decoded.
func decodeJSON[T any](text []byte, initial T) (value T, unknown []string, err error) {
	value = initial
	if err := json.Unmarshal(text, &value); err != nil {
		return initial, nil, plainError(err)
	}
	var fields map[string]json.RawMessage
	if t := reflect.TypeFor[T](); t.Kind() == reflect.Struct && json.Unmarshal(text, &fields) == nil {
		unknown = slices.DeleteFunc(slices.Sorted(maps.Keys(fields)), func(name string) bool { return hasField(t, name) })
	}
	return value, unknown, nil
}

// hasField reports whether a struct takes a field of JSON.
func hasField(t reflect.Type, name string) bool {
	return slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return strings.EqualFold(tag, name)
	})
}

// plainError says what is wrong without words about Go.
func plainError(err error) error {
	var (
		wrong  *json.UnmarshalTypeError
		number *json.UnsupportedValueError
	)
	switch {
	case errors.As(err, &number):
		return fmt.Errorf("%s is not a number that can be used", number.Str)
	case !errors.As(err, &wrong):
		return err
	case wrong.Field == "":
		return fmt.Errorf("it is of the type %s", wrong.Value)
	}
	return fmt.Errorf("%s is of the type %s", wrong.Field, wrong.Value)
}

// decodeEntry decodes an entry of a ConfigMap onto a copy of a value, and reports whether it is valid.
func decodeEntry[T any](key, text string, initial T, w *warnings) (value T, valid bool) {
	value, unknown, err := decodeYAML(text, initial)
	if err != nil {
		w.addWarning(ReasonInvalid, key, "ignored: not a valid YAML object: %s; correct the value", quoteText(err.Error()))
		return value, false
	}
	w.addUnknown(key, "", unknown)
	return value, true
}

// scalar is a YAML string, number or boolean.
type scalar string

// UnmarshalJSON implements json.Unmarshaler.
func (s *scalar) UnmarshalJSON(text []byte) error {
	switch text[0] {
	case '"':
		var value string
		if err := json.Unmarshal(text, &value); err != nil {
			return err
		}
		*s = scalar(value)
	case '{', '[':
		return errors.New("a list or an object instead of a text")
	case 'n': // null
	default:
		*s = scalar(text)
	}
	return nil
}

// ParseAmount parses a decimal number without a sign or an exponent, less than 10^12, and returns it in millionths, rounded to the nearest.
func ParseAmount(text string) (int64, error) {
	integer, fraction, point := strings.Cut(strings.TrimSpace(text), ".")
	if !isDigits(integer) || point && !isDigits(fraction) {
		return 0, fmt.Errorf("%q is not a decimal number, as 10 or 10.50", quoteText(text))
	}
	const maxWhole, places = 12, 6 // digits
	integer, fraction = strings.TrimLeft(integer, "0"), fraction+strings.Repeat("0", places+1)
	if len(integer) > maxWhole {
		return 0, fmt.Errorf("%q is too large", quoteText(text))
	}
	value, err := strconv.ParseInt("0"+integer+fraction[:places], 10, 64)
	if fraction[places] >= '5' {
		value++
	}
	return value, err
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// modelName is a model in a namespace. An empty namespace means any.
type modelName struct{ namespace, model string }

// String returns a name for people.
func (m modelName) String() string {
	if m.namespace == "" {
		return fmt.Sprintf("model %q", quoteText(m.model))
	}
	return fmt.Sprintf("model %q in namespace %q", quoteText(m.model), quoteText(m.namespace))
}
