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
		ids := AppendText(nil, tt.text)
		assert.Len(t, ids, tt.want, tt.text)
		assert.Equal(t, tt.text, Decode(ids))
	}
}

func FuzzTextSurvivesTokens(f *testing.F) {
	f.Add("A token is four bytes. Ünïcödé too.")
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			t.Skip("JSON carries no other text, and a zero byte has no token of its own")
		}
		require.Equal(t, text, Decode(AppendText(nil, text)))
	})
}

// What makes a prefix cache work in conversations.
func TestNextTurnBeginsWithPromptAndAnswer(t *testing.T) {
	t.Parallel()
	turn := []Message{{"system", "You are terse."}, {"user", "Hello, there"}}
	answer := Generate(1, 25)
	prompt := AppendChat(nil, turn)
	next := AppendChat(nil, append(turn, Message{"assistant", Decode(answer)}, Message{"user", "And?"}))
	assert.Equal(t, slices.Concat(prompt, answer), next[:len(prompt)+len(answer)])
}

func TestMessageBordersAreTokens(t *testing.T) {
	t.Parallel()
	a := AppendChat(nil, []Message{{"user", "abcd"}, {"user", "efgh"}})
	b := AppendChat(nil, []Message{{"user", "abcduserefgh"}})
	assert.NotEqual(t, a, b)
	assert.Len(t, a, (1+1+1+1)*2+1+3)
	assert.Equal(t, "userabcduserefghassistant", Decode(a))
}

func TestGenerateIsDeterministicText(t *testing.T) {
	t.Parallel()
	ids := Generate(7, 100)
	assert.Equal(t, ids, Generate(7, 100))
	assert.Equal(t, ids[:40], Generate(7, 40))
	assert.NotEqual(t, ids, Generate(8, 100))
	text := Decode(ids)
	assert.Regexp(t, `^( [b-z][aeiou][b-z]){100}$`, text)
	assert.Equal(t, ids, AppendText(nil, text), "an answer that is sent back is the same tokens")
}

func TestHashTellsTextsApart(t *testing.T) {
	t.Parallel()
	seen := map[uint64]string{}
	for _, s := range []string{"", "a", "aa", "aaaa", "aaaab", "baaaa", "aaaaaaaa"} {
		for seed := range uint64(3) {
			h := HashText(seed, s)
			assert.NotContains(t, seen, h, "%q like %q", s, seen[h])
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
