// Package routing implements version 1 of the condition language of OCI's routing policies.
//
//	condition   = group | comparison
//	group       = ( "any" | "all" ) "(" condition { "," condition } ")"
//	comparison  = attribute [ "not" ] ( operator literal | "exists" )
//	attribute   = "http.request.url.path" | map "[" literal "]" [ "[0]" ]
//	map         = "http.request.headers" | "http.request.url.query" | "http.request.cookies"
//	operator    = "eq" | "=" | "sw" | "ew" | "cw"
//	literal     = "'" text "'" | "(i '" text "')"
//
// A literal "(i 'text')" ignores case. A literal cannot contain a single quote. An attribute can have several values: eq matches
// any of them; sw (prefix), ew (suffix) and cw (contains) of a map need the index [0], the first value.
//
// The documentation shows any, all, eq, =, sw, ew, (i ...) and [0]. The spelling of "not eq" and "cw" comes from the tests of
// oci-native-ingress-controller; that of exists is a guess.
package routing

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Limits of the service.
const (
	MaxTerms      = 5   // in a group
	MaxConditions = 200 // in a policy
)

// Condition is a parsed condition.
type Condition struct {
	group string // any, all, or empty for a comparison
	terms []Condition
	comparison
}

// comparison compares the values of an attribute with a literal.
type comparison struct {
	attribute attribute
	negated   bool
	operator  string
	literal   literal
}

// attribute is a part of a request.
type attribute struct {
	name  string // one of the names below
	key   literal
	first bool // only the first value
}

const (
	path    = "http.request.url.path"
	headers = "http.request.headers"
	query   = "http.request.url.query"
	cookies = "http.request.cookies"
)

type literal struct {
	text       string
	ignoreCase bool
}

// Comparisons returns the number of comparisons.
func (c *Condition) Comparisons() int {
	if c.group == "" {
		return 1
	}
	n := 0
	for i := range c.terms {
		n += c.terms[i].Comparisons()
	}
	return n
}

// Match reports whether a request meets the condition.
func (c *Condition) Match(r *http.Request) bool {
	match := func(term Condition) bool { return term.Match(r) }
	switch c.group {
	case "any":
		return slices.ContainsFunc(c.terms, match)
	case "all":
		return !slices.ContainsFunc(c.terms, func(term Condition) bool { return !term.Match(r) })
	}
	return c.compare(c.attribute.values(r)) != c.negated
}

// values returns the values of the attribute in a request.
func (a *attribute) values(r *http.Request) []string {
	var values []string
	switch a.name {
	case path:
		values = []string{r.URL.Path}
	case headers:
		if strings.EqualFold(a.key.text, "host") {
			values = []string{r.Host}
		} else {
			values = r.Header.Values(a.key.text)
		}
	case query:
		for key, all := range r.URL.Query() {
			if a.key.equals(key) {
				values = append(values, all...)
			}
		}
	case cookies:
		for _, cookie := range r.Cookies() {
			if a.key.equals(cookie.Name) {
				values = append(values, cookie.Value)
			}
		}
	}
	if a.first && len(values) > 1 {
		return values[:1]
	}
	return values
}

func (c *comparison) compare(values []string) bool {
	if c.operator == "exists" {
		return len(values) > 0
	}
	return slices.ContainsFunc(values, func(value string) bool {
		text := c.literal.text
		if c.literal.ignoreCase {
			value, text = strings.ToLower(value), strings.ToLower(text)
		}
		switch c.operator {
		case "sw":
			return strings.HasPrefix(value, text)
		case "ew":
			return strings.HasSuffix(value, text)
		case "cw":
			return strings.Contains(value, text)
		default:
			return value == text
		}
	})
}

func (l *literal) equals(value string) bool {
	return value == l.text || l.ignoreCase && strings.EqualFold(value, l.text)
}

// Parse parses a condition.
func Parse(text string) (*Condition, error) {
	p := &parser{rest: text}
	c, err := p.condition(0)
	if err != nil {
		return nil, fmt.Errorf("%w at %.40q", err, p.rest)
	}
	if p.space(); p.rest != "" {
		return nil, fmt.Errorf("expected the end of the condition at %.40q", p.rest)
	}
	return &c, nil
}
