package tokens

import (
	"fmt"
	"math/rand/v2"
	"regexp"

	"github.com/tiktoken-go/tokenizer"
)

// BPE is a byte-pair tokenizer with the vocabulary cl100k_base, on which the vocabulary of Llama 3 is based. A token has 4 to 5
// bytes of English, 3 of code, or 2 to 3 of Chinese. BPE is safe for concurrent use.
type BPE struct {
	codec tokenizer.Codec
	words []uint32 // words of answers
}

// wordIDs is the number of tokens in which NewBPE searches words for answers: the first 20 000 merges of the vocabulary, which are
// the frequent words. They contain about 8000 words. A larger number would only add rare words.
const wordIDs = 20_000

// NewBPE returns the tokenizer. Its vocabulary is part of the program, and loads in 20 ms.
func NewBPE() (*BPE, error) {
	codec, err := tokenizer.Get(tokenizer.Cl100kBase)
	if err != nil {
		return nil, fmt.Errorf("load vocabulary: %w", err)
	}
	b := &BPE{codec: codec}
	// The tokenizer always splits text into pieces such as a space and letters. A piece in the vocabulary is one token.
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
		// Unreachable: the codec refuses text that is not UTF-8 only with an option, which is not set.
		panic(fmt.Sprintf("encode text: %s", err))
	}
	for _, id := range ids {
		dst = append(dst, uint32(id))
	}
	return dst
}

// AppendBytes implements Tokenizer. Clients may send any ids; those outside of the vocabulary have no text.
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
