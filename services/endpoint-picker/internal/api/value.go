package api

import (
	"bytes"
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
)

const (
	// maxValueDepth is the maximum depth of values whose spelling does not count. Deeper values are hashed as they are written, because a
	// deep recursion would take a large stack. Schemas of tools in public collections have at most a dozen levels.
	maxValueDepth = 32
	// shortBytes is the size of the buffer for strings that are not in their shortest spelling.
	shortBytes = 512
	// keyCacheControl is a mark that servers ignore, and that clients move from block to block.
	keyCacheControl = "cache_control"
)

// Seeds of hashes, so that values of different kinds differ: arbitrary odd numbers.
const (
	seedString = 0x9e3779b97f4a7c15
	seedList   = 0xc2b2ae3d27d4eb4f
	seedObject = 0x165667b19e3779f9
)

// A value is a JSON value without its spelling: neither blanks, nor escapes, nor the order of keys, nor marks for caching change it.
type value struct {
	hash uint64
	size int // bytes of its shortest spelling
}

// members are the members of an object, in any order.
type members struct {
	sum  uint64 // of the hashes of the members
	size int    // of their values, in bytes
}

func (m *members) add(key uint64, v value) {
	m.sum += mix(key, v.hash)
	m.size += v.size
}

// part returns the members as a part of a prompt.
func (m *members) part() Part {
	return Part{Hash: mix(seedObject, m.sum), Size: uint32(m.size), Kind: Value}
}

// mix returns a hash of two hashes, in their order.
func mix(a, b uint64) uint64 {
	h := (bits.RotateLeft64(a, 27)*seedString ^ b) * seedList
	return h ^ h>>32
}

// hashString returns the hash of a string in its shortest spelling, as a value.
func hashString(short string) uint64 { return mix(seedString, xxhash.Sum64String(short)) }

// readValue reads the next value.
func (r *Request) readValue(depth int) value {
	s := &r.scanner
	switch kind := s.Next(); {
	case kind == jsonscan.String:
		span, _ := s.String()
		size := span.To - span.From - s.Surplus()
		return value{mix(seedString, r.hashText(span, s.Surplus())), size + len(`""`)}
	case kind == jsonscan.Array && depth > 0:
		return r.readList(depth - 1)
	case kind == jsonscan.Object && depth > 0:
		return r.readObject(depth - 1)
	}
	text := r.text(s.Value())
	return value{xxhash.Sum64(text), len(text)}
}

func (r *Request) readList(depth int) value {
	list := value{seedList, len(`[`)}
	r.scanner.Open()
	for r.scanner.More() {
		v := r.readValue(depth)
		list.hash = mix(list.hash, v.hash)
		list.size += v.size + len(`,`)
	}
	list.size = max(list.size, len(`[]`)) // in place of the last comma
	return list
}

func (r *Request) readObject(depth int) value {
	var m members
	size := len(`{`)
	r.eachMember(func(key []byte) {
		if string(key) == keyCacheControl {
			r.scanner.Value()
			return
		}
		name, n := xxhash.Sum64(key), len(key)
		m.add(name, r.readValue(depth))
		size += n + len(`"":,`)
	})
	return value{mix(seedObject, m.sum), max(size+m.size, len(`{}`))}
}

// hashText returns the hash of a string in its shortest spelling, than which it is longer by the surplus.
func (r *Request) hashText(span jsonscan.Span, surplus int) uint64 {
	if surplus == 0 {
		return xxhash.Sum64(r.text(span))
	}
	r.hasher.Reset()
	for piece := range jsonscan.Short(r.text(span), r.buffer()) {
		_, _ = r.hasher.Write(piece) // it never fails
	}
	return r.hasher.Sum64()
}

// buffer returns the buffer for strings that are not in their shortest spelling.
func (r *Request) buffer() []byte {
	if r.short == nil {
		r.short = make([]byte, 0, shortBytes)
	}
	return r.short
}

// readPart reads a string, a list or an object whose beginning alone is of no use. Other values are no part of a prompt, nor are empty ones.
func (r *Request) readPart() Part {
	kind := r.scanner.Next()
	if kind != jsonscan.String && kind != jsonscan.Array && kind != jsonscan.Object {
		r.scanner.Value()
		return Part{}
	}
	from := r.scanner.At()
	v := r.readValue(maxValueDepth)
	size := v.size
	if kind == jsonscan.String || size == len(`[]`) {
		size -= len(`""`)
	}
	return Part{Hash: v.hash, From: uint32(from), To: uint32(r.scanner.At()), Size: uint32(max(size, 0)), Kind: Value}
}

// readText reads a string as the text of a prompt, and other values as readPart does.
func (r *Request) readText() Part {
	if r.scanner.Next() != jsonscan.String {
		return r.readPart()
	}
	span, _ := r.scanner.String()
	size := span.To - span.From - r.scanner.Surplus()
	return Part{From: uint32(span.From), To: uint32(span.To), Size: uint32(size)}
}

// attribution begins a block of the system prompt that differs in each request of a common coding client. Servers drop it: vLLM since
// https://github.com/vllm-project/vllm/pull/36829, llama.cpp since https://github.com/ggml-org/llama.cpp/pull/20623.
const attribution = "x-anthropic-billing-header"

// withoutAttribution returns the rest of a system prompt without its first line if that is an attribution.
func (r *Request) withoutAttribution(p Part) Part {
	text := r.body[p.From:p.To]
	if p.Kind != Text || !bytes.HasPrefix(text, []byte(attribution)) {
		return p
	}
	line, _, more := bytes.Cut(text, []byte(`\n`))
	if !more {
		return Part{}
	}
	size := 0
	dropped := text[:len(line)+len(`\n`)]
	for piece := range jsonscan.Short(dropped, r.buffer()) {
		size += len(piece)
	}
	p.From += uint32(len(dropped))
	p.Size -= uint32(size)
	return p
}

// withoutBlock returns a block of a system prompt, nothing if it is an attribution.
func (r *Request) withoutBlock(p Part) Part {
	if p.Kind == Text && bytes.HasPrefix(r.body[p.From:p.To], []byte(attribution)) {
		return Part{}
	}
	return p
}
