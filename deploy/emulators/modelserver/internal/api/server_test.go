package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
	"fairlead.dev/deploy/emulators/modelserver/internal/faults"
	"fairlead.dev/deploy/emulators/modelserver/internal/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fastSpec is quick enough for tests in real time.
var fastSpec = engine.Spec{
	MaxNumSeqs: 8, MaxNumBatchedTokens: 1000, NumBlocks: 1000, BlockSize: 16, MaxModelLen: 1000, MaxLoRAs: 2,
	StepBase: 200 * time.Microsecond, Speed: 1,
}

// testServer is a server that is listening.
type testServer struct {
	*Server
	url    string
	client *http.Client
}

func start(t *testing.T, change func(*Params)) *testServer {
	t.Helper()
	p := Params{
		PodName: "pod-a", Models: []string{"m", "m-alias"}, Adapters: []string{"lora-a"}, Seed: 1, Version: "v1",
		Spec: fastSpec, Faults: faults.NewRegister(1), Log: zap.NewNop(),
	}
	change(&p)
	p.Driver = engine.NewDriver(p.Spec)
	p.Page = metrics.NewPage(metrics.Params{Model: "m", Spec: p.Spec, Started: time.Now()})
	s := New(p)
	s.Loaded()

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Driver.Run(ctx)
	}()
	server := httptest.NewUnstartedServer(s)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		cancel()
		<-done
	})
	return &testServer{Server: s, url: server.URL, client: server.Client()}
}

func unchanged(*Params) {}

// reply is an answer that was read to its end.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func (s *testServer) do(t *testing.T, method, path, body string, header ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := s.client.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer func() { require.NoError(t, response.Body.Close()) }()
	text, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, string(text), err}
}

func (s *testServer) post(t *testing.T, path, body string, header ...string) reply {
	t.Helper()
	return s.do(t, http.MethodPost, path, body, header...)
}

// mask replaces what differs from run to run.
func mask(s string) string {
	s = regexp.MustCompile(`"id":"(chatcmpl-|cmpl-|modelperm-)[0-9a-f]{32}"`).ReplaceAllString(s, `"id":"${1}ID"`)
	return regexp.MustCompile(`"created":1[0-9]{9}\b`).ReplaceAllString(s, `"created":0`)
}

const (
	chat = "/v1/chat/completions"
	text = "/v1/completions"
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
			s := start(t, unchanged)
			got := s.post(t, tt.path, tt.body)
			require.NoError(t, got.err)
			assert.Equal(t, http.StatusOK, got.status)
			assert.Equal(t, "application/json", got.header.Get("Content-Type"))
			assert.Equal(t, "pod-a", got.header.Get("x-served-by"))
			assert.Equal(t, strings.TrimPrefix(s.url, "http://"), got.header.Get("x-served-endpoint"))
			assert.Equal(t, tt.want, mask(got.body))
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
				chatHead + `{"index":0,"delta":{"content":" dab"},"logprobs":null,"finish_reason":null}]}`,
				chatHead + `{"index":0,"delta":{"content":" woq"},"logprobs":null,"finish_reason":"length","stop_reason":null}]}`,
				chatHead + `],"usage":{"prompt_tokens":9,"total_tokens":11,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}`,
				`data: [DONE]`,
			}},
		{"chat without usage", chat, `{"model":"m","messages":[{"role":"user","content":"Hello"}],"max_tokens":1,"stream":true}`,
			[]string{
				chatHead + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`,
				chatHead + `{"index":0,"delta":{"content":" dab"},"logprobs":null,"finish_reason":"length","stop_reason":null}]}`,
				`data: [DONE]`,
			}},
		{"text with running usage", text,
			`{"model":"m","prompt":"Hello","max_tokens":2,"stream":true,"stream_options":{"continuous_usage_stats":true}}`,
			[]string{
				textHead + `{"index":0,"text":" pif","logprobs":null,"finish_reason":null,"stop_reason":null}],` +
					`"usage":{"prompt_tokens":2,"total_tokens":3,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}}`,
				textHead + `{"index":0,"text":" fez","logprobs":null,"finish_reason":"length","stop_reason":null}],` +
					`"usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}`,
				`data: [DONE]`,
			}},
		{"text without usage", text, `{"model":"m","prompt":"Hello","max_tokens":1,"stream":true}`,
			[]string{
				textHead + `{"index":0,"text":" pif","logprobs":null,"finish_reason":"length","stop_reason":null}],"usage":null}`,
				`data: [DONE]`,
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, func(p *Params) { p.Spec.StepBase = 20 * time.Millisecond }) // one token at a time, surely
			got := s.post(t, tt.path, tt.body)
			require.NoError(t, got.err)
			assert.Equal(t, "text/event-stream; charset=utf-8", got.header.Get("Content-Type"))
			assert.Equal(t, strings.Join(tt.want, "\n\n")+"\n\n", mask(got.body))
		})
	}
}

// stream is what a streamed answer says, by choice.
type stream struct {
	text    map[int]string
	deltas  int
	reasons map[int]string
	usage   *usage
}

func readStream(t *testing.T, body string) stream {
	t.Helper()
	require.True(t, strings.HasSuffix(body, "data: [DONE]\n\n"), "a stream ends in [DONE]")
	got := stream{text: map[int]string{}, reasons: map[int]string{}}
	lines := bufio.NewScanner(strings.NewReader(strings.TrimSuffix(body, "data: [DONE]\n\n")))
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if lines.Text() == "" {
			continue
		}
		require.True(t, ok, lines.Text())
		var chunk struct {
			Choices []struct {
				Index        int
				Text         string
				Delta        struct{ Content string }
				FinishReason string `json:"finish_reason"`
			}
			Usage *usage
		}
		require.NoError(t, json.Unmarshal([]byte(data), &chunk))
		for _, c := range chunk.Choices {
			if piece := c.Text + c.Delta.Content; piece != "" {
				require.Len(t, piece, 4)
				got.deltas++
				got.text[c.Index] += piece
			}
			got.reasons[c.Index] += c.FinishReason
		}
		got.usage = chunk.Usage
	}
	return got
}

func TestSeveralAnswersToSeveralPrompts(t *testing.T) {
	t.Parallel()
	s := start(t, unchanged)
	body := `{"model":"m","prompt":["first prompt","second one"],"n":2,"max_tokens":20,"seed":3`
	got := readStream(t, s.post(t, text, body+`,"stream":true,"stream_options":{"include_usage":true}}`).body)
	assert.Equal(t, map[int]string{0: "length", 1: "length", 2: "length", 3: "length"}, got.reasons)
	assert.Equal(t, usage{PromptTokens: 3 + 3, CompletionTokens: 80, TotalTokens: 86, Details: &usageDetails{}}, *got.usage)
	texts := map[string]bool{}
	for _, piece := range got.text {
		texts[piece] = true
	}
	assert.Len(t, texts, 4, "each answer is its own")

	var whole completion
	require.NoError(t, json.Unmarshal([]byte(s.post(t, text, body+`}`).body), &whole))
	require.Len(t, whole.Choices, 4)
	for i, c := range whole.Choices {
		assert.Equal(t, got.text[i], c.(map[string]any)["text"], "the same answers when not streamed")
	}
	assert.Equal(t, got.usage, whole.Usage)
}

func TestUsageIsExactWhateverTheLength(t *testing.T) {
	t.Parallel()
	s := start(t, unchanged)
	for _, n := range []int{1, 2, 15, 16, 17, 100, 700} {
		body := `{"model":"m","messages":[{"role":"user","content":"Count"}],"max_tokens":` + jsonInt(n) +
			`,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`
		got := readStream(t, s.post(t, chat, body).body)
		assert.Equal(t, []int{n, n, 4 * n}, []int{got.deltas, got.usage.CompletionTokens, len(got.text[0])})
	}
}

func jsonInt(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func TestAnswerLengths(t *testing.T) {
	t.Parallel()
	fixed := func(n int) func(*Params) { return func(p *Params) { p.Output.Min, p.Output.Max = n, n } }
	tests := []struct {
		name    string
		change  func(*Params)
		options string
		tokens  int
		reason  string
	}{
		{"max_tokens", unchanged, `"max_tokens":7`, 7, "length"},
		{"max_completion_tokens comes first", unchanged, `"max_tokens":7,"max_completion_tokens":5`, 5, "length"},
		{"no limit", unchanged, `"n":1`, 256, "stop"},
		{"no limit and no end", unchanged, `"ignore_eos":true`, 1000 - 9, "length"},
		{"the answer ends before the limit", fixed(10), `"max_tokens":20`, 10, "stop"},
		{"the answer would end after the limit", fixed(30), `"max_tokens":20`, 20, "length"},
		{"the answer ends at the limit", fixed(20), `"max_tokens":20`, 20, "length"},
		{"ignore_eos", fixed(10), `"max_tokens":20,"ignore_eos":true`, 20, "length"},
		{"min_tokens", fixed(10), `"max_tokens":20,"min_tokens":15`, 15, "stop"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, tt.change)
			body := `{"model":"m","messages":[{"role":"user","content":"Hello"}],"stream":true,` + tt.options + `}`
			got := readStream(t, s.post(t, chat, body).body)
			assert.Equal(t, tt.tokens, got.deltas)
			assert.Equal(t, tt.reason, got.reasons[0])
		})
	}
}

func TestAnswersDependOnSeedAndPromptOnly(t *testing.T) {
	t.Parallel()
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
}

func TestRequestIDIsTheClients(t *testing.T) {
	t.Parallel()
	s := start(t, unchanged)
	got := s.post(t, text, `{"model":"m","prompt":"Hello","max_tokens":1}`, "X-Request-Id", "abc")
	assert.Contains(t, got.body, `"id":"cmpl-abc"`)
}

func TestNextTurnIsCached(t *testing.T) {
	t.Parallel()
	s := start(t, unchanged)
	question := strings.Repeat("word", 30)
	first := readStream(t, s.post(t, chat, `{"model":"m","max_tokens":40,"stream":true,"messages":[{"role":"user","content":"`+question+`"}]}`).body)
	got := s.post(t, chat, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"`+question+`"},`+
		`{"role":"assistant","content":"`+first.text[0]+`"},{"role":"user","content":"More"}]}`)
	var answer completion
	require.NoError(t, json.Unmarshal([]byte(got.body), &answer))
	// 37 tokens of prompt and 39 of answer are computed: the last token was never fed back.
	assert.Equal(t, 64, answer.Usage.Details.CachedTokens)
}

func TestHTTP2WithoutTLS(t *testing.T) {
	t.Parallel()
	s := start(t, unchanged)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	s.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	got := s.post(t, chat, `{"model":"m","messages":[{"role":"user","content":"Hello"}],"max_tokens":5,"stream":true}`)
	assert.Equal(t, 5, readStream(t, got.body).deltas)
	dropped := start(t, func(p *Params) { p.AllowFaultHeader = true })
	dropped.client = s.client
	got = dropped.post(t, chat, `{"model":"m","messages":[{"role":"user","content":"Hello"}],"max_tokens":5,"stream":true}`, "x-fault", "drop=2")
	require.ErrorContains(t, got.err, "INTERNAL_ERROR", "a dropped stream is reset")
}

func TestClientThatLeavesIsAborted(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"true", "false"} {
		s := start(t, func(p *Params) { p.Spec.StepBase = 5 * time.Millisecond })
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+text,
			bytes.NewReader([]byte(`{"model":"m","prompt":"Hello","max_tokens":900,"stream":`+stream+`}`)))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		time.AfterFunc(50*time.Millisecond, cancel)
		response, err := s.client.Do(r)
		if err == nil {
			_, err = io.ReadAll(response.Body)
			require.NoError(t, response.Body.Close())
		}
		require.ErrorIs(t, err, context.Canceled)
		require.Eventually(t, func() bool { return s.Driver.Stats().Finished[engine.ReasonAbort] == 1 }, 5*time.Second, time.Millisecond)
		stats := s.Driver.Stats()
		assert.Equal(t, []int{0, 0, 0}, []int{stats.Running, stats.Waiting, stats.BlocksUsed})
	}
}
