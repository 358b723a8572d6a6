package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/test/apitest"
)

// chatOf is a chat of n pairs of a question of 20 bytes and an answer.
func chatOf(n int) []byte {
	pair := `{"role":"user","content":"twenty characters ..."},{"role":"assistant","content":"ok"},`
	return []byte(`{"model":"m","messages":[` + strings.Repeat(pair, n) + `{"role":"user","content":"bye"}]}`)
}

func TestParse_CollectsWhatCanMatterAndCountsAll(t *testing.T) {
	t.Parallel()
	const pairs, parts, perPair = 10_000, 4, 36 // bytes of text in a pair
	tests := []struct {
		name      string
		give      []byte
		path      string
		maxTokens int
		want      int // parts
		wantTurns Turns
		tokens    int
	}{
		{
			name: "all", give: chatOf(3), path: apitest.Chat, maxTokens: enough,
			want: 3*parts + 2, wantTurns: Turns{Opening: 2, Asked: 10, History: 12}, tokens: (3*perPair + 7) / prefixindex.BytesPerToken,
		},
		{
			name: "up to a number of tokens", give: chatOf(pairs), path: apitest.Chat, maxTokens: perPair / prefixindex.BytesPerToken * 100,
			want: 100 * parts, wantTurns: Turns{Opening: 2, Asked: 400, History: 400}, tokens: (pairs*perPair + 7) / prefixindex.BytesPerToken,
		},
		{
			name: "up to a number of parts", give: chatOf(pairs), path: apitest.Chat, maxTokens: enough,
			want: maxPromptParts, wantTurns: Turns{Opening: 2, Asked: maxPromptParts, History: maxPromptParts},
			tokens: (pairs*perPair + 7) / prefixindex.BytesPerToken,
		},
		{name: "none", give: chatOf(3), path: apitest.Chat, tokens: (3*perPair + 7) / prefixindex.BytesPerToken},
		{
			name: "as many images as there is room for", path: apitest.SGLang, maxTokens: enough, tokens: 1000 * imageTokens,
			give: []byte(`{"image_data":[` + strings.Repeat(`"",`, 999) + `""]}`),
		},
		{
			name: "the place of a role, and the first of many images", path: apitest.Chat, maxTokens: 3*imageTokens - 1, want: 4, tokens: 50 * imageTokens,
			give: []byte(`{"model":"m","messages":[{"content":[` + strings.Repeat(`{"image_url":"u"},`, 50) + `{}]}]}`),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var r Request
			require.NoError(t, r.ParseIncoming(allParsers(t), Incoming{Path: tt.path, Body: tt.give}, tt.maxTokens))
			assert.Len(t, r.Prompt, tt.want)
			assert.LessOrEqual(t, cap(r.Prompt), maxPromptParts)
			assert.LessOrEqual(t, len(r.Head), maxHead)
			assert.Equal(t, tt.wantTurns, r.Turns)
			assert.Equal(t, tt.tokens, r.Tokens)
		})
	}
}

func TestParse_ASmallBodyHasFewParts(t *testing.T) {
	t.Parallel()
	body := []byte(`{"model":"m","messages":[{"content":[` + strings.Repeat(`"a",`, 10_000) + `"a"]}]}`)
	var r Request
	require.NoError(t, r.ParseIncoming(allParsers(t), Incoming{Path: apitest.Chat, Body: body}, enough))
	assert.Len(t, r.Prompt, freeParts+len(body)/minBytesPerPart)
	assert.Equal(t, 10_001/prefixindex.BytesPerToken, r.Tokens)
}

func TestRequest_DropsOnlyLargeMemory(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pairs int
		kept  bool
	}{{pairs: 400, kept: true}, {pairs: 4000}} {
		var r Request
		require.NoError(t, r.ParseIncoming(allParsers(t), Incoming{Path: apitest.Chat, Body: chatOf(tt.pairs)}, enough))
		r.DropLarge()
		assert.Empty(t, r.Prompt)
		assert.Equal(t, tt.kept, cap(r.main.parts) > 0)
		assert.LessOrEqual(t, cap(r.main.parts), pooledParts)
		require.NoError(t, r.ParseIncoming(allParsers(t), Incoming{Path: apitest.Chat, Body: chatOf(1)}, enough))
		assert.Len(t, r.Prompt, 6)
	}
}

func TestParse_ReadsAgainWithoutAllocation(t *testing.T) {
	parsers := allParsers(t)
	bodies := map[string]string{
		apitest.Chat:        string(chatOf(100)),
		apitest.Completions: `{"model":"m","prompt":[[1,2,3],"text"]}`,
		apitest.Messages:    `{"model":"m","system":"s","tools":[],"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64"}}]}]}`,
		apitest.SGLang:      `{"model":"m","text":"a","image_data":["a","b"]}`,
	}
	for path, body := range bodies {
		in := Incoming{Path: path, Body: []byte(body)}
		var r Request
		allocations := testing.AllocsPerRun(100, func() {
			if err := r.ParseIncoming(parsers, in, enough); err != nil {
				t.Error(err)
			}
		})
		assert.LessOrEqual(t, allocations, 1.0, "%s: the name of the model", path)
	}
}
