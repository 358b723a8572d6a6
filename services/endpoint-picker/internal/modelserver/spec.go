package modelserver

import (
	"errors"
	"fmt"
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

// parseSpec parses "name", "name{label=value}" or "name{label="value",other='value'}".
func parseSpec(text string) (spec, error) {
	s, err := splitSpec(strings.TrimSpace(text))
	if err != nil {
		return spec{}, fmt.Errorf("metric %q: %w", text, err)
	}
	return s, nil
}

func splitSpec(text string) (spec, error) {
	name, rest, braced := strings.Cut(text, "{")
	s := spec{name: strings.TrimRight(name, " \t")}
	switch {
	case !isName(s.name, true):
		return s, errNoName
	case !braced:
		return s, nil
	case !strings.HasSuffix(rest, "}"):
		return s, errNoBrace
	}
	for rest = strings.TrimSpace(rest[:len(rest)-1]); rest != ""; {
		var l label
		var ok bool
		if l, rest, ok = cutLabel(rest); !ok {
			return s, errNoEquals
		}
		s.labels = append(s.labels, l)
	}
	return s, nil
}

// cutLabel removes the first label from a list.
func cutLabel(text string) (l label, rest string, ok bool) {
	name, rest, ok := strings.Cut(text, "=")
	name, rest = strings.TrimSpace(name), strings.TrimSpace(rest)
	if !ok || !isName(name, false) {
		return label{}, "", false
	}
	var value string
	if rest != "" && (rest[0] == '"' || rest[0] == '\'') {
		if value, rest, ok = cutQuoted(rest[1:], rest[0]); !ok {
			return label{}, "", false
		}
	} else {
		end := strings.IndexByte(rest, ',')
		if end < 0 {
			end = len(rest)
		}
		value, rest = strings.TrimSpace(rest[:end]), rest[end:]
		if strings.ContainsAny(value, "\"'{}=~ ") {
			return label{}, "", false
		}
	}
	rest = strings.TrimSpace(rest)
	if rest != "" && rest[0] != ',' {
		return label{}, "", false
	}
	return label{name, escaper.Replace(value)}, strings.TrimSpace(strings.TrimPrefix(rest, ",")), true
}

// cutQuoted removes a value up to its closing quote from a text.
func cutQuoted(text string, quote byte) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == quote:
			return b.String(), text[i+1:], true
		case text[i] == '\\' && i+1 < len(text):
			i++
			if text[i] == 'n' {
				b.WriteByte('\n')
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return "", "", false
}

// escaper escapes a value as pages do.
var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// unescaper reverses escaper.
var unescaper = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")

// isName reports whether a text is a valid name of a label, or of a metric, which may contain colons.
func isName(text string, metric bool) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == ':' && metric, c >= '0' && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return text != ""
}
