// Package tokens is the emulator's tokenizer and its model.
//
// Four bytes of UTF-8 text are one token (four characters of ASCII), counted from the start of each text; the last
// token of a text may be shorter. A token's id is its bytes, little endian, so text and ids map onto each other without
// a vocabulary. Chat messages are delimited by special tokens, as in real chat templates; therefore the tokens of a
// conversation's next turn begin with the tokens of the last prompt and of its answer, and a prefix cache can find them.
package tokens

import "math/rand/v2"

// BytesPerToken is how much text one token holds.
const BytesPerToken = 4

// The special tokens. No UTF-8 text contains the byte 0xff, so they never collide with text.
const (
	messageStart uint32 = 0xffffff00
	messageEnd   uint32 = 0xffffff01
)

const assistantRole = "assistant"

// Message is one turn of a conversation as text.
type Message struct {
	Role, Content string
}

// AppendText appends the tokens of s.
func AppendText(dst []uint32, s string) []uint32 {
	for ; len(s) >= BytesPerToken; s = s[BytesPerToken:] {
		dst = append(dst, uint32(s[0])|uint32(s[1])<<8|uint32(s[2])<<16|uint32(s[3])<<24)
	}
	if s == "" {
		return dst
	}
	last := uint32(0)
	for i := range len(s) {
		last |= uint32(s[i]) << (8 * i)
	}
	return append(dst, last)
}

// AppendChat appends the prompt that a chat template makes of messages, up to where the answer begins.
func AppendChat(dst []uint32, messages []Message) []uint32 {
	for _, m := range messages {
		dst = append(dst, messageStart)
		dst = AppendText(dst, m.Role)
		dst = AppendText(dst, m.Content)
		dst = append(dst, messageEnd)
	}
	return AppendText(append(dst, messageStart), assistantRole)
}

// AppendBytes appends the text of one token; special tokens have none.
func AppendBytes(dst []byte, id uint32) []byte {
	if id == messageStart || id == messageEnd {
		return dst
	}
	for ; id != 0; id >>= 8 {
		dst = append(dst, byte(id))
	}
	return dst
}

// Decode returns the text of ids.
func Decode(ids []uint32) string {
	b := make([]byte, 0, len(ids)*BytesPerToken)
	for _, id := range ids {
		b = AppendBytes(b, id)
	}
	return string(b)
}

// Hash mixes ids into seed. Equal inputs hash alike in every process.
func Hash(seed uint64, ids []uint32) uint64 {
	h := seed ^ 0x9e3779b97f4a7c15
	for _, id := range ids {
		h = (h ^ uint64(id)) * 0x100000001b3
		h ^= h >> 32
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	return h ^ h>>33
}

// HashText is Hash for a text.
func HashText(seed uint64, s string) uint64 {
	return Hash(seed, AppendText(nil, s))
}

// Generate returns n tokens of an answer, each a space and a made-up syllable. The same seed gives the same answer, and
// a longer answer begins with the shorter one.
func Generate(seed uint64, n int) []uint32 {
	const consonants, vowels = "bcdfghjklmnpqrstvwxz", "aeiou"
	r := rand.New(rand.NewPCG(seed, 4))
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(' ') |
			uint32(consonants[r.IntN(len(consonants))])<<8 |
			uint32(vowels[r.IntN(len(vowels))])<<16 |
			uint32(consonants[r.IntN(len(consonants))])<<24
	}
	return ids
}
