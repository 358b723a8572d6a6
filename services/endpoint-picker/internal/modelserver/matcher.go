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

// wanted is a metric to look for.
type wanted struct {
	spec

	role role
	slot int // index of its collected values
}

// group contains the wanted metrics whose names begin with the same byte.
type group struct {
	prefix string    // common prefix of their names
	next   [256]bool // the bytes that may follow the prefix
	wanted []wanted
}

// A matcher finds the lines of a page with an engine's metrics. It is never changed.
type matcher struct {
	engine string
	groups [256]*group // by the first byte of the name
	slots  int

	// The slots of the engine's metrics, in order of preference.
	waiting, running, kvUsage                     []int
	blockSize, blocks, tokens, hostTokens, custom []int
	cacheInfo                                     []int
	queries, hits, missed                         []int

	blockSizeLabel, blocksLabel, tokensLabel string
	modelLabel                               string
	alignmentLabels                          []string
	inBlocks                                 bool     // queries, hits and missed
	attributes                               []string // of custom
}

// newMatcher compiles an engine. Its error is a specError.
func newMatcher(e *Engine) (*matcher, error) {
	c := compiler{m: &matcher{
		engine: e.Name, blockSizeLabel: cmp.Or(e.BlockSizeLabel, usualBlockSizeLabel), blocksLabel: cmp.Or(e.BlocksLabel, usualBlocksLabel),
		tokensLabel: e.TokensLabel, alignmentLabels: e.AlignmentLabels, inBlocks: e.InBlocks, modelLabel: e.ModelLabel,
	}}
	c.m.waiting = c.add("queuedRequestsSpec", asCount, e.Waiting...)
	c.m.running = c.add("runningRequestsSpec", asCount, e.Running...)
	c.m.kvUsage = c.add("kvUsageSpec", asShare, e.KVUsage...)
	c.add("loraSpec", asLoRA, e.LoRA)
	c.m.cacheInfo = c.add("cacheInfoSpec", asInfo, e.CacheInfo)
	c.m.blockSize = c.add("cacheBlockSizeSpec", asCount, e.BlockSize)
	c.m.blocks = c.add("cacheNumBlocksSpec", asCount, e.Blocks)
	c.m.tokens = c.add("cacheTokensSpec", asCount, e.Tokens)
	c.m.hostTokens = c.add("cacheHostTokensSpec", asCount, e.HostTokens)
	c.m.queries = c.add("cacheQueriesSpec", asTotal, e.Queries...)
	c.m.hits = c.add("cacheHitsSpec", asTotal, e.Hits...)
	c.m.missed = c.add("cacheMissedSpec", asTotal, e.Missed...)
	for i, metric := range e.Custom {
		c.m.custom = append(c.m.custom, c.add(fmt.Sprintf("customMetrics[%d].metricSpec", i), asFigure, metric.Metric)...)
		c.m.attributes = append(c.m.attributes, metric.Attribute)
	}
	if c.err != nil {
		return nil, c.err
	}
	for _, g := range c.m.groups {
		if g != nil {
			g.close()
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

// add adds metrics and returns their slots. It skips empty ones.
func (c *compiler) add(field string, r role, metrics ...string) []int {
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
		g.wanted = append(g.wanted, wanted{spec: s, role: r, slot: c.m.slots})
		slots = append(slots, c.m.slots)
		c.m.slots++
	}
	return slots
}

// close computes the common prefix of the group.
func (g *group) close() {
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

// may reports whether a line, without leading blanks, may belong to a wanted metric.
func (m *matcher) may(line []byte) (*group, bool) {
	if len(line) == 0 {
		return nil, false
	}
	g := m.groups[line[0]]
	if g == nil || len(line) <= len(g.prefix) {
		return nil, false
	}
	return g, g.next[line[len(g.prefix)]] && string(line[:len(g.prefix)]) == g.prefix
}

// of reports whether a line belongs to the metric, and returns the text after its name.
func (w *wanted) of(line []byte) ([]byte, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(w.name))
	if !ok || len(rest) == 0 || (rest[0] != '{' && !blank(rest[0])) {
		return nil, false
	}
	return rest, true
}
