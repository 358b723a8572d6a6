package modelserver

import (
	"bytes"
	"cmp"
	"fmt"
)

// role is the use of a metric.
type role uint8

const (
	asCount  role = iota // a number of requests, blocks or tokens
	asShare              // of the KV cache
	asInfo               // its labels contain the size of the KV cache
	asLoRA               // its labels contain the adapters
	asTotal              // a number of tokens or blocks since the server began
	asFigure             // a custom metric
)

// wantedMetric is a metric to look for.
type wantedMetric struct {
	spec

	role role
	slot int // index of its collected values
}

// group contains the wanted metrics whose names begin with the same byte.
type group struct {
	prefix string    // common prefix of their names
	next   [256]bool // the bytes that may follow the prefix
	wanted []wantedMetric
}

// A matcher is the prepared form of an engine, with which it finds the lines of a page with the engine's metrics. It is never changed.
type matcher struct {
	Engine // without empty labels for the size of the KV cache

	groups [256]*group // by the first byte of the name
	slots  int

	// The slots of the engine's metrics, in order of preference.
	waiting, running, kvUsage                     []int
	blockSize, blocks, tokens, hostTokens, custom []int
	cacheInfo                                     []int
	queries, hits, missed                         []int
}

// newMatcher compiles an engine. Its error is a specError.
func newMatcher(e *Engine) (*matcher, error) {
	c := compiler{m: &matcher{Engine: *e}}
	c.m.BlockSizeLabel, c.m.BlocksLabel = cmp.Or(e.BlockSizeLabel, usualBlockSizeLabel), cmp.Or(e.BlocksLabel, usualBlocksLabel)
	c.m.waiting = c.addMetrics("queuedRequestsSpec", asCount, e.Waiting...)
	c.m.running = c.addMetrics("runningRequestsSpec", asCount, e.Running...)
	c.m.kvUsage = c.addMetrics("kvUsageSpec", asShare, e.KVUsage...)
	c.addMetrics("loraSpec", asLoRA, e.LoRA)
	c.m.cacheInfo = c.addMetrics("cacheInfoSpec", asInfo, e.CacheInfo)
	c.m.blockSize = c.addMetrics("cacheBlockSizeSpec", asCount, e.BlockSize)
	c.m.blocks = c.addMetrics("cacheNumBlocksSpec", asCount, e.Blocks)
	c.m.tokens = c.addMetrics("cacheTokensSpec", asCount, e.Tokens)
	c.m.hostTokens = c.addMetrics("cacheHostTokensSpec", asCount, e.HostTokens)
	c.m.queries = c.addMetrics("cacheQueriesSpec", asTotal, e.Queries...)
	c.m.hits = c.addMetrics("cacheHitsSpec", asTotal, e.Hits...)
	c.m.missed = c.addMetrics("cacheMissedSpec", asTotal, e.Missed...)
	for i, metric := range e.Custom {
		c.m.custom = append(c.m.custom, c.addMetrics(fmt.Sprintf("customMetrics[%d].metricSpec", i), asFigure, metric.Metric)...)
	}
	if c.err != nil {
		return nil, c.err
	}
	for _, g := range c.m.groups {
		if g != nil {
			g.computePrefix()
		}
	}
	return c.m, nil
}

// specError is an invalid metric of an engine.
type specError struct {
	field  string // of the engine's parameters
	reason error
}

// Error names the field.
func (e *specError) Error() string { return e.field + ": " + e.reason.Error() }

// compiler fills a matcher until the first error.
type compiler struct {
	m   *matcher
	err error
}

// addMetrics adds metrics and returns their slots. It skips empty ones.
func (c *compiler) addMetrics(field string, r role, metrics ...string) []int {
	var slots []int
	for _, text := range metrics {
		if text == "" || c.err != nil {
			continue
		}
		s, err := parseSpec(text)
		if err != nil {
			c.err = &specError{field: field, reason: err}
			return nil
		}
		g := c.m.groups[s.name[0]]
		if g == nil {
			g = &group{}
			c.m.groups[s.name[0]] = g
		}
		g.wanted = append(g.wanted, wantedMetric{spec: s, role: r, slot: c.m.slots})
		slots = append(slots, c.m.slots)
		c.m.slots++
	}
	return slots
}

// computePrefix computes the common prefix of the group.
func (g *group) computePrefix() {
	g.prefix = g.wanted[0].name
	for _, w := range g.wanted {
		n := 0
		for n < min(len(g.prefix), len(w.name)) && g.prefix[n] == w.name[n] {
			n++
		}
		g.prefix = g.prefix[:n]
	}
	for _, w := range g.wanted {
		if len(w.name) > len(g.prefix) {
			g.next[w.name[len(g.prefix)]] = true
			continue
		}
		g.next['{'], g.next[' '], g.next['\t'] = true, true, true
	}
}

// mayMatch reports whether a line, without leading blanks, may belong to a wanted metric.
func (m *matcher) mayMatch(line []byte) (*group, bool) {
	if len(line) == 0 {
		return nil, false
	}
	g := m.groups[line[0]]
	if g == nil || len(line) <= len(g.prefix) {
		return nil, false
	}
	return g, g.next[line[len(g.prefix)]] && string(line[:len(g.prefix)]) == g.prefix
}

// matchLine reports whether a line belongs to the metric, and returns the text after its name.
func (w *wantedMetric) matchLine(line []byte) ([]byte, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(w.name))
	if !ok || len(rest) == 0 || (rest[0] != '{' && !isBlank(rest[0])) {
		return nil, false
	}
	return rest, true
}
