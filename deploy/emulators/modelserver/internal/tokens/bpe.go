package tokens

import (
	"fmt"
	"math/rand/v2"
	"regexp"

	"github.com/tiktoken-go/tokenizer"
)

// BPE is a byte-pair tokenizer with the vocabulary cl100k_base, on which that of Llama 3 is built. A token of English has 4
// to 5 bytes, one of code 3, one of Chinese 2 to 3. It is safe for concurrent use.
type BPE struct {
	codec tokenizer.Codec
	words []uint32 // of which answers are made
}

// wordIDs are the tokens among which words for answers are sought: the first 20 000 merges of the vocabulary, which are the
// frequent words. They give about 8000 words. More would only make answers odder.
const wordIDs = 20_000

// NewBPE returns the tokenizer. Its vocabulary is part of the program, and takes 20 ms to unfold.
func NewBPE() (*BPE, error) {
	codec, err := tokenizer.Get(tokenizer.Cl100kBase)
	if err != nil {
		return nil, fmt.Errorf("load vocabulary: %w", err)
	}
	b := &BPE{codec: codec}
	// A space and letters are a piece of its own to the tokenizer, wherever they are. One that is in the vocabulary is a token.
	word := regexp.MustCompile(`^ [a-z]{2,}$`)
	for id := range uint32(wordIDs) {
		if word.Match(b.AppendBytes(nil, id)) {
			b.words = append(b.words, id)
		}
	}
	return b, nil
}

// AppendText implements Tokenizer.
func (b *BPE) AppendText(dst []uint32, s string) []uint32 {
	ids, _, err := b.codec.Encode(s)
	if err != nil {
		// Encoding fails for texts that are not UTF-8 if it is asked to, and it is not.
		panic(fmt.Sprintf("encode text: %s", err))
	}
	for _, id := range ids {
		dst = append(dst, uint32(id))
	}
	return dst
}

// AppendBytes implements Tokenizer. Ids that are not in the vocabulary have no text: clients may send any.
func (b *BPE) AppendBytes(dst []byte, id uint32) []byte {
	text, err := b.codec.Decode([]uint{uint(id)})
	if err != nil {
		return dst
	}
	return append(dst, text...)
}

// Generate implements Tokenizer. Each token is a space and a word.
func (b *BPE) Generate(seed uint64, n int) []uint32 {
	return generate(seed, n, func(r *rand.Rand) uint32 { return b.words[r.IntN(len(b.words))] })
}
