package modelserver

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// A spec names series of a metrics page: those of one metric that have the given labels, and perhaps others.
type spec struct {
	name   string
	labels []label
}

// label is a name and its required value, as written between quotes on a page.
type label struct {
	name, value string
}

var (
	errNoName   = errors.New("does not begin with the name of a metric")
	errNoBrace  = errors.New("labels must be in braces at the end")
	errNoEquals = errors.New("a label is not of the form name=value; other matchers are not supported")
)

// Patterns of the names of metrics, and of the first label in a list: its name, then its value in double, in single or in no quotes.
var (
	namePattern  = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelPattern = regexp.MustCompile(`(?s)^([a-zA-Z_][a-zA-Z0-9_]*)` + blanks + `=` + blanks +
		`(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^,"'{}=~ ]*))` + blanks + `(?:,` + blanks + `|$)`)
	escapePattern = regexp.MustCompile(`(?s)\\.`)
)

// blanks matches what strings.TrimSpace removes.
const blanks = `[\s\v\x{85}\pZ]*`

// parseSpec parses "name", "name{label=value}" or "name{label="value",other='value'}".
func parseSpec(text string) (spec, error) {
	name, rest, braced := strings.Cut(strings.TrimSpace(text), "{")
	s := spec{name: strings.TrimRight(name, " \t")}
	switch {
	case !namePattern.MatchString(s.name):
		return s, fmt.Errorf("metric %q: %w", text, errNoName)
	case !braced:
		return s, nil
	case !strings.HasSuffix(rest, "}"):
		return s, fmt.Errorf("metric %q: %w", text, errNoBrace)
	}
	for rest = strings.TrimSpace(rest[:len(rest)-1]); rest != ""; {
		m := labelPattern.FindStringSubmatch(rest)
		if m == nil {
			return s, fmt.Errorf("metric %q: %w", text, errNoEquals)
		}
		value := strings.TrimSpace(m[4]) + escapePattern.ReplaceAllStringFunc(m[2]+m[3], unescapeOne)
		s.labels = append(s.labels, label{m[1], escaper.Replace(value)})
		rest = rest[len(m[0]):]
	}
	return s, nil
}

// unescapeOne returns the character that an escape stands for.
func unescapeOne(escape string) string {
	if escape == `\n` {
		return "\n"
	}
	return escape[1:]
}

// escaper escapes a value as pages do.
var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// unescaper reverses escaper.
var unescaper = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")
