package modelserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
)

// The gauges of a vLLM page. Pages of the time in between have both names of the KV cache's.
const (
	gaugePrefix  = "vllm:"
	gaugeWaiting = "num_requests_waiting"
	gaugeRunning = "num_requests_running"
	gaugeKV      = "kv_cache_usage_perc"
	gaugeKVOld   = "gpu_cache_usage_perc"
	infoCache    = "cache_config_info"

	labelBlockSize = "block_size"     // tokens
	labelBlocks    = "num_gpu_blocks" // of the KV cache
)

const (
	maxLine = 16 << 10 // longer lines are left out: none of those wanted comes near it
	maxPage = 16 << 20 // a page that goes on longer is not one
)

var errNoGauges = errors.New("page without vLLM request gauges")

// page collects the wanted gauges while the lines go by.
type page struct {
	waiting, running float64
	kv, kvOld        float64
	requests         bool // waiting or running was there
	kvNew            bool // the new name was there
	blocks           int
}

// readPage reads a metrics page in the Prometheus text format for the gauges it wants, through a buffer that it is
// lent. It does not build the page and does not judge the lines it does not want. Requests are summed over the
// engines of a server; of their KV caches the fullest counts.
func readPage(r io.Reader, buf []byte) (endpoint.Gauges, error) {
	var p page
	var held, total int // bytes at the start of buf that await the end of their line; bytes read
	skipping := false   // in the middle of a line that is too long
	for {
		n, err := r.Read(buf[held:])
		end := held + n
		total += n
		rest := buf[:end]
		for {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				break
			}
			if !skipping {
				p.line(rest[:i])
			}
			skipping = false
			rest = rest[i+1:]
		}
		switch {
		case errors.Is(err, io.EOF):
			if !skipping {
				p.line(rest)
			}
			return p.gauges()
		case err != nil:
			return endpoint.Gauges{}, fmt.Errorf("read metrics page: %w", err)
		case total > maxPage:
			return endpoint.Gauges{}, fmt.Errorf("read metrics page: over %d bytes", maxPage)
		}
		if len(rest) == len(buf) {
			skipping, rest = true, rest[:0]
		}
		held = copy(buf, rest)
	}
}

// gauges returns what the page said.
func (p *page) gauges() (endpoint.Gauges, error) {
	if !p.requests {
		return endpoint.Gauges{}, errNoGauges
	}
	g := endpoint.Gauges{Waiting: p.waiting, Running: p.running, KVUsage: p.kvOld}
	if p.kvNew {
		g.KVUsage = p.kv
	}
	g.KVUsage, g.Blocks = min(g.KVUsage, 1), p.blocks
	return g, nil
}

// line takes one line, without its end.
func (p *page) line(line []byte) {
	line, wanted := bytes.CutPrefix(trimBlanks(line), []byte(gaugePrefix))
	if !wanted {
		return
	}
	i := bytes.IndexAny(line, "{ \t")
	if i < 0 {
		return
	}
	name := line[:i]
	switch string(name) {
	case infoCache:
		size, blocks := labelNumber(line[i:], labelBlockSize), labelNumber(line[i:], labelBlocks)
		p.blocks += size * blocks / prefix.BlockTokens
		return
	case gaugeWaiting, gaugeRunning, gaugeKV, gaugeKVOld:
	default:
		return
	}
	value, ok := sampleValue(line[i:])
	if !ok {
		return
	}
	switch string(name) {
	case gaugeWaiting:
		p.waiting, p.requests = p.waiting+value, true
	case gaugeRunning:
		p.running, p.requests = p.running+value, true
	case gaugeKV:
		p.kv, p.kvNew = max(p.kv, value), true
	case gaugeKVOld:
		p.kvOld = max(p.kvOld, value)
	}
}

// sampleValue reads what follows a metric's name: labels, value, and perhaps a timestamp. Values that cannot be a
// count or a share are refused.
func sampleValue(b []byte) (float64, bool) {
	b = trimBlanks(b)
	if len(b) > 0 && b[0] == '{' {
		end := labelsEnd(b)
		if end < 0 {
			return 0, false
		}
		b = trimBlanks(b[end:])
	}
	if i := bytes.IndexAny(b, " \t"); i >= 0 {
		b = b[:i]
	}
	if bytes.ContainsAny(b, "pP_") { // Go's own notations, which the format does not have
		return 0, false
	}
	v, err := strconv.ParseFloat(string(b), 64)
	return v, err == nil && v >= 0 && !math.IsInf(v, 1)
}

// labelNumber returns the value of a label that is a number, 0 if it is not or is not there.
func labelNumber(labels []byte, name string) int {
	for {
		i := bytes.Index(labels, []byte(name))
		if i < 0 {
			return 0
		}
		whole := i > 0 && (labels[i-1] == '{' || labels[i-1] == ',' || labels[i-1] == ' ')
		labels = labels[i+len(name):]
		if value, ok := bytes.CutPrefix(labels, []byte(`="`)); ok && whole {
			value, _, _ = bytes.Cut(value, []byte{'"'})
			n, err := strconv.Atoi(string(value))
			if err != nil || n < 0 || n > 1<<30 {
				return 0
			}
			return n
		}
	}
}

// labelsEnd returns the length of the label set with which b begins, or -1 if it does not end. Braces inside quoted
// label values do not count.
func labelsEnd(b []byte) int {
	quoted := false
	for i := 0; i < len(b); i++ {
		switch {
		case quoted && b[i] == '\\':
			i++
		case b[i] == '"':
			quoted = !quoted
		case b[i] == '}' && !quoted:
			return i + 1
		}
	}
	return -1
}

// trimBlanks cuts the blanks at the start.
func trimBlanks(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}
