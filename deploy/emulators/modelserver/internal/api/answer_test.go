package api

import (
	"bufio"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWholeAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, path, body, want string
	}{
		{"chat", chat, `{"model":"m","messages":[{"role":"user","content":"Hello"}],"max_tokens":3}`,
			`{"id":"chatcmpl-ID","object":"chat.completion","created":0,"model":"m","system_fingerprint":"pod-a","choices":[{"index":0,` +
				`"message":{"role":"assistant","content":" dab woq hef"},"logprobs":null,"finish_reason":"length","stop_reason":null}],` +
				`"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}`},
		{"chat in parts, under an alias, with unknown fields", chat,
			`{"model":"m-alias","messages":[{"role":"user","content":[{"type":"text","text":"Hel"},{"type":"text","text":"lo"}]}],` +
				`"max_completion_tokens":3,"max_tokens":9,"temperature":0.7,"metadata":{"a":[1]}}`,
			`{"id":"chatcmpl-ID","object":"chat.completion","created":0,"model":"m-alias","system_fingerprint":"pod-a","choices":[{"index":0,` +
				`"message":{"role":"assistant","content":" dab woq hef"},"logprobs":null,"finish_reason":"length","stop_reason":null}],` +
				`"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}`},
		{"text", text, `{"model":"m","prompt":"Hello","max_tokens":2}`,
			`{"id":"cmpl-ID","object":"text_completion","created":0,"model":"m","system_fingerprint":"pod-a","choices":[{"index":0,` +
				`"text":" pif fez","logprobs":null,"finish_reason":"length","stop_reason":null}],` +
				`"usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}`},
		{"token ids of the same text", text, `{"model":"m","prompt":[1819043144,111],"max_tokens":2}`,
			`{"id":"cmpl-ID","object":"text_completion","created":0,"model":"m","system_fingerprint":"pod-a","choices":[{"index":0,` +
				`"text":" pif fez","logprobs":null,"finish_reason":"length","stop_reason":null}],` +
				`"usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := start(t, unchanged)
				got := s.post(t, tt.path, tt.body)
				require.NoError(t, got.err)
				assert.Equal(t, http.StatusOK, got.status)
				assert.Equal(t, "application/json", got.header.Get("Content-Type"))
				assert.Equal(t, "pod-a", got.header.Get("x-served-by"))
				assert.Equal(t, strings.TrimPrefix(s.url, "http://"), got.header.Get("x-served-endpoint"))
				assert.Equal(t, tt.want, mask(got.body))
			})
		})
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	const chatHead = `data: {"id":"chatcmpl-ID","object":"chat.completion.chunk","created":0,"model":"m","system_fingerprint":"pod-a","choices":[`
	const textHead = `data: {"id":"cmpl-ID","object":"text_completion","created":0,"model":"m","system_fingerprint":"pod-a","choices":[`
	tests := []struct {
		name, path, body string
		want             []string
	}{
		{"chat with usage", chat,
			`{"model":"m","messages":[{"role":"user","content":"Hello"}],"max_tokens":2,"stream":true,"stream_options":{"include_usage":true}}`,
			[]string{
				chatHead + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`,
				chatHead + `{"index":0,"delta":{"content":" dab"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`,
				chatHead + `{"index":0,"delta":{"content":" woq"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}]}`,
				chatHead + `],"usage":{"prompt_tokens":9,"total_tokens":11,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}`,
				`data: [DONE]`,
			}},
		{"chat without usage", chat, `{"model":"m","messages":[{"role":"user","content":"Hello"}],"max_tokens":1,"stream":true}`,
			[]string{
				chatHead + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`,
				chatHead + `{"index":0,"delta":{"content":" dab"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}]}`,
				`data: [DONE]`,
			}},
		{"text with running usage", text,
			`{"model":"m","prompt":"Hello","max_tokens":2,"stream":true,"stream_options":{"continuous_usage_stats":true}}`,
			[]string{
				textHead + `{"index":0,"text":" pif","logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":null}],` +
					`"usage":{"prompt_tokens":2,"total_tokens":3,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}}`,
				textHead + `{"index":0,"text":" fez","logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}],` +
					`"usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}`,
				`data: [DONE]`,
			}},
		{"text without usage", text, `{"model":"m","prompt":"Hello","max_tokens":1,"stream":true}`,
			[]string{
				textHead + `{"index":0,"text":" pif","logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}],"usage":null}`,
				`data: [DONE]`,
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := start(t, unchanged)
				got := s.post(t, tt.path, tt.body)
				require.NoError(t, got.err)
				assert.Equal(t, "text/event-stream; charset=utf-8", got.header.Get("Content-Type"))
				assert.Equal(t, strings.Join(tt.want, "\n\n")+"\n\n", mask(got.body))
			})
		})
	}
}

func TestUsageTellsOfTheCacheIfEnabled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(p *Params) { p.Habits.PromptTokensDetails = false })
		got := s.post(t, text, `{"model":"m","prompt":"Hello","max_tokens":1}`)
		assert.Contains(t, got.body, `"usage":{"prompt_tokens":2,"total_tokens":3,"completion_tokens":1}}`)
	})
}

func TestTokenIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		for _, path := range []string{chat, text} {
			got := s.post(t, path, `{"model":"m","prompt":"Hello","messages":[{"role":"user","content":"Hello"}],"max_tokens":9,"stream":true,"return_token_ids":true}`)
			assert.Len(t, regexp.MustCompile(`"token_ids":\[\d+\]`).FindAllString(got.body, -1), 9, got.body)
		}
	})
}

// A client that reads slowly gets several tokens that were made between two events.
func TestRunningUsageCountsEachToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+text,
			strings.NewReader(`{"model":"m","prompt":"Hello","max_tokens":200,"stream":true,"stream_options":{"continuous_usage_stats":true}}`))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		response, err := s.client.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		var counts []string
		behind := 0
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			if match := regexp.MustCompile(`"completion_tokens":(\d+)`).FindStringSubmatch(lines.Text()); match != nil {
				counts = append(counts, match[1])
				time.Sleep(10 * testSpec.Law.Base)
				behind = max(behind, int(s.Driver.Stats().GenerationTokens)-len(counts))
			}
		}
		require.Len(t, counts, 200)
		for i, n := range counts {
			assert.Equal(t, jsonInt(i+1), n)
		}
		assert.Greater(t, behind, 10, "tokens that wait for the client")
	})
}

func TestSeveralAnswersToSeveralPrompts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		body := `{"model":"m","prompt":["first prompt","second one"],"n":2,"max_tokens":20,"seed":3`
		got := readStream(t, s.post(t, text, body+`,"stream":true,"stream_options":{"include_usage":true}}`).body)
		assert.Equal(t, map[int]string{0: "length", 1: "length", 2: "length", 3: "length"}, got.reasons)
		assert.Equal(t, usage{PromptTokens: 3 + 3, CompletionTokens: 80, TotalTokens: 86, Details: &usageDetails{}}, *got.usage)
		texts := map[string]bool{}
		for _, piece := range got.text {
			texts[piece] = true
		}
		assert.Len(t, texts, 4, "all answers differ")

		var whole completion
		require.NoError(t, json.Unmarshal([]byte(s.post(t, text, body+`}`).body), &whole))
		require.Len(t, whole.Choices, 4)
		for i, c := range whole.Choices {
			assert.Equal(t, got.text[i], c.(map[string]any)["text"], "the same answers when not streamed")
		}
		assert.Equal(t, got.usage, whole.Usage)
	})
}

func TestUsageIsExactWhateverTheLength(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		for _, n := range []int{1, 2, 15, 16, 17, 100, 700} {
			body := `{"model":"m","messages":[{"role":"user","content":"Count"}],"max_tokens":` + jsonInt(n) +
				`,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`
			got := readStream(t, s.post(t, chat, body).body)
			assert.Equal(t, []int{n, n, 4 * n}, []int{got.deltas, got.usage.CompletionTokens, len(got.text[0])})
		}
	})
}

func TestAnswerLengths(t *testing.T) {
	t.Parallel()
	fixed := func(n int) func(*Params) { return func(p *Params) { p.Output.Min, p.Output.Max = n, n } }
	tests := []struct {
		name    string
		path    string
		change  func(*Params)
		options string
		tokens  int
		reason  string
	}{
		{"max_tokens", chat, unchanged, `"max_tokens":7`, 7, "length"},
		{"max_completion_tokens comes first", chat, unchanged, `"max_tokens":7,"max_completion_tokens":5`, 5, "length"},
		{"no limit", chat, unchanged, `"n":1`, 256, "stop"},
		{"no limit and no end", chat, unchanged, `"ignore_eos":true`, 1000 - 9, "length"},
		{"the answer ends before the limit", chat, fixed(10), `"max_tokens":20`, 10, "stop"},
		{"the answer would end after the limit", chat, fixed(30), `"max_tokens":20`, 20, "length"},
		{"the answer ends at the limit", chat, fixed(20), `"max_tokens":20`, 20, "length"},
		{"ignore_eos", chat, fixed(10), `"max_tokens":20,"ignore_eos":true`, 20, "length"},
		{"no limit of a text completion", text, unchanged, `"prompt":"Hello"`, 16, "length"},
		{"min_tokens", chat, fixed(10), `"max_tokens":20,"min_tokens":15`, 15, "stop"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := start(t, tt.change)
				body := `{"model":"m","messages":[{"role":"user","content":"Hello"}],"stream":true,` + tt.options + `}`
				got := readStream(t, s.post(t, tt.path, body).body)
				assert.Equal(t, tt.tokens, got.deltas)
				assert.Equal(t, tt.reason, got.reasons[0])
			})
		})
	}
}

func TestAnswersDependOnSeedAndPromptOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ask := func(serverSeed uint64, prompt, options string) string {
			s := start(t, func(p *Params) { p.Seed = serverSeed })
			return readStream(t, s.post(t, text, `{"model":"m","prompt":"`+prompt+`","max_tokens":9,"stream":true`+options+`}`).body).text[0]
		}
		first := ask(1, "Hello", "")
		assert.Equal(t, first, ask(1, "Hello", ""))
		assert.NotEqual(t, first, ask(2, "Hello", ""))
		assert.NotEqual(t, first, ask(1, "hello", ""))
		assert.NotEqual(t, first, ask(1, "Hello", `,"seed":1`))
		assert.Equal(t, ask(1, "Hello", `,"seed":1`), ask(1, "Hello", `,"seed":1`))
	})
}

func TestRequestIDIsTheClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		got := s.post(t, text, `{"model":"m","prompt":"Hello","max_tokens":1}`, "X-Request-Id", "abc")
		assert.Contains(t, got.body, `"id":"cmpl-abc"`)
	})
}

func TestNextTurnIsCached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		question := strings.Repeat("word", 30)
		first := readStream(t, s.post(t, chat, `{"model":"m","max_tokens":40,"stream":true,"messages":[{"role":"user","content":"`+question+`"}]}`).body)
		got := s.post(t, chat, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"`+question+`"},`+
			`{"role":"assistant","content":"`+first.text[0]+`"},{"role":"user","content":"More"}]}`)
		var answer completion
		require.NoError(t, json.Unmarshal([]byte(got.body), &answer))
		// The KV cache has 37 tokens of the prompt and 39 of the answer, because no step computed the last token.
		assert.Equal(t, 64, answer.Usage.Details.CachedTokens)
	})
}

func TestAdaptersShareNoCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		cached := func(model string) int {
			var answer completion
			got := s.post(t, text, `{"model":"`+model+`","max_tokens":1,"prompt":"`+strings.Repeat("word", 100)+`"}`)
			require.NoError(t, json.Unmarshal([]byte(got.body), &answer))
			return answer.Usage.Details.CachedTokens
		}
		assert.Equal(t, []int{0, 96, 96, 0, 96}, []int{cached("m"), cached("m"), cached("m-alias"), cached("lora-a"), cached("lora-a")})
	})
}
