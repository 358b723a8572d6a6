package tokens

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFourBytesAreOneToken(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want int
	}{
		{"", 0}, {"a", 1}, {"abcd", 1}, {"abcde", 2}, {strings.Repeat("x", 4000), 1000}, {"Résumé", 2},
	}
	for _, tt := range tests {
		ids := FourBytes{}.AppendText(nil, tt.text)
		assert.Len(t, ids, tt.want, tt.text)
		assert.Equal(t, tt.text, Decode(FourBytes{}, ids))
	}
}

func FuzzTextSurvivesTokens(f *testing.F) {
	f.Add("A token is four bytes. Ünïcödé too.")
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			t.Skip("unsupported input: text in JSON is valid UTF-8, and the tokenizer does not preserve zero bytes")
		}
		require.Equal(t, text, Decode(FourBytes{}, FourBytes{}.AppendText(nil, text)))
	})
}

// tokenizers returns all tokenizers.
func tokenizers(t *testing.T) map[string]Tokenizer {
	t.Helper()
	bpe, err := NewBPE()
	require.NoError(t, err)
	return map[string]Tokenizer{"four bytes": FourBytes{}, "BPE": bpe}
}

// A prefix cache works for conversations only because of this property.
func TestNextTurnBeginsWithPromptAndAnswer(t *testing.T) {
	t.Parallel()
	for name, tokenizer := range tokenizers(t) {
		turn := []Message{{"system", "You are terse."}, {"user", "Hello, there"}}
		answer := tokenizer.Generate(1, 25)
		prompt := AppendChat(tokenizer, nil, turn)
		next := AppendChat(tokenizer, nil, append(turn, Message{"assistant", Decode(tokenizer, answer)}, Message{"user", "And?"}))
		assert.Equal(t, slices.Concat(prompt, answer), next[:len(prompt)+len(answer)], name)
	}
}

func TestMessageBordersAreTokens(t *testing.T) {
	t.Parallel()
	a := AppendChat(FourBytes{}, nil, []Message{{"user", "abcd"}, {"user", "efgh"}})
	b := AppendChat(FourBytes{}, nil, []Message{{"user", "abcduserefgh"}})
	assert.NotEqual(t, a, b)
	assert.Len(t, a, (1+1+1+1)*2+1+3)
	assert.Equal(t, "userabcduserefghassistant", Decode(FourBytes{}, a))
}

func TestGenerateIsDeterministicText(t *testing.T) {
	t.Parallel()
	for name, tokenizer := range tokenizers(t) {
		ids := tokenizer.Generate(7, 100)
		assert.Equal(t, ids, tokenizer.Generate(7, 100), name)
		assert.Equal(t, ids[:40], tokenizer.Generate(7, 40), name)
		assert.NotEqual(t, ids, tokenizer.Generate(8, 100), name)
		text := Decode(tokenizer, ids)
		assert.Regexp(t, `^( [a-z]{2,}){100}$`, text, name)
		assert.Equal(t, ids, tokenizer.AppendText(nil, text), "%s: the text of an answer has the same tokens", name)
	}
}

// The ids are those of OpenAI's tiktoken for cl100k_base.
func TestBPE(t *testing.T) {
	t.Parallel()
	bpe, err := NewBPE()
	require.NoError(t, err)
	tests := []struct {
		text string
		want []uint32
	}{
		{"", nil},
		{"hello world", []uint32{15339, 1917}},
		{"tiktoken is great!", []uint32{83, 1609, 5963, 374, 2294, 0}},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, bpe.AppendText(nil, tt.text), tt.text)
	}
	for _, text := range []string{"Ünïcödé 你好，世界", "func main() {\n\treturn 12345\n}"} {
		assert.Equal(t, text, Decode(bpe, bpe.AppendText(nil, text)))
	}
	assert.Empty(t, bpe.AppendBytes(nil, messageStart))
	assert.Greater(t, len(bpe.words), 5000)
}

func TestHashTellsTextsApart(t *testing.T) {
	t.Parallel()
	seen := map[uint64]string{}
	for _, s := range []string{"", "a", "aa", "aaaa", "aaaab", "baaaa", "aaaaaaaa"} {
		for seed := range uint64(3) {
			h := HashText(seed, s)
			assert.NotContains(t, seen, h, "%q has the hash of %q", s, seen[h])
			seen[h] = s
		}
	}
}

func TestParseLengths(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give string
		want Lengths
		bad  bool
	}{
		{give: ""},
		{give: "20", want: Lengths{20, 20}},
		{give: "10-300", want: Lengths{10, 300}},
		{give: "0", bad: true}, {give: "20-10", bad: true}, {give: "x", bad: true}, {give: "5-", bad: true}, {give: "-5", bad: true},
	}
	for _, tt := range tests {
		got, err := ParseLengths(tt.give)
		assert.Equal(t, tt.bad, err != nil, tt.give)
		assert.Equal(t, tt.want, got, tt.give)
		if err == nil {
			assert.Equal(t, tt.give, got.String())
		}
	}
}

func TestDrawCoversTheRange(t *testing.T) {
	t.Parallel()
	l := Lengths{3, 6}
	seen := map[int]int{}
	for seed := range uint64(400) {
		n := l.Draw(seed)
		require.Equal(t, n, l.Draw(seed))
		seen[n]++
	}
	assert.Len(t, seen, 4)
	for n := 3; n <= 6; n++ {
		assert.Greater(t, seen[n], 50)
	}
}
