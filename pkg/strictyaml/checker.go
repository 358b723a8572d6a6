package strictyaml

import (
	"slices"
	"strings"
)

// A Checker records problems with the fields of one mapping. The zero value checks values that no text contains.
type Checker struct {
	document *Document
	path     string // of the mapping
}

// PathOf returns the path of a field; of the mapping, if the field is empty.
func (c *Checker) PathOf(field string) string {
	if field == "" || c.path == "" {
		return c.path + field
	}
	return c.path + "." + field
}

// Below returns a Checker for the mapping in a field.
func (c *Checker) Below(field string) *Checker { return c.doc().Checker(c.PathOf(field)) }

// HasField reports whether the text has the field.
func (c *Checker) HasField(field string) bool { return c.doc().HasField(c.PathOf(field)) }

// Errorf records a problem of a field.
func (c *Checker) Errorf(field, format string, args ...any) {
	c.doc().Errorf(c.PathOf(field), format, args...)
}

// Warnf records a warning about a field.
func (c *Checker) Warnf(field, format string, args ...any) {
	c.doc().Warnf(c.PathOf(field), format, args...)
}

// AllProblems returns the problems of the whole text.
func (c *Checker) AllProblems() error { return c.doc().AllProblems() }

func (c *Checker) doc() *Document {
	if c.document == nil {
		c.document = &Document{}
	}
	return c.document
}

// Require records a problem of a field unless ok is true.
func (c *Checker) Require(ok bool, field, format string, args ...any) { //nolint:revive // as in testify
	if !ok {
		c.Errorf(field, format, args...)
	}
}

// Share requires a number from 0 to 1.
func (c *Checker) Share(field string, value float64) {
	c.Require(value >= 0 && value <= 1, field, "%v is out of range: give 0 to 1", value)
}

// Positive requires a number above 0.
func (c *Checker) Positive(field string, value float64) {
	c.Require(value > 0, field, "%v is out of range: give more than 0", value)
}

// NotNegative requires a number of 0 or more.
func (c *Checker) NotNegative(field string, value float64) {
	c.Require(value >= 0, field, "%v is out of range: give 0 or more", value)
}

// maxCount limits counts of tokens and blocks, so that products of two of them do not overflow. The largest KV caches have
// some ten million tokens.
const maxCount = 1 << 30

// Count requires a number of tokens or blocks.
func (c *Checker) Count(field string, value, least int) {
	c.Require(value >= least && value <= maxCount, field, "%d is out of range: give %d to %d", value, least, maxCount)
}

// maxSeconds limits times in seconds to a century, which a time.Duration can hold.
const maxSeconds = 3e9

// Seconds requires a time above 0.
func (c *Checker) Seconds(field string, value float64) {
	c.Require(value > 0 && value < maxSeconds, field, "%v is out of range: give more than 0 seconds", value)
}

// fewWords is a number of words that a message can list in full.
const fewWords = 4

// OneOf requires one of the given words.
func (c *Checker) OneOf(field, value string, words ...string) {
	hint := "use one of " + strings.Join(words, ", ")
	if len(words) > fewWords {
		hint = Hint(value, words)
	}
	c.Require(slices.Contains(words, value), field, "%.100q is not known: %s", value, hint)
}

// Header requires the name of an HTTP header.
func (c *Checker) Header(field, name string) {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~"
	c.Require(name != "" && strings.Trim(strings.ToLower(name), letters) == "", field, "%.100q is not the name of a header", name)
}
