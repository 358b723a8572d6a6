package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/modelserver/internal/faults"
	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
)

func TestErrorsAreVLLMs(t *testing.T) {
	t.Parallel()
	const message = `"messages":[{"role":"user","content":"Hello"}]`
	tests := []struct {
		name, path, body, contentType string
		status                        int
		kind, param, message          string
	}{
		{"broken JSON", chat, `{"model":`, "", 400, "Bad Request", "", "JSON decode error"},
		{"empty body", chat, ``, "", 400, "Bad Request", "", "JSON decode error"},
		{"not JSON", chat, `model=m`, "application/x-www-form-urlencoded", 400, "Bad Request", "", "Only 'application/json' is allowed"},
		{"no model", chat, `{` + message + `}`, "", 400, "Bad Request", "", "'loc': ('body', 'model'), 'msg': 'Field required'"},
		{"unknown model", chat, `{"model":"x",` + message + `}`, "", 404, "NotFoundError", "model", "The model `x` does not exist."},
		{"no messages", chat, `{"model":"m"}`, "", 400, "Bad Request", "", "'messages'"},
		{"no role", chat, `{"model":"m","messages":[{"content":"a"}]}`, "", 400, "Bad Request", "", "'role'"},
		{"number as content", chat, `{"model":"m","messages":[{"role":"user","content":5}]}`, "", 400, "Bad Request", "", "valid list"},
		{"text as a number", chat, `{"model":"m","max_tokens":"5",` + message + `}`, "", 400, "Bad Request", "", "valid integer"},
		{"an image", chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, "", 400, "BadRequestError", "",
			"text only, not image_url"},
		{"options of a stream without one", chat, `{"model":"m","stream_options":{"include_usage":true},` + message + `}`, "", 400, "Bad Request", "",
			"Stream options can only be defined when `stream=True`."},
		{"no tokens", chat, `{"model":"m","max_tokens":0,` + message + `}`, "", 400, "BadRequestError", "max_tokens", "max_tokens must be at least 1, got 0."},
		{"no answers", chat, `{"model":"m","n":0,` + message + `}`, "", 400, "BadRequestError", "n", "n must be at least 1"},
		{"too many answers", chat, `{"model":"m","n":129,` + message + `}`, "", 400, "BadRequestError", "n", "at most 128"},
		{"large min_tokens", chat, `{"model":"m","max_tokens":3,"min_tokens":4,` + message + `}`, "", 400, "BadRequestError", "min_tokens",
			"min_tokens must be less than or equal to max_tokens=3, got 4."},
		{"an answer that does not fit", chat, `{"model":"m","max_tokens":992,` + message + `}`, "", 400, "BadRequestError", "input_tokens",
			"maximum context length is 1000 tokens. However, you requested 992 output tokens and your prompt contains 9 input tokens, for a total of 1001"},
		{"a prompt that does not fit", text, `{"model":"m","prompt":"` + strings.Repeat("word", 1000) + `"}`, "", 400, "BadRequestError", "input_tokens",
			"maximum context length is 1000 tokens. However, your request has 1000 input tokens."},
		{"no prompt", text, `{"model":"m"}`, "", 400, "Bad Request", "", "'prompt'"},
		{"an empty prompt", text, `{"model":"m","prompt":""}`, "", 400, "BadRequestError", "prompt", "cannot be empty"},
		{"one empty prompt of two", text, `{"model":"m","prompt":["a",""]}`, "", 400, "BadRequestError", "prompt", "cannot be empty"},
		{"a prompt of another kind", text, `{"model":"m","prompt":{"a":1}}`, "", 400, "BadRequestError", "prompt", "prompt must be a string"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := start(t, unchanged)
				if tt.contentType == "" {
					tt.contentType = "application/json; charset=utf-8"
				}
				got := s.post(t, tt.path, tt.body, "Content-Type", tt.contentType)
				var answer errorResponse
				require.NoError(t, json.Unmarshal([]byte(got.body), &answer), got.body)
				assert.Equal(t, tt.status, got.status)
				assert.Equal(t, tt.status, answer.Error.Code)
				assert.Equal(t, tt.kind, answer.Error.Type)
				assert.Contains(t, answer.Error.Message, tt.message)
				if tt.param == "" {
					assert.Contains(t, got.body, `"param":null`)
				} else {
					assert.Equal(t, tt.param, *answer.Error.Param)
				}
				assert.Equal(t, "pod-a", got.header.Get("x-served-by"), "errors also name their server")
				assert.Zero(t, s.Driver.Stats().PrefixCacheQueries)
			})
		})
	}
}

func TestWrongMethod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		got := s.do(t, http.MethodGet, chat, "")
		assert.Equal(t, http.StatusMethodNotAllowed, got.status)
		assert.Equal(t, "POST", got.header.Get("Allow"))
		assert.JSONEq(t, `{"detail":"Method Not Allowed"}`, got.body)
		got = s.post(t, "/v1/embeddings", `{}`)
		assert.Equal(t, http.StatusNotFound, got.status)
		assert.JSONEq(t, `{"detail":"Not Found"}`, got.body)
	})
}

func TestModels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		var list modelList
		require.NoError(t, json.Unmarshal([]byte(s.do(t, http.MethodGet, "/v1/models", "").body), &list))
		require.Len(t, list.Data, 3)
		assert.Equal(t, "list", list.Object)
		alias, adapter := list.Data[1], list.Data[2]
		assert.Equal(t, []any{"m-alias", "model", "vllm", "m", 1000}, []any{alias.ID, alias.Object, alias.OwnedBy, alias.Root, *alias.MaxModelLen})
		assert.Equal(t, []string{"lora-a", "m"}, []string{adapter.ID, *adapter.Parent})
		assert.Nil(t, adapter.MaxModelLen)
		assert.Equal(t, "model_permission", alias.Permission[0].Object)
	})
}

func TestTokenize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		assert.JSONEq(t, `{"count":2,"max_model_len":1000,"tokens":[1819043144,111],"token_strs":null}`,
			s.post(t, "/tokenize", `{"model":"m","prompt":"Hello"}`).body)
		assert.JSONEq(t, `{"count":0,"max_model_len":1000,"tokens":[],"token_strs":null}`, s.post(t, "/tokenize", `{"prompt":""}`).body)
		assert.Contains(t, s.post(t, "/tokenize", `{"messages":[{"role":"user","content":"Hello"}]}`).body, `"count":9,`)
		assert.Equal(t, http.StatusNotFound, s.post(t, "/tokenize", `{"model":"x","prompt":"Hello"}`).status)
	})
}

// Pickers ask for the tokens of a text in this form. A real tokenizer makes other numbers of tokens of prose and of code.
func TestTokenizeWithRealTokenizer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bpe, err := tokens.NewBPE()
		require.NoError(t, err)
		s := start(t, func(p *Params) { p.Tokenizer = bpe })
		tests := map[string]struct {
			prompt        string
			bytesPerToken float64
		}{
			"prose":   {strings.Repeat("The second rack lost power on Tuesday morning, and nobody noticed it until the afternoon. ", 20), 5},
			"code":    {strings.Repeat("if (a[i]!=b[j]){x=0x7f;}", 20), 1.7},
			"Chinese": {strings.Repeat("昨天夜里备份任务失败了，", 20), 2.7},
		}
		for name, tt := range tests {
			body, err := json.Marshal(map[string]any{"model": "m", "prompt": tt.prompt, "add_special_tokens": false})
			require.NoError(t, err)
			got := s.post(t, "/tokenize", string(body))
			require.Equal(t, http.StatusOK, got.status)
			var answer tokenizeResponse
			require.NoError(t, json.Unmarshal([]byte(got.body), &answer))
			assert.Len(t, answer.Tokens, answer.Count)
			assert.InEpsilon(t, tt.bytesPerToken, float64(len(tt.prompt))/float64(answer.Count), 0.15, name)
		}
	})
}

func TestProbesByState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		statuses := func() map[string]int {
			got := map[string]int{}
			for _, path := range []string{"/health", "/ping", "/ready", "/version", "/v1/models", "/metrics"} {
				got[path] = s.do(t, http.MethodGet, path, "").status
			}
			return got
		}
		serving := map[string]int{"/health": 200, "/ping": 200, "/ready": 200, "/version": 200, "/v1/models": 200, "/metrics": 200}
		assert.Equal(t, serving, statuses())

		s.state.Store(stateLoading)
		assert.Equal(t, map[string]int{"/health": 503, "/ping": 503, "/ready": 503, "/version": 200, "/v1/models": 503, "/metrics": 503}, statuses())

		s.Loaded()
		assert.Equal(t, serving, statuses())

		s.Drain()
		serving["/ready"] = 503
		assert.Equal(t, serving, statuses())
		s.Loaded()
		assert.Equal(t, serving, statuses(), "Loaded does not end a drain")
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/version", nil)
		require.NoError(t, err)
		response, err := s.client.Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.True(t, response.Close, "the server closes connections while draining")
	})
}

func TestPodIPIsInTheEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(p *Params) { p.PodIP = "fd00::7" })
		got := s.do(t, http.MethodGet, "/version", "")
		_, port, _ := strings.Cut(strings.TrimPrefix(s.url, "http://"), ":")
		assert.Equal(t, "[fd00::7]:"+port, got.header.Get("x-served-endpoint"))
		assert.JSONEq(t, `{"version":"0.32.0"}`, got.body)
	})
}

func TestMetricsPageFollowsTheRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		s.post(t, chat, `{"model":"lora-a","messages":[{"role":"user","content":"Hello"}],"max_tokens":5}`)
		s.post(t, chat, `{"model":"x","messages":[]}`)
		page := s.do(t, http.MethodGet, "/metrics", "")
		assert.Equal(t, "text/plain; version=1.0.0; charset=utf-8", page.header.Get("Content-Type"))
		for _, want := range []string{
			`vllm:prompt_tokens_total{engine="0",model_name="m"} 9.0`,
			`vllm:generation_tokens_total{engine="0",model_name="m"} 5.0`,
			`vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 1.0`,
			`vllm:request_params_max_tokens_sum{engine="0",model_name="m"} 5.0`,
			`http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 1.0`,
			`http_requests_total{handler="/v1/chat/completions",method="POST",status="4xx"} 1.0`,
		} {
			assert.Contains(t, page.body, want+"\n")
		}
		assert.NotContains(t, page.body, `handler="/metrics"`)
	})
}

func TestFaultsAreReadSetAndCleared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		assert.JSONEq(t, `{}`, s.do(t, http.MethodGet, "/admin/faults", "").body)
		const set = `{"slow":2,"answer":"500,rate=0.5"}`
		assert.JSONEq(t, set, s.post(t, "/admin/faults", set).body)
		assert.JSONEq(t, set, s.do(t, http.MethodGet, "/admin/faults", "").body)
		for _, bad := range []string{`{"slow":-1}`, `{"slowly":2}`, `{"answer":"200"}`, `nonsense`} {
			assert.Equal(t, http.StatusBadRequest, s.post(t, "/admin/faults", bad).status, bad)
		}
		assert.JSONEq(t, set, s.do(t, http.MethodGet, "/admin/faults", "").body, "a refused set changes nothing")
		assert.Equal(t, http.StatusNoContent, s.do(t, http.MethodDelete, "/admin/faults", "").status)
		assert.Equal(t, faults.Set{}, s.Faults.Current())
	})
}

func TestStatusFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pattern := func() (statuses []int) {
			s := start(t, unchanged)
			s.post(t, "/admin/faults", `{"answer":"502,rate=0.5"}`)
			for range 30 {
				got := s.post(t, text, `{"model":"m","prompt":"Hello","max_tokens":1}`)
				statuses = append(statuses, got.status)
				assert.Equal(t, got.status == 502, strings.Contains(got.body, `{"error":{"message":"Injected fault","type":"Bad Gateway"`))
			}
			return statuses
		}
		first := pattern()
		assert.Contains(t, first, 200)
		assert.Contains(t, first, 502)
		assert.Equal(t, first, pattern())
	})
}

func TestDropFaultClosesTheConnectionAfterTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []string{"0", "1", "7"} {
			s := start(t, func(p *Params) { p.Spec.Law.Base = 5 * time.Millisecond }) // 4.5 s for all tokens
			s.post(t, "/admin/faults", `{"answer":"drop,tokens=`+n+`"}`)
			got := s.post(t, text, `{"model":"m","prompt":"Hello","max_tokens":900,"stream":true}`)
			require.ErrorContains(t, got.err, "unexpected EOF")
			assert.Equal(t, n, jsonInt(strings.Count(got.body, `"text":`)))
			assert.NotContains(t, got.body, "[DONE]")
			assert.EqualValues(t, 1, s.Driver.Stats().Finished["abort"])
			got = s.post(t, text, `{"model":"m","prompt":"Hello","max_tokens":900}`)
			require.ErrorContains(t, got.err, "EOF", "an answer that is not streamed never arrives")
			assert.Zero(t, got.status)
		}
	})
}

func TestFaultHeaderNeedsPermission(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const body = `{"model":"m","prompt":"Hello","max_tokens":1}`
		strict := start(t, unchanged)
		assert.Equal(t, 200, strict.post(t, text, body, "x-fault", "500").status)
		open := start(t, func(p *Params) { p.AllowFaultHeader = true })
		assert.Equal(t, 500, open.post(t, text, body, "x-fault", "500").status)
		assert.Equal(t, 200, open.post(t, text, body).status)
		assert.Equal(t, 400, open.post(t, text, body, "x-fault", "explode").status)
	})
}

func TestNotReadyFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		s.post(t, "/admin/faults", `{"notReady":true}`)
		assert.Equal(t, 503, s.do(t, http.MethodGet, "/ready", "").status)
		assert.Equal(t, 200, s.do(t, http.MethodGet, "/health", "").status)
		assert.Equal(t, 200, s.post(t, text, `{"model":"m","prompt":"Hello"}`).status, "a server that is not ready still serves requests")
		s.do(t, http.MethodDelete, "/admin/faults", "")
		assert.Equal(t, 200, s.do(t, http.MethodGet, "/ready", "").status)
	})
}

func TestStaleMetricsFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		page := func() string { return s.do(t, http.MethodGet, "/metrics", "").body }
		ask := func() { s.post(t, text, `{"model":"m","prompt":"Hello","max_tokens":3}`) }
		const counter = `vllm:generation_tokens_total{engine="0",model_name="m"} `
		ask()
		s.post(t, "/admin/faults", `{"staleMetrics":true}`)
		ask()
		frozen := page()
		assert.Contains(t, frozen, counter+"3.0\n")
		s.post(t, "/admin/faults", `{"staleMetrics":true,"slow":1}`)
		assert.Equal(t, frozen, page(), "the page does not change")
		s.do(t, http.MethodDelete, "/admin/faults", "")
		assert.Contains(t, page(), counter+"6.0\n")
	})
}
