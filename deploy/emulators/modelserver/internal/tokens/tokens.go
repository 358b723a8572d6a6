// Package tokens provides the emulator's tokenizers, which also generate its answers.
//
// FourBytes needs no vocabulary. BPE is a real tokenizer, whose tokens are words and parts of words. With both, special tokens
// delimit chat messages, as in real chat templates. Therefore the tokens of a conversation's next turn begin with the tokens of
// the last prompt and of its answer, and a prefix cache can find them.
package tokens

import "math/rand/v2"

// Tokenizer converts between text and tokens, and generates answers.
type Tokenizer interface {
	// AppendText appends the tokens of a text.
	AppendText(dst []uint32, text string) []uint32
	// AppendBytes appends the text of one token. Special tokens have no text.
	AppendBytes(dst []byte, id uint32) []byte
	// Generate returns n tokens of an answer. The same seed gives the same answer, and a longer answer begins with the
	// shorter one. The text needs no escaping in JSON, and AppendText converts it to the same tokens.
	Generate(seed uint64, n int) []uint32
}

// Special tokens. No tokenizer makes them from text: UTF-8 does not contain the byte 0xff, and vocabularies are smaller.
const (
	messageStart uint32 = 0xffffff00
	messageEnd   uint32 = 0xffffff01
)

const assistantRole = "assistant"

// Message is one turn of a conversation as text.
type Message struct {
	Role, Content string
}

// AppendChat appends the prompt that a chat template renders from messages, up to the start of the answer.
func AppendChat(t Tokenizer, dst []uint32, messages []Message) []uint32 {
	for _, m := range messages {
		dst = append(dst, messageStart)
		dst = t.AppendText(dst, m.Role)
		dst = t.AppendText(dst, m.Content)
		dst = append(dst, messageEnd)
	}
	return t.AppendText(append(dst, messageStart), assistantRole)
}

// Decode returns the text of ids.
func Decode(t Tokenizer, ids []uint32) string {
	const usual = 5 // bytes of a token
	b := make([]byte, 0, len(ids)*usual)
	for _, id := range ids {
		b = t.AppendBytes(b, id)
	}
	return string(b)
}

// Hash mixes ids into seed. Equal inputs have the same hash in every process.
func Hash(seed uint64, ids []uint32) uint64 {
	h := seed ^ 0x9e3779b97f4a7c15
	for _, id := range ids {
		h = (h ^ uint64(id)) * 0x100000001b3
		h ^= h >> 32
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	return h ^ h>>33
}

// HashText is like Hash, but for a text.
func HashText(seed uint64, s string) uint64 {
	return Hash(seed, FourBytes{}.AppendText(nil, s))
}

// generate returns n drawn tokens.
func generate(seed uint64, n int, draw func(r *rand.Rand) uint32) []uint32 {
	r := rand.New(rand.NewPCG(seed, 4))
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = draw(r)
	}
	return ids
}
