package api

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResponses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		const path, common = "/v1/responses", `"model":"m","max_output_tokens":3,`
		whole := s.post(t, path, `{`+common+`"input":"Hello"}`)
		var answer response
		require.NoError(t, json.Unmarshal([]byte(whole.body), &answer), whole.body)
		text := answer.Output[0].Content[0].Text
		assert.Len(t, text, 3*4)
		assert.Equal(t, []string{"response", "completed", "message"}, []string{answer.Object, answer.Status, answer.Output[0].Type})
		assert.Equal(t, &responseUsage{InputTokens: 9, Details: &usageDetails{}, OutputTokens: 3, TotalTokens: 12}, answer.Usage)

		stream := s.post(t, path, `{`+common+`"stream":true,"input":[{"role":"user","content":[{"type":"input_text","text":"Hello"}]}]}`)
		var kinds []string
		got := ""
		for event := range strings.SplitSeq(strings.TrimSuffix(stream.body, "\n\n"), "\n\n") {
			name, data, ok := strings.Cut(strings.TrimPrefix(event, "event: "), "\ndata: ")
			require.True(t, ok, event)
			var content struct {
				Type     string
				Number   int `json:"sequence_number"`
				Delta    string
				Response response
			}
			require.NoError(t, json.Unmarshal([]byte(data), &content), data)
			assert.Equal(t, name, content.Type)
			assert.Equal(t, len(kinds), content.Number)
			kinds, got = append(kinds, name), got+content.Delta
			answer = content.Response
		}
		const delta = "response.output_text.delta"
		assert.Equal(t, []string{"response.created", "response.in_progress", delta, delta, delta, "response.completed"}, kinds)
		assert.Equal(t, text, got)
		assert.Equal(t, text, answer.Output[0].Content[0].Text)
		assert.Equal(t, 12, answer.Usage.TotalTokens)

		with := s.post(t, path, `{`+common+`"instructions":"Be brief","input":"Hello"}`)
		assert.Contains(t, with.body, `"input_tokens":15`)
		assert.Equal(t, 400, s.post(t, path, `{`+common+`"input":null}`).status)
		assert.Equal(t, 400, s.post(t, path, `{`+common+`"input":[5]}`).status)
	})
}
