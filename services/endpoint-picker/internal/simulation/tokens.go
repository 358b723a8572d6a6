package simulation

import "github.com/cespare/xxhash/v2"

// appendFours appends where the tokens of a text end that have four bytes each, as the picker takes it.
func appendFours(ends []int, text []byte) []int {
	for end := charsPerToken; end <= len(text); end += charsPerToken {
		ends = append(ends, end)
	}
	return ends
}

// appendWords appends where the tokens of a text end, which begins at some byte of a longer one. As with the vocabularies of
// real models, most words are one token with the space before them, some are several, and anything else is one token for each
// byte. Prose has 4.4 bytes a token, code 2.3. Beginnings of a text have the tokens that they would have alone, if they do not
// end in a word.
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

// appendPieces appends where the tokens of one word end. One word in twenty is not in the vocabulary.
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
