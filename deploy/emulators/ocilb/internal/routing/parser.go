package routing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// parser parses a condition from left to right. Its methods consume what they return.
type parser struct {
	rest string
}

func (p *parser) space() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

// accept consumes a token if it is next.
func (p *parser) accept(token string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.rest, token)
	if ok {
		p.rest = rest
	}
	return ok
}

// word consumes a word of letters and dots.
func (p *parser) word() string {
	p.space()
	end := strings.IndexFunc(p.rest, func(r rune) bool { return (r < 'a' || r > 'z') && r != '.' })
	if end < 0 {
		end = len(p.rest)
	}
	word := p.rest[:end]
	p.rest = p.rest[end:]
	return word
}

func (p *parser) condition(depth int) (Condition, error) {
	before := p.rest
	word := p.word()
	if word != "any" && word != "all" {
		p.rest = before
		c, err := p.comparison()
		return Condition{comparison: c}, err
	}
	if depth > 1 {
		return Condition{}, errors.New("conditions are nested too deeply")
	}
	c := Condition{group: word}
	if !p.accept("(") {
		return c, errors.New("expected (")
	}
	for {
		term, err := p.condition(depth + 1)
		if err != nil {
			return c, err
		}
		if c.terms = append(c.terms, term); len(c.terms) > MaxTerms {
			return c, fmt.Errorf("more than %d conditions in a group", MaxTerms)
		}
		if p.accept(")") {
			return c, nil
		}
		if !p.accept(",") {
			return c, errors.New("expected , or )")
		}
	}
}

func (p *parser) comparison() (comparison, error) {
	var c comparison
	var err error
	if c.attribute, err = p.attribute(); err != nil {
		return c, err
	}
	if c.operator, err = p.operator(); err == nil && c.operator == "not" {
		c.negated = true
		c.operator, err = p.operator()
	}
	switch {
	case err != nil:
		return c, err
	case c.operator == "not":
		return c, errors.New("expected an operator")
	case c.operator == "exists":
		return c, nil
	case c.attribute.name != path && !c.attribute.first && slices.Contains([]string{"sw", "ew", "cw"}, c.operator):
		return c, fmt.Errorf("%s of several values needs the index [0]", c.operator)
	}
	c.literal, err = p.literal()
	return c, err
}

func (p *parser) operator() (string, error) {
	if p.accept("=") {
		return "eq", nil
	}
	word := p.word()
	if !slices.Contains([]string{"eq", "sw", "ew", "cw", "exists", "not"}, word) {
		return "", fmt.Errorf("unknown operator %q", word)
	}
	return word, nil
}

func (p *parser) attribute() (attribute, error) {
	a := attribute{name: p.word()}
	switch a.name {
	case path:
		return a, nil
	case headers, query, cookies:
	default:
		return a, fmt.Errorf("unknown attribute %q", a.name)
	}
	if !p.accept("[") {
		return a, errors.New("expected [")
	}
	var err error
	if a.key, err = p.literal(); err != nil {
		return a, err
	}
	if !p.accept("]") {
		return a, errors.New("expected ]")
	}
	a.first = p.accept("[0]")
	return a, nil
}

func (p *parser) literal() (literal, error) {
	var l literal
	if p.accept("(") {
		if p.word() != "i" {
			return l, errors.New("expected i")
		}
		l.ignoreCase = true
	}
	if !p.accept("'") {
		return l, errors.New("expected a literal in single quotes")
	}
	text, rest, found := strings.Cut(p.rest, "'")
	if !found {
		return l, errors.New("expected the closing quote")
	}
	l.text, p.rest = text, rest
	if l.ignoreCase && !p.accept(")") {
		return l, errors.New("expected )")
	}
	return l, nil
}
