// Package redirect implements the texts of redirects in OCI's rule sets: parts of a URI that tokens in braces copy from the request.
//
//	/example{path}123\{path\}    appears, for a request of /video, as /example/video123{path}
//
// A backslash takes the meaning from a brace or from another backslash. A token that does not exist makes the text invalid.
package redirect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Tokens.
const (
	Protocol = "{protocol}"
	Host     = "{host}"
	Port     = "{port}"
	Path     = "{path}"
	Query    = "{query}"
)

// Template is a parsed text.
type Template struct {
	parts []part
}

// part is a token, or literal text.
type part struct {
	text  string
	token bool
}

// Parse parses a text.
func Parse(text string) (Template, error) {
	var t Template
	var literal strings.Builder
	for text != "" {
		i := strings.IndexAny(text, `\{}`)
		if i < 0 {
			literal.WriteString(text)
			break
		}
		literal.WriteString(text[:i])
		text = text[i:]
		switch text[0] {
		case '\\':
			if len(text) < 2 || !strings.Contains(`\{}`, text[1:2]) {
				return t, errors.New(`a backslash must precede \, { or }`)
			}
			literal.WriteByte(text[1])
			text = text[2:]
		case '}':
			return t, errors.New("expected { before }")
		default:
			name, rest, closed := strings.Cut(text, "}")
			if !closed || !slices.Contains([]string{Protocol, Host, Port, Path, Query}, name+"}") {
				return t, fmt.Errorf("unknown token %.20q", name)
			}
			t.parts = append(t.parts, part{text: literal.String()}, part{text: name + "}", token: true})
			literal.Reset()
			text = rest
		}
	}
	t.parts = append(t.parts, part{text: literal.String()})
	return t, nil
}

// Expand returns the text with the values of its tokens.
func (t *Template) Expand(values map[string]string) string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.token {
			b.WriteString(values[p.text])
			continue
		}
		b.WriteString(p.text)
	}
	return b.String()
}
