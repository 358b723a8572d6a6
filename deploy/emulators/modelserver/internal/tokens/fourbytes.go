package tokens

import "math/rand/v2"

// FourBytes is a tokenizer without a vocabulary: from the start of each text, four bytes of UTF-8 are one token (four characters of
// ASCII). The last token of a text may be shorter. A token's id is its bytes, little endian.
type FourBytes struct{}

const bytesPerToken = 4

// AppendText implements Tokenizer.
func (FourBytes) AppendText(dst []uint32, s string) []uint32 {
	for ; len(s) >= bytesPerToken; s = s[bytesPerToken:] {
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

// AppendBytes implements Tokenizer.
func (FourBytes) AppendBytes(dst []byte, id uint32) []byte {
	if id == messageStart || id == messageEnd {
		return dst
	}
	for ; id != 0; id >>= 8 {
		dst = append(dst, byte(id))
	}
	return dst
}

// Generate implements Tokenizer. Each token is a space and a made-up syllable.
func (FourBytes) Generate(seed uint64, n int) []uint32 {
	const consonants, vowels = "bcdfghjklmnpqrstvwxz", "aeiou"
	return generate(seed, n, func(r *rand.Rand) uint32 {
		return uint32(' ') |
			uint32(consonants[r.IntN(len(consonants))])<<8 |
			uint32(vowels[r.IntN(len(vowels))])<<16 |
			uint32(consonants[r.IntN(len(consonants))])<<24
	})
}
