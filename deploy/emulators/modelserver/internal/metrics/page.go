// Package metrics writes the /metrics page of a vLLM server: the families of vllm/v1/metrics/loggers.py with their
// names, help texts, labels and buckets, the names that vLLM had before and still has readers, and what the Python
// process and its HTTP instrumentation add.
//
// The page is written by hand, not by client_golang, because it stands for a page of Python's client: floats have a
// point (1.0), a _created gauge follows each counter and histogram, the order is that of registration. All but the
// values is laid out once, so a page costs little more than copying it.
package metrics

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
)

// ContentType is the media type of the page.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Params are what the page says about the server.
type Params struct {
	Model   string // name in the labels
	Spec    engine.Spec
	Started time.Time
}

// Page is the metrics page of one server. It is safe for concurrent use.
type Page struct {
	families []family
	size     int // of the last page, to allocate the next one at once

	mu      sync.Mutex
	http    *httpStats
	process *processStats
	lora    *loraHistory
}

// A family appends its lines to a page.
type family func(dst []byte, s *engine.Stats) []byte

// NewPage lays out the page of a server.
func NewPage(p Params) *Page {
	b := builder{
		labels:  []label{{"engine", "0"}, {"model_name", p.Model}},
		created: appendFloat(nil, float64(p.Started.UnixMicro())/1e6),
	}
	b.pythonFamilies()
	b.schedulerFamilies()
	b.tokenFamilies()
	b.requestFamilies()
	b.cacheConfig(p.Spec)
	return &Page{
		families: b.families,
		size:     48 << 10,
		http:     newHTTPStats(b.created),
		process:  newProcessStats(p.Started),
		lora:     newLoRAHistory(p.Spec.MaxLoRAs),
	}
}

// Append appends the page as of now.
func (p *Page) Append(dst []byte, s *engine.Stats, now time.Time) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if dst == nil {
		dst = make([]byte, 0, p.size+p.size/8)
	}
	dst = p.process.append(dst, now)
	for _, f := range p.families {
		dst = f(dst, s)
	}
	dst = p.lora.append(dst, s, now)
	dst = p.http.append(dst)
	p.size = len(dst)
	return dst
}

// ObserveHTTP counts an answered HTTP request.
func (p *Page) ObserveHTTP(r HTTPRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.http.observe(r)
}

// builder collects the families of a page whose lines differ in their values only.
type builder struct {
	labels   []label
	created  []byte
	families []family
}

func (b *builder) add(f family) { b.families = append(b.families, f) }

func (b *builder) static(text string) {
	b.add(func(dst []byte, _ *engine.Stats) []byte { return append(dst, text...) })
}

func (b *builder) gauge(name, help string, value func(*engine.Stats) float64) {
	prefix := header(name, "gauge", help) + series(name, b.labels...)
	b.add(func(dst []byte, s *engine.Stats) []byte { return appendSample(dst, prefix, value(s)) })
}

// counter adds a counter whose name comes without _total.
func (b *builder) counter(name, help string, value func(*engine.Stats) float64) {
	prefix := header(name+"_total", "counter", help) + series(name+"_total", b.labels...)
	created := b.createdLines(name, help, b.labels...)
	b.add(func(dst []byte, s *engine.Stats) []byte {
		return append(appendSample(dst, prefix, value(s)), created...)
	})
}

func (b *builder) histogram(name, help string, get func(*engine.Stats) *engine.Histogram) {
	var layout histogramLayout
	created := b.createdLines(name, help, b.labels...)
	head := header(name, "histogram", help)
	b.add(func(dst []byte, s *engine.Stats) []byte {
		h := get(s)
		if layout.buckets == nil {
			layout = newHistogramLayout(name, h.Bounds, b.labels...)
		}
		dst = append(dst, head...)
		dst = layout.append(dst, h)
		return append(dst, created...)
	})
}

// createdLines are the gauge that Python's client writes after a counter or histogram.
func (b *builder) createdLines(name, help string, labels ...label) string {
	name += "_created"
	return header(name, "gauge", help) + series(name, labels...) + string(b.created) + "\n"
}

// cacheConfig writes the size of the KV cache. Its labels are configuration, not model_name.
func (b *builder) cacheConfig(spec engine.Spec) {
	const name = "vllm:cache_config_info"
	b.static(header(name, "gauge", "Information of the LLMEngine CacheConfig") + series(name,
		label{"block_size", strconv.Itoa(spec.BlockSize)},
		label{"cache_dtype", "auto"},
		label{"calculate_kv_scales", "False"},
		label{"cpu_kvcache_space_bytes", "None"},
		label{"cpu_offload_gb", "0"},
		label{"enable_prefix_caching", "True"},
		label{"engine", "0"},
		label{"gpu_memory_utilization", "0.9"},
		label{"is_attention_free", "False"},
		label{"kv_cache_memory_bytes", "None"},
		label{"num_cpu_blocks", "None"},
		label{"num_gpu_blocks", strconv.Itoa(spec.NumBlocks)},
		label{"num_gpu_blocks_override", "None"},
		label{"prefix_caching_hash_algo", "sha256"},
		label{"sliding_window", "None"},
		label{"swap_space", "4"},
		label{"swap_space_bytes", "4294967296"},
	) + "1.0\n")
}

// pythonFamilies are those of the Python interpreter. There is none, so their values stand still.
func (b *builder) pythonFamilies() {
	text := ""
	for _, f := range []struct {
		name, help string
		values     [3]int
	}{
		{"python_gc_objects_collected_total", "Objects collected during gc", [3]int{10781, 1502, 1198}},
		{"python_gc_objects_uncollectable_total", "Uncollectable objects found during GC", [3]int{}},
		{"python_gc_collections_total", "Number of times this generation was collected", [3]int{1314, 119, 9}},
	} {
		text += header(f.name, "counter", f.help)
		for generation, v := range f.values {
			text += fmt.Sprintf("%s%d.0\n", series(f.name, label{"generation", strconv.Itoa(generation)}), v)
		}
	}
	text += header("python_info", "gauge", "Python platform information") + series("python_info",
		label{"implementation", "CPython"}, label{"major", "3"}, label{"minor", "12"}, label{"patchlevel", "11"}, label{"version", "3.12.11"}) + "1.0\n"
	b.static(text)
}
