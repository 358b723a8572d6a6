package modelserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

const (
	maxLine  = 16 << 10 // longer lines are skipped: no wanted line is nearly as long
	maxPage  = 2 << 20  // limit of a page, ten times a large real one: a rank of vLLM has 30 to 200 KiB
	maxCount = 1 << 30  // of requests, blocks, tokens: larger values are errors of the page
	maxTotal = 1 << 53  // of tokens since the start: larger values are not exact
)

// errNoGauges means that a page has no gauges of requests: the endpoint's engine is a different one.
var errNoGauges = errors.New("page without the request gauges")

// errLargePage means that a page is over maxPage.
var errLargePage = fmt.Errorf("over %d bytes: let the server report fewer series, or give metrics-data-source a path that selects them, "+
	"such as /metrics?name[]=vllm:num_requests_running", maxPage)

// A reading collects the wanted values of consecutive pages, line by line. It does not store pages, and allocates nothing
// for a page without news.
type reading struct {
	*matcher
	tally

	align int    // tokens, from labels
	model []byte // name of the base model, as on the page; empty if unknown
	lora  lora
	last  pageMemory
	work  work // of all pages
}

func newReading(m *matcher) *reading {
	return &reading{matcher: m, tally: newTally(m.slots)}
}

// readPage reads a metrics page in the Prometheus text format, with the given buffer. It does not validate lines that it does
// not need.
func (r *reading) readPage(page io.Reader, buf []byte) (endpoint.Gauges, error) {
	r.resetReading()
	var held, total int // bytes of an incomplete line at the start of buf; bytes read
	skipping := false   // inside a line that is too long
	for {
		n, err := page.Read(buf[held:])
		total += n
		r.work.reads++
		r.work.bytes += n
		rest, fresh := buf[:held+n], held // where the new bytes begin
		if skipping {
			if i := bytes.IndexByte(rest, '\n'); i >= 0 {
				skipping, rest, fresh = false, rest[i+1:], 0
			} else {
				rest = rest[:0]
			}
		}
		rest = r.readLines(rest, min(fresh, len(rest)))
		switch {
		case errors.Is(err, io.EOF):
			r.readLine(rest)
			return r.toGauges()
		case err != nil:
			return endpoint.Gauges{}, fmt.Errorf("read metrics page: %w", err)
		case total > maxPage:
			return endpoint.Gauges{}, fmt.Errorf("read metrics page: %w", errLargePage)
		}
		if len(rest) == len(buf) {
			skipping, rest = true, rest[:0]
		}
		held = copy(buf, rest)
	}
}

func (r *reading) resetReading() {
	r.tally.resetTally()
	r.align = 0
	r.lora.found = false
	r.model = r.model[:0]
}

// readLines processes the complete lines and returns the rest. The bytes before fresh contain no end of a line: many small reads of a long
// line take no more time than one.
func (r *reading) readLines(b []byte, fresh int) []byte {
	for {
		i := bytes.IndexByte(b[fresh:], '\n')
		if i < 0 {
			return b
		}
		r.readLine(b[:fresh+i])
		b, fresh = b[fresh+i+1:], 0
	}
}

// readLine processes one line, without its end.
func (r *reading) readLine(line []byte) {
	r.work.lines++
	if len(line) > 0 && isBlank(line[0]) {
		line = trimBlanks(line)
	}
	g, may := r.mayMatch(line)
	if !may {
		return
	}
	r.work.candidates++
	for i := range g.wanted {
		if series, ok := g.wanted[i].matchLine(line); ok {
			r.readSeries(&g.wanted[i], series)
		}
	}
}

// readSeries processes a series of a wanted metric.
func (r *reading) readSeries(w *wantedMetric, series []byte) {
	r.work.series++
	r.work.seriesBytes += len(series)
	labels, rest, ok := splitSeries(series)
	if !ok {
		return
	}
	for i := range w.labels {
		if string(labelValue(labels, w.labels[i].name)) != w.labels[i].value {
			return
		}
	}
	value, ok := parseNumber(rest)
	switch {
	case !ok:
		return
	case w.role == asInfo:
		value = r.infoTokens(labels)
		r.align = max(r.align, r.infoAlignment(labels))
	case w.role == asLoRA:
		r.lora.readLabels(labels, value)
		return
	case !w.role.isPossible(value):
		return
	}
	if w.role == asCount && len(r.model) == 0 {
		r.takeModel(labels)
	}
	r.addSeries(w.slot, w.role, labels, value)
}

// takeModel takes the name of the model from the labels of a gauge.
func (r *reading) takeModel(labels []byte) {
	if r.ModelLabel == "" {
		return
	}
	if name := labelValue(labels, r.ModelLabel); len(name) <= maxModelName {
		r.model = append(r.model, name...)
	}
}

// isPossible reports whether a metric of a role can have a value.
func (r role) isPossible(value float64) bool {
	switch r {
	case asFigure, asInfo:
		return true
	case asTotal:
		return value >= 0 && value <= maxTotal
	default:
		return value >= 0 && value <= maxCount
	}
}

// infoTokens returns the size of the KV cache according to the labels of a series.
func (r *reading) infoTokens(labels []byte) float64 {
	if r.TokensLabel != "" {
		if tokens := labelNumber(labels, r.TokensLabel); tokens > 0 {
			return float64(tokens)
		}
	}
	return float64(labelNumber(labels, r.BlockSizeLabel)) * float64(labelNumber(labels, r.BlocksLabel))
}

// infoAlignment returns the tokens that cached prefixes are multiples of, according to the labels of a series.
func (r *reading) infoAlignment(labels []byte) int {
	for _, name := range r.AlignmentLabels {
		if tokens := labelNumber(labels, name); tokens > 0 {
			return tokens
		}
	}
	return labelNumber(labels, r.BlockSizeLabel)
}

// toGauges returns the values of the page.
func (r *reading) toGauges() (endpoint.Gauges, error) {
	if err := r.computeSums(); err != nil {
		return endpoint.Gauges{}, err
	}
	waiting, running := r.firstValue(r.waiting), r.firstValue(r.running)
	if !waiting.seen && !running.seen {
		return endpoint.Gauges{}, fmt.Errorf("%w of %s", errNoGauges, r.Name)
	}
	g := endpoint.Gauges{
		Waiting:   waiting.sum,
		Running:   running.sum,
		KVUsage:   min(r.firstValue(r.kvUsage).greatest, 1),
		Blocks:    int(min(r.cacheTokens()/prefixindex.BlockTokens, maxCount)),
		Alignment: max(r.align, int(r.firstValue(r.blockSize).greatest)),
		Page:      r.last.pageOf(r),
	}
	r.setTotals(&g)
	return g, nil
}

// setTotals sets the counters of the prefix cache, if the page has them.
func (r *reading) setTotals(g *endpoint.Gauges) {
	queries, hits, missed := r.firstValue(r.queries), r.firstValue(r.hits), r.firstValue(r.missed)
	if missed.seen {
		queries = metricValue{sum: hits.sum + missed.sum, seen: true}
	}
	if !queries.seen || !hits.seen {
		return
	}
	unit := 1.0
	if r.InBlocks {
		unit = r.firstValue(r.blockSize).greatest
	}
	g.Queries, g.Hits, g.Counted = queries.sum*unit, hits.sum*unit, true
}

// cacheTokens returns the size of the KV cache, 0 if unknown.
func (r *reading) cacheTokens() float64 {
	tokens := r.firstValue(r.cacheInfo).sum
	if tokens == 0 {
		tokens = r.firstValue(r.blockSize).greatest * r.firstValue(r.blocks).sum
	}
	if tokens == 0 {
		tokens = r.firstValue(r.tokens).sum
	}
	if tokens == 0 {
		return 0 // the host's part alone is no size
	}
	return tokens + r.firstValue(r.hostTokens).sum
}
