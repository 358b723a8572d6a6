package pickerconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// checker records problems with the parameters of one plugin.
type checker struct {
	*compiler
	path string // of the parameters
}

func (c checker) at(field string) string {
	if field == "" {
		return c.path
	}
	return c.path + "." + field
}

// require records a problem of a field unless ok is true.
func (c checker) require(ok bool, field, format string, args ...any) { //nolint:revive // as in testify
	if !ok {
		c.errorf(c.at(field), format, args...)
	}
}

// share requires a number from 0 to 1.
func (c checker) share(field string, value float64) {
	c.require(value >= 0 && value <= 1, field, "%v is out of range: give 0 to 1", value)
}

// positive requires a number above 0.
func (c checker) positive(field string, value float64) {
	c.require(value > 0, field, "%v is out of range: give more than 0", value)
}

// notNegative requires a number of 0 or more.
func (c checker) notNegative(field string, value float64) {
	c.require(value >= 0, field, "%v is out of range: give 0 or more", value)
}

// count requires a number of tokens or blocks. The limit avoids overflows of products.
func (c checker) count(field string, value, least int) {
	const most = 1 << 30
	c.require(value >= least && value <= most, field, "%d is out of range: give %d to %d", value, least, most)
}

// oneOf requires one of the given words.
func (c checker) oneOf(field, value string, words ...string) {
	c.require(slices.Contains(words, value), field, "%.100q is not known: %s", value, meant(value, words))
}

// header requires the name of a header, and returns it in the form for comparisons.
func (c checker) header(field, name string) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~"
	name = strings.ToLower(name)
	c.require(name != "" && strings.Trim(name, letters) == "", field, "%.100q is not the name of a header", name)
	return name
}

// producer requires the name of a plugin of a type, or nothing. The type's own name is always valid.
func (c checker) producer(field, name, kind string) {
	if name == "" || name == kind {
		return
	}
	p := c.declared[name]
	c.require(p != nil && p.kind == kind, field, "%.100q is not a plugin of type %s: leave it out", name, kind)
}

const missingAttribute = "it is missing: give the attributeKey of one of the extractor's customMetrics"

// attribute requires the name of a metric that the extractor reads.
func (c checker) attribute(field, name string) {
	known := c.made.Scraping.attributes()
	c.require(slices.Contains(known, name), field, "no extractor reads the metric %.100q: add it to customMetrics of core-metrics-extractor", name)
}

// seconds requires a time between nothing and a century.
func (c checker) seconds(field string, value float64) {
	const most = 3e9
	c.require(value > 0 && value < most, field, "%v is out of range: give more than 0 seconds", value)
}

func seconds(value float64) time.Duration { return time.Duration(value * float64(time.Second)) }

func indexed(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
