package simulation

import (
	"math"

	"github.com/cespare/xxhash/v2"
)

// appendEven appends the ends of the tokens in a text with a number of bytes per token, at even distances.
func appendEven(ends []int, text []byte, bytesPerToken float64) []int {
	for i := 1; ; i++ {
		end := int(math.Round(float64(i) * bytesPerToken))
		if end > len(text) {
			return ends
		}
		ends = append(ends, end)
	}
}

// appendWords appends the ends of the tokens in a text, which starts at an offset of a longer one. As in the vocabularies of
// real models, most words are one token with the preceding space, some are several, and other characters are one token per
// byte. Prose has 4.4 bytes per token, code 2.3. A prefix of a text has the same tokens as part of it, unless it ends in a
// word.
func appendWords(ends []int, text []byte, at int) []int {
	for i := 0; i < len(text); {
		end := i + 1
		if text[i] == ' ' || isLetter(text[i]) {
			for end < len(text) && isLetter(text[end]) {
				end++
			}
		}
		ends = appendPieces(ends, text[i:end], at+i)
		i = end
	}
	return ends
}

// appendPieces appends the ends of the tokens in one word. One word in twenty is not in the vocabulary.
func appendPieces(ends []int, word []byte, at int) []int {
	const rare, piece = 20, 3
	end := at + len(word)
	if xxhash.Sum64(word)%rare == 0 {
		for at += piece; at < end; at += piece {
			ends = append(ends, at)
		}
	}
	return append(ends, end)
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' }
