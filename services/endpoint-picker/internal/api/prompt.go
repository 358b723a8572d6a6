package api

import (
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// Estimated tokens of media, whatever their size: neither their length in bytes nor their address tells it. vLLM and SGLang
// ignore OpenAI's detail: low. An estimate at half or double of the truth is a wrong load of as many tokens, and as many blocks
// too few or too many in the index of prefixes.
const (
	// imageTokens is 24 x 24 patches: CLIP at 336 pixels, as in LLaVA 1.5. A megapixel is 1300 in Qwen2-VL.
	imageTokens = 576
	// audioTokens is 30 seconds of Qwen2-Audio, which has 25 tokens a second.
	audioTokens = 750
	// videoTokens is 10 seconds of two frames of 225 tokens (640 x 360 pixels), as in the defaults of the llm-d router.
	videoTokens = 4500
	// fileTokens is one page of a PDF, for which Anthropic's documentation names 1500 to 3000 tokens.
	fileTokens = 2250
)

// Limits on the parts of one prompt.
const (
	// maxPromptParts is the maximum number of parts, 384 KiB. With parts of at least 128 bytes on average it is no further limit, as
	// prefixindex.DefaultMatchTokens are 2 MiB.
	maxPromptParts = 1 << 14
	// minBytesPerPart limits the memory for parts to that of the body: a part has 24 bytes. The smallest message of a chat,
	// {"role":"user","content":"hi"}, has two parts in 31 bytes.
	minBytesPerPart = 16
	// freeParts is the number of parts that the smallest body may have, 1.5 KiB.
	freeParts = 64
	// maxHead is the maximum number of tools, of blocks of the system prompt, and of images before the first message, 6 KiB each.
	// OpenAI's API allows 128 tools, and requests have at most dozens of images.
	maxHead = 256
	// pooledParts is the capacity of a list that may stay in a pool, 48 KiB. Chats of 1000 messages fit in.
	pooledParts = 2048
)

// maxParts returns the maximum number of parts of a body.
func maxParts(body []byte) int { return min(freeParts+len(body)/minBytesPerPart, maxPromptParts) }

// Kind is the kind of a part.
type Kind uint8

// The kinds of parts.
const (
	Text      Kind = iota // a text, as it is in the body between its quotes
	Value                 // other text, a list or an object, whatever its spelling
	IDs                   // token ids, as a JSON list
	PackedIDs             // token ids in protobuf's format
	Media                 // an image, a sound, a video or a file, whatever its spelling
)

// A Part is a piece of a prompt. Bodies are smaller than 4 GiB, so positions have 32 bits.
type Part struct {
	Hash     uint64 // of values and media
	From, To uint32 // in the body
	// Size of texts and values is in bytes of their shortest spelling (Short), and of other kinds in tokens. It is 0 for media whose
	// tokens are in another part.
	Size uint32
	Kind Kind
}

// IsShortest reports whether a text is in its shortest spelling.
func (p Part) IsShortest() bool { return p.Size == p.To-p.From }

// Turns contains the positions of a conversation's turns, as numbers of parts of Request.Prompt. All are 0 before the model's
// first answer. Turns that were not collected are at the end.
type Turns struct {
	Opening int // up to the model's first answer: the first prompt of the conversation
	Asked   int // up to its last answer: the last prompt
	History int // up to the end of its last answer
}

// addAnswer records the parts of an answer.
func (t *Turns) addAnswer(from, to int) {
	if t.History == 0 {
		t.Opening = from
	}
	t.Asked, t.History = from, to
}

// sizeCount is the size of a part of a prompt.
type sizeCount struct {
	text   int // bytes
	tokens int // in addition
}

// sizeOf returns the size of one part.
func sizeOf(p Part) sizeCount {
	if p.Kind == Text || p.Kind == Value {
		return sizeCount{text: int(p.Size)}
	}
	return sizeCount{tokens: int(p.Size)}
}

func (c *sizeCount) addSize(n sizeCount) {
	c.text += n.text
	c.tokens += n.tokens
}

func (c *sizeCount) subtractSize(n sizeCount) {
	c.text -= n.text
	c.tokens -= n.tokens
}

// estimateTokens estimates the number of tokens.
func estimateTokens(counts ...sizeCount) int {
	sum := sizeCount{}
	for _, c := range counts {
		sum.addSize(c)
	}
	return sum.tokens + sum.text/prefixindex.BytesPerToken
}

// partList contains the parts at the start of a prompt, up to its limits, and the size of all of it.
type partList struct {
	parts []Part
	sizeCount
	maxTokens int
	maxParts  int
	full      bool // a part had no room: none that follows is collected, even if there is room again
}

func (c *partList) resetLimits(maxTokens, maxParts int) {
	*c = partList{parts: c.parts[:0], maxTokens: maxTokens, maxParts: maxParts}
}

// clearParts discards all parts.
func (c *partList) clearParts() { c.resetLimits(c.maxTokens, c.maxParts) }

// addPart counts a part, and collects it if it is within the limits. It ignores empty texts and values.
func (c *partList) addPart(p Part) {
	if p.Size == 0 && (p.Kind == Text || p.Kind == Value) {
		return
	}
	c.appendPart(p)
	c.addSize(sizeOf(p))
}

// appendPart appends a part if there is room. It reports whether there was.
func (c *partList) appendPart(p Part) bool {
	n := len(c.parts)
	if c.full = c.full || n >= c.maxParts || estimateTokens(c.sizeCount) >= c.maxTokens; c.full {
		return false
	}
	if n == cap(c.parts) { // append would allocate more than the limit, and five times as much in all
		c.parts = append(make([]Part, 0, min(max(2*n, freeParts), c.maxParts)), c.parts...)
	}
	c.parts = append(c.parts, p)
	return true
}

// reservePlace appends a place for a part that may be read later. It returns the place, -1 if there is no room.
func (c *partList) reservePlace() int {
	if !c.appendPart(Part{}) {
		return -1
	}
	return len(c.parts) - 1
}

// fillPlace counts a part, and puts it into a reserved place.
func (c *partList) fillPlace(place int, p Part) {
	if place >= 0 {
		c.parts[place] = p
	}
	c.addSize(sizeOf(p))
}

// A section is a range of parts that are removed if their key comes again.
type section struct {
	from, to int
	sizeCount
}

// beginSection returns a section that begins behind the last part.
func (c *partList) beginSection() section { return section{from: len(c.parts), sizeCount: c.sizeCount} }

// endSection ends a section behind the last part.
func (c *partList) endSection(s *section) {
	s.to = len(c.parts)
	s.sizeCount = sizeCount{text: c.text - s.text, tokens: c.tokens - s.tokens}
}

// removeSection removes a section and its counts. It ignores an empty section.
func (c *partList) removeSection(s section) {
	if s.to > s.from {
		c.parts = slices.Delete(c.parts, s.from, s.to)
	}
	c.subtractSize(s.sizeCount)
}

// appendList appends and counts all parts of another list, whatever the limits.
func (c *partList) appendList(other *partList) {
	c.parts = append(c.parts, other.parts...)
	c.addSize(other.sizeCount)
}

func (c *partList) dropLarge() {
	if cap(c.parts) > pooledParts {
		c.parts = nil
	}
}
