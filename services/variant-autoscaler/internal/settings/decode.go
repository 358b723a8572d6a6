package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/pkg/strictyaml"
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

// maxEntry is the size of an entry: a ConfigMap has at most 1 MiB.
const maxEntry = 1 << 20

// decodeText decodes an entry of a ConfigMap onto a copy of a value. unknown receives the fields that the value does not have; without it,
// they are problems. The document reports further problems with their lines.
func decodeText[T any](text string, initial T, unknown func(name string, p strictyaml.Problem)) (T, *strictyaml.Document, error) {
	options := strictyaml.Options{MaxBytes: maxEntry, Aliases: true, Lenient: true, UnknownField: unknown}
	document, err := strictyaml.Parse([]byte(text), options)
	if err != nil {
		return initial, nil, err
	}
	document.Decode(&initial)
	return initial, document, document.AllProblems()
}

// decodeDocument is decodeText with warnings of what it ignores, and returns the problems.
func decodeDocument[T any](key, text string, initial T, w *warnings) (T, []strictyaml.Problem) {
	var unknown []unknownName
	value, document, err := decodeText(text, initial, func(name string, p strictyaml.Problem) {
		unknown = append(unknown, unknownName{name: name, path: p.Path, problem: p.String()})
	})
	w.addUnknown(key, unknown)
	if document != nil {
		for _, warning := range document.Warnings() {
			w.addWarning(ReasonInvalid, key, "%s", warning)
		}
	}
	return value, problemsOf(err)
}

func problemsOf(err error) []strictyaml.Problem {
	var problems strictyaml.TextError
	errors.As(err, &problems)
	return problems
}

// decodeEntry decodes an entry of a ConfigMap onto a copy of a value, and reports whether it is valid.
func decodeEntry[T any](key, text string, initial T, w *warnings) (value T, valid bool) {
	value, problems := decodeDocument(key, text, initial, w)
	w.addProblems(key, "ignored", problems)
	if len(problems) > 0 {
		return initial, false
	}
	return value, true
}

// addProblems warns of each problem of an entry.
func (w *warnings) addProblems(key, consequence string, problems []strictyaml.Problem) {
	for _, problem := range problems {
		w.addWarning(ReasonInvalid, key, "%s: %s", consequence, quoteText(problem.String()))
	}
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
