// Package metrics writes the /metrics page of a vLLM 0.32 server, or of an older one: the families with their names, help
// texts, labels and buckets, and the families of the Python process and its HTTP instrumentation. The page is modeled on the page
// of a real server.
//
// The package does not use client_golang, because the page must look like a page of Python's client: floats have a point (1.0), a
// _created gauge follows each counter and histogram, and the order is that of registration. The package formats everything except
// the values only once, so a page costs little more than a copy.
package metrics

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
)

// ContentType is the media type of the page.
const ContentType = "text/plain; version=1.0.0; charset=utf-8"

// Params are the parameters of NewPage.
type Params struct {
	Model   string // name in the labels
	Spec    engine.Spec
	Started time.Time
	Names   Names
	LoRA    bool // the server has LoRA adapters
}

// Page is the metrics page of one server. It is safe for concurrent use.
type Page struct {
	families []family
	size     int // of the last page, to allocate the next one at once

	mu      sync.Mutex
	http    *httpStats
	process *processStats
	lora    *loraHistory // nil without LoRA
}

// A family appends its lines to a page.
type family func(dst []byte, s *engine.Stats) []byte

// NewPage returns the page of a server.
func NewPage(p Params) *Page {
	b := builder{
		labels:  []label{{"engine", "0"}, {"model_name", p.Model}},
		created: appendFloat(nil, float64(p.Started.UnixMicro())/1e6),
		names:   p.Names,
	}
	b.pythonFamilies()
	if b.names.recent() {
		b.utilizationFamilies()
	}
	b.schedulerFamilies()
	b.tokenFamilies()
	b.requestFamilies()
	b.cacheConfig(p.Spec)
	page := &Page{
		families: b.families,
		size:     48 << 10,
		http:     newHTTPStats(b.created),
		process:  newProcessStats(p.Started),
	}
	if p.LoRA {
		page.lora = newLoRAHistory(p.Spec.MaxLoRAs)
	}
	return page
}

// Append appends the page with the values at time now.
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
	if p.lora != nil {
		dst = p.lora.append(dst, s, now)
	}
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

// builder collects the families of a page for which only the values change.
type builder struct {
	labels   []label
	created  []byte
	names    Names
	families []family
}

// part is one series of a splitFamily.
type part struct {
	value string // of the label
	get   func(*engine.Stats) float64
}

func (b *builder) add(f family) { b.families = append(b.families, f) }

func (b *builder) static(text string) {
	b.add(func(dst []byte, _ *engine.Stats) []byte { return append(dst, text...) })
}

func (b *builder) gauge(name, help string, value func(*engine.Stats) float64) {
	prefix := header(name, "gauge", help) + series(name, b.labels...)
	b.add(func(dst []byte, s *engine.Stats) []byte { return appendSample(dst, prefix, value(s)) })
}

// counter adds a counter. The name must not have the suffix _total.
func (b *builder) counter(name, help string, value func(*engine.Stats) float64) {
	prefix := header(name+"_total", "counter", help) + series(name+"_total", b.labels...)
	created := b.createdLines(name, help, b.labels...)
	b.add(func(dst []byte, s *engine.Stats) []byte {
		return append(appendSample(dst, prefix, value(s)), created...)
	})
}

// splitFamily is a family with several series, which differ in one additional label.
type splitFamily struct {
	name, help string // of a counter, without _total
	by         string // name of the additional label
	labels     []label
	parts      []part
}

// splitGauge adds a gauge with several series.
func (b *builder) splitGauge(f splitFamily) { b.addSplit(f, f.name, "gauge") }

// splitCounter adds a counter with several series.
func (b *builder) splitCounter(f splitFamily) {
	b.addSplit(f, f.name+"_total", "counter")
	created := header(f.name+"_created", "gauge", f.help)
	for _, p := range f.parts {
		created += f.series(f.name+"_created", p) + string(b.created) + "\n"
	}
	b.static(created)
}

func (b *builder) addSplit(f splitFamily, name, kind string) {
	head := header(name, kind, f.help)
	var prefixes []string
	for _, p := range f.parts {
		prefixes = append(prefixes, f.series(name, p))
	}
	b.add(func(dst []byte, s *engine.Stats) []byte {
		dst = append(dst, head...)
		for i, p := range f.parts {
			dst = appendSample(dst, prefixes[i], p.get(s))
		}
		return dst
	})
}

func (f *splitFamily) series(name string, p part) string {
	return series(name, append(slices.Clone(f.labels), label{f.by, p.value})...)
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

// createdLines returns the gauge that Python's client writes after a counter or histogram.
func (b *builder) createdLines(name, help string, labels ...label) string {
	name += "_created"
	return header(name, "gauge", help) + series(name, labels...) + string(b.created) + "\n"
}

// cacheConfig adds the size of the KV cache. The labels are the configuration of the cache, without model_name.
func (b *builder) cacheConfig(spec engine.Spec) {
	const name = "vllm:cache_config_info"
	size, tokens := strconv.Itoa(spec.BlockSize), spec.NumBlocks*spec.BlockSize
	labels := []label{
		{"block_size", size}, {"cache_dtype", "auto"}, {"enable_prefix_caching", "True"}, {"engine", "0"}, {"is_attention_free", "False"},
		{"kv_cache_memory_bytes", "None"}, {"num_cpu_blocks", "None"}, {"num_gpu_blocks", strconv.Itoa(spec.NumBlocks)},
		{"num_gpu_blocks_override", "None"}, {"prefix_caching_hash_algo", "sha256"}, {"sliding_window", "None"},
	}
	if b.names.recent() {
		labels = append(labels, []label{
			{"_block_size_resolved", "True"}, {"cache_hit_alignment_tokens", "None"}, {"effective_attention_block_size", size},
			{"enable_mamba_shared_prefix_checkpoint", "False"}, {"gpu_memory_utilization", "0.92"}, {"hash_block_size", "None"},
			{"kv_cache_dtype_skip_layers", "[]"}, {"kv_cache_layout", "None"},
			{"kv_cache_max_concurrency", string(appendFloat(nil, float64(tokens)/float64(spec.MaxModelLen)))},
			{"kv_cache_size_tokens", strconv.Itoa(tokens)}, {"kv_offloading_backend", "native"}, {"kv_offloading_size", "None"},
			{"kv_sharing_fast_prefill", "False"}, {"mamba_block_size", "None"}, {"mamba_cache_dtype", "auto"}, {"mamba_cache_mode", "none"},
			{"mamba_page_size_padded", "None"}, {"mamba_ssm_cache_dtype", "float32"}, {"prefix_cache_retention_interval", "0"},
			{"prefix_match_unit", "None"}, {"replayssm_buffer_len", "16"}, {"skip_page_size_padded", "None"},
			{"swa_bounded_replay", "True"}, {"use_kda_recoverssm", "False"}, {"use_replayssm", "False"},
			{"user_specified_block_size", "False"},
		}...)
	} else {
		labels = append(labels, []label{
			{"calculate_kv_scales", "False"}, {"cpu_offload_gb", "0"}, {"gpu_memory_utilization", "0.9"}, {"swap_space", "4"},
		}...)
	}
	b.static(header(name, "gauge", "Information of the LLMEngine CacheConfig") + series(name, labels...) + "1.0\n")
}

// pythonFamilies adds the families of the Python interpreter. The emulator has no interpreter, so the values are constant.
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
		label{"implementation", "CPython"}, label{"major", "3"}, label{"minor", "12"}, label{"patchlevel", "11"},
		label{"version", "3.12.11"}) + "1.0\n"
	b.static(text)
}
