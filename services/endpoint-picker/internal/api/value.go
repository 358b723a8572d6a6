package api

import (
	"bytes"
	"math/bits"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
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

// memberHash are the members of an object, in any order.
type memberHash struct {
	sum  uint64 // of the hashes of the members
	size int    // of their values, in bytes
}

func (m *memberHash) addMember(key uint64, v value) {
	m.sum += mixHashes(key, v.hash)
	m.size += v.size
}

// toPart returns the members as a part of a prompt.
func (m *memberHash) toPart() Part {
	return Part{Hash: mixHashes(seedObject, m.sum), Size: uint32(m.size), Kind: Value}
}

// mixHashes returns a hash of two hashes, in their order.
func mixHashes(a, b uint64) uint64 {
	h := (bits.RotateLeft64(a, 27)*seedString ^ b) * seedList
	return h ^ h>>32
}

// hashString returns the hash of a string in its shortest spelling, as a value.
func hashString(short string) uint64 { return mixHashes(seedString, xxhash.Sum64String(short)) }

// A shape says what in a value is no part of the prompt, because servers drop it or do not tell it from its absence.
type shape uint8

const (
	plain shape = iota // marks for caching
	tool               // also members that are null, in the tool and its function
	call               // also the index of a call of a tool. Its arguments are a text that servers parse
	exact              // nothing
)

// memberShape returns the shape of a member.
func (s shape) memberShape(key []byte) shape {
	if s == exact || (s == tool || s == call) && string(key) == "function" {
		return s
	}
	return plain
}

// dropsMember reports whether a member is no part of the prompt, whatever its value.
func (s shape) dropsMember(key []byte) bool {
	return s != exact && (string(key) == keyCacheControl || s == call && string(key) == "index")
}

// readValue reads the next value.
func (r *Request) readValue(depth int, sh shape) value {
	s := &r.scanner
	switch kind := s.NextKind(); {
	case kind == String:
		span, _ := s.ReadString()
		return r.stringValue(span, s.Surplus())
	case kind == Array && depth > 0:
		return r.readList(depth-1, sh)
	case kind == Object && depth > 0:
		return r.readObject(depth-1, sh)
	case kind == Number:
		return numberValue(r.bodyText(s.SkipValue()))
	}
	text := r.bodyText(s.SkipValue())
	return value{xxhash.Sum64(text), len(text)}
}

// stringValue returns a string as a value, which is longer by the surplus than its shortest spelling.
func (r *Request) stringValue(span Span, surplus int) value {
	return value{mixHashes(seedString, r.hashText(span, surplus)), span.To - span.From - surplus + len(`""`)}
}

// maxNumber is the maximum length of a number whose spelling does not count, in bytes. Python writes at most 24.
const maxNumber = 32

// numberValue returns a number as a value. 1e2 and 100.0 are the same, as for Python, and 100 is another one.
func numberValue(text []byte) value {
	if len(text) <= maxNumber && bytes.ContainsAny(text, ".eE") {
		if f, err := strconv.ParseFloat(string(text), 64); err == nil {
			var shortest [maxNumber]byte
			text = strconv.AppendFloat(shortest[:0], f, 'e', -1, 64)
		}
	}
	return value{xxhash.Sum64(text), len(text)}
}

func (r *Request) readList(depth int, sh shape) value {
	list := value{seedList, len(`[`)}
	r.scanner.EnterValue()
	for r.scanner.NextElement() {
		v := r.readValue(depth, sh)
		list.hash = mixHashes(list.hash, v.hash)
		list.size += v.size + len(`,`)
	}
	list.size = max(list.size, len(`[]`)) // in place of the last comma
	return list
}

func (r *Request) readObject(depth int, sh shape) value {
	var m memberHash
	size := len(`{`)
	r.scanner.EachMember(func(key []byte) {
		if sh.dropsMember(key) || (sh == tool || sh == call) && r.scanner.NextKind() == Null {
			r.scanner.SkipValue()
			return
		}
		name, n, inner := xxhash.Sum64(key), len(key), sh.memberShape(key)
		if sh == call && string(key) == keyArguments {
			m.addMember(name, r.readArguments())
		} else {
			m.addMember(name, r.readValue(depth, inner))
		}
		size += n + len(`"":,`)
	})
	return value{mixHashes(seedObject, m.sum), max(size+m.size, len(`{}`))}
}

const (
	keyArguments = "arguments"
	// maxArguments is the maximum length of the arguments of a call whose spelling does not count, in bytes. Longer ones match as they are
	// written: clients send them as they got them. Those of most calls have some hundreds; an agent that writes a file sends all of it.
	maxArguments = 64 << 10
	// pooledArguments is the capacity of the buffer for arguments that may stay in a pool.
	pooledArguments = 4 << 10
)

// readArguments reads the arguments of a call of a tool: a string with the JSON text of an object, which servers parse before they make the
// prompt (vLLM, SGLang). It hashes the object, and other strings as they are. What is in strings of the object is not parsed again.
func (r *Request) readArguments() value {
	if r.scanner.NextKind() != String {
		return r.readValue(maxValueDepth, exact)
	}
	span, _ := r.scanner.ReadString()
	surplus := r.scanner.Surplus()
	switch text := r.bodyText(span); {
	case len(text) == 0: // servers do not tell it from an empty object
		return value{mixHashes(seedObject, 0), len(`{}`)}
	case len(text) <= maxArguments && strings.IndexByte(`{ \`, text[0]) >= 0:
		r.arguments = Unescape(r.arguments[:0], text)
		if v, ok := r.parseArguments(); ok {
			return v
		}
	}
	return r.stringValue(span, surplus)
}

// parseArguments reads the JSON object in the buffer for arguments. It reports whether the buffer has one.
func (r *Request) parseArguments() (v value, ok bool) {
	body := r.body
	r.scanner, r.inner, r.body = r.inner, r.scanner, r.arguments
	r.scanner.NonFinite, r.scanner.Terse = true, true
	r.scanner.Reset(r.arguments)
	if r.scanner.NextKind() == Object {
		v = r.readValue(maxValueDepth, exact)
		ok = r.scanner.CheckEnd() == nil
	}
	r.scanner.Reset(nil)
	r.scanner, r.inner, r.body = r.inner, r.scanner, body
	return v, ok
}

// hashText returns the hash of a string in its shortest spelling, than which it is longer by the surplus.
func (r *Request) hashText(span Span, surplus int) uint64 {
	if surplus == 0 {
		return xxhash.Sum64(r.bodyText(span))
	}
	r.hasher.Reset()
	for piece := range Short(r.bodyText(span), r.textBuffer()) {
		_, _ = r.hasher.Write(piece) // it never fails
	}
	return r.hasher.Sum64()
}

// textBuffer returns the buffer for strings that are not in their shortest spelling.
func (r *Request) textBuffer() []byte {
	if r.short == nil {
		r.short = make([]byte, 0, shortBytes)
	}
	return r.short
}

// readPart reads a string, a list or an object whose beginning alone is of no use. Other values are no part of a prompt, nor are empty
// ones.
func (r *Request) readPart(sh shape) Part {
	kind := r.scanner.NextKind()
	if kind != String && kind != Array && kind != Object {
		r.scanner.SkipValue()
		return Part{}
	}
	from := r.scanner.Offset()
	v := r.readValue(maxValueDepth, sh)
	return r.valuePart(v, kind, from)
}

// valuePart returns a value of a kind as a part, from its offset in the body.
func (r *Request) valuePart(v value, kind ValueKind, from int) Part {
	size := v.size
	if kind == String || size == len(`[]`) {
		size -= len(`""`)
	}
	return Part{Hash: v.hash, From: uint32(from), To: uint32(r.scanner.Offset()), Size: uint32(max(size, 0)), Kind: Value}
}

// readText reads a string as the text of a prompt, and other values as readPart does.
func (r *Request) readText() Part {
	if r.scanner.NextKind() != String {
		return r.readPart(plain)
	}
	span, _ := r.scanner.ReadString()
	size := span.To - span.From - r.scanner.Surplus()
	return Part{From: uint32(span.From), To: uint32(span.To), Size: uint32(size)}
}

// attribution begins a block of the system prompt that differs in each request of a common coding client. Servers drop it: vLLM since
// https://github.com/vllm-project/vllm/pull/36829, llama.cpp since https://github.com/ggml-org/llama.cpp/pull/20623.
const attribution = "x-anthropic-billing-header"

// hasAttribution reports whether a block of the system prompt begins with an attribution.
func (r *Request) hasAttribution(p Part) bool {
	return p.Kind == Text && hasShortPrefix(r.body[p.From:p.To], attribution, r.textBuffer())
}

// withoutAttribution returns the rest of a system prompt without its first line if that is an attribution.
func (r *Request) withoutAttribution(p Part) Part {
	if !r.hasAttribution(p) {
		return p
	}
	line, rest := cutLine(r.body[p.From:p.To])
	if len(rest) == 0 {
		return Part{}
	}
	size := 0
	for piece := range Short(line, r.textBuffer()) {
		size += len(piece)
	}
	p.From += uint32(len(line))
	p.Size -= uint32(size)
	return p
}

// withoutBlock returns a block of a system prompt, nothing if it is an attribution.
func (r *Request) withoutBlock(p Part) Part {
	if r.hasAttribution(p) {
		return Part{}
	}
	return p
}
