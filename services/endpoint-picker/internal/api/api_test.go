package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/test/apitest"
)

// enough is more tokens than any body here has.
const enough = 1 << 20

func allParsers(t testing.TB) *Parsers {
	t.Helper()
	p, err := NewParsers(AllParsers()...)
	require.NoError(t, err)
	return p
}

// parsed is the request in a body.
func parsed(t *testing.T, path, body string) *Request {
	t.Helper()
	var r Request
	require.NoError(t, r.ParseIncoming(allParsers(t), Incoming{Path: path, Body: []byte(body)}, enough))
	return &r
}

func TestParse(t *testing.T) {
	t.Parallel()
	explicit, err := NewParsers(ParserOpenAI)
	require.NoError(t, err)
	const longModel = "the name of the model is longer than 1024 bytes"
	long := strings.Repeat("m", MaxModel)
	tests := []struct {
		name, path, body string
		headers          Headers
		parsers          *Parsers // all if nil
		want             string   // the suffix that claims it
		wantGenerates    bool
		wantUnread       string
		wantErr          string
	}{
		{name: "chat", path: apitest.Chat, body: `{"model": "m"}`, want: "/chat/completions", wantGenerates: true},
		{
			name: "completions behind a prefix, with a query", path: "/ns/name/v1/completions?a=/v1/messages", body: `{"model": "m"}`,
			want: "/completions", wantGenerates: true,
		},
		{name: "rendered chat", path: "/v1/chat/completions/render", body: `{"model": "m"}`, want: "/completions/render"},
		{name: "anthropic", path: apitest.Messages, body: `{"model": "m"}`, want: "/v1/messages", wantGenerates: true},
		{name: "the longest suffix wins", path: "/v1/messages/count_tokens", body: `{"model": "m"}`, want: "/v1/messages/count_tokens"},
		{name: "vLLM's own, not SGLang's", path: apitest.VLLM, body: `{"token_ids": [1]}`, want: "/inference/v1/generate", wantGenerates: true},
		{name: "SGLang's own", path: apitest.SGLang, body: `{"text": "a"}`, want: "/generate", wantGenerates: true},
		{name: "vLLM's gRPC", path: apitest.VLLMGRPC, body: string(apitest.Frame(field(3, []byte("text")))), want: apitest.VLLMGRPC, wantGenerates: true},
		{name: "compressed gRPC is let through", path: apitest.VLLMGRPC, body: "\x01\x00\x00\x00\x01x", wantGenerates: true},
		{name: "no frame", path: apitest.VLLMGRPC, body: "text", want: apitest.VLLMGRPC, wantGenerates: true},
		{name: "no message", path: apitest.VLLMGRPC, body: string(apitest.Frame([]byte("\x1a\x7f"))), want: apitest.VLLMGRPC, wantGenerates: true},
		{name: "no model where one should be", path: apitest.Chat, body: `{}`, want: "/chat/completions", wantGenerates: true, wantUnread: "model not found in request body"},
		{name: "an empty model", path: apitest.Embeddings, body: `{"model": ""}`, want: "/embeddings", wantGenerates: true, wantUnread: "model not found in request body"},
		{name: "no model where none needs to be", path: apitest.SGLang, body: `{}`, want: "/generate", wantGenerates: true},
		{name: "the longest model", path: apitest.Chat, body: `{"model": "` + long + `"}`, want: "/chat/completions", wantGenerates: true},
		{name: "the longest model, escaped", path: apitest.Chat, body: `{"model": "` + strings.Repeat(`\u006d`, MaxModel) + `"}`, want: "/chat/completions", wantGenerates: true},
		{name: "a longer model", path: apitest.Chat, body: `{"model": "` + long + `m"}`, want: "/chat/completions", wantGenerates: true, wantUnread: longModel},
		{name: "a longer model, escaped", path: apitest.SGLang, body: `{"model": "` + long + `\u006d"}`, want: "/generate", wantGenerates: true, wantUnread: longModel},
		{name: "a much longer model", path: apitest.SGLang, body: `{"model": "` + strings.Repeat(long, 7) + `"}`, want: "/generate", wantGenerates: true, wantUnread: longModel},
		{name: "no JSON", path: apitest.Completions, body: `model=m`, want: "/completions", wantGenerates: true, wantUnread: "at byte 0: unexpected 'm'"},
		{name: "UTF-16", path: apitest.Chat, body: "\xff\xfe{\x00", want: "/chat/completions", wantGenerates: true, wantUnread: `at byte 0: unexpected 'ÿ'`},
		{name: "no JSON, though it begins like it", path: apitest.Chat, body: `no JSON`, want: "/chat/completions", wantGenerates: true, wantUnread: "at byte 0: unexpected 'n'"},
		{name: "a list names no model", path: apitest.Chat, body: `[]`, want: "/chat/completions", wantGenerates: true},
		{
			name: "compressed", path: apitest.Messages, body: "\x1f\x8b", headers: Headers{{Name: "content-encoding", Value: "gzip"}},
			want: "/v1/messages", wantGenerates: true, wantUnread: ErrEncoded.Error(),
		},
		{name: "not compressed", path: apitest.Chat, body: `{"model": "m"}`, headers: Headers{{Name: "content-encoding", Value: "Identity"}}, want: "/chat/completions", wantGenerates: true},
		{name: "compressed gRPC names no model", path: apitest.VLLMGRPC, body: "x", headers: Headers{{Name: "content-encoding", Value: "gzip"}}, want: apitest.VLLMGRPC, wantGenerates: true},
		{name: "a percent-encoded path", path: "/v1/%63ompletions?%2F", body: `{"model": "m"}`, want: "/completions", wantGenerates: true},
		{name: "a percent-encoded slash", path: "/v1/chat%2Fcompletions", body: `{"model": "m"}`, want: "/chat/completions", wantGenerates: true},
		{name: "a wrongly encoded path", path: "/v1/%6/completions", body: `{"model": "m"}`, want: "/completions", wantGenerates: true},
		{name: "slashes without meaning", path: "//v1//chat///completions//", body: `{"model": "m"}`, want: "/chat/completions", wantGenerates: true},
		{name: "dots", path: "/v1/./x/../completions/.", body: `{"model": "m"}`, want: "/completions", wantGenerates: true},
		{name: "Triton's own, not SGLang's", path: "/v2/models/m/generate", body: "\x1f\x8b", headers: Headers{{Name: "content-encoding", Value: "gzip"}, {Name: "content-type", Value: "application/json"}}, want: kserveGenerate, wantGenerates: true},
		{name: "a form to SGLang's path", path: apitest.SGLang, body: "prompt=a", headers: Headers{{Name: "content-type", Value: "application/x-www-form-urlencoded"}}, want: "/generate", wantGenerates: true, wantUnread: "at byte 0: unexpected 'p'"},
		{name: "a form with a file to SGLang's path", path: apitest.SGLang, body: form(`Content-Disposition: form-data; name="file"; filename="a"`, "x"), headers: Headers{{Name: "content-type", Value: formType}}, want: "/generate", wantGenerates: true},
		{
			name: "JSON of another path that cannot be read", path: "/v1/audio/speech", body: "\xff\xfe", headers: Headers{{Name: "content-type", Value: "Application/JSON; charset=utf-16"}},
			wantGenerates: true, wantUnread: `at byte 0: unexpected 'ÿ'`,
		},
		{
			name: "JSON of another path, compressed", path: "/v1/audio/speech", body: "\x1f\x8b", headers: Headers{{Name: "content-type", Value: "application/vnd.a+json"}, {Name: "content-encoding", Value: "br"}},
			wantGenerates: true, wantUnread: ErrEncoded.Error(),
		},
		{name: "lines of JSON of another path", path: "/v1/bulk", body: "{}\n{}\n", headers: Headers{{Name: "content-type", Value: "application/x-ndjson"}}, wantGenerates: true},
		{name: "another path", path: "/v1/audio", body: `anything`, wantGenerates: true},
		{name: "another path that ends alike", path: "/v1/chat/completions/7", body: `anything`, wantGenerates: true},
		{name: "another path without the passthrough parser", parsers: explicit, path: "/v1/audio", body: `x`, wantErr: "parse request body: no parser for its path: add passthrough-parser to requestHandler.parsers to accept any body"},
		{name: "no JSON without the passthrough parser", parsers: explicit, path: apitest.Chat, body: `x`, wantErr: "parse request body: at byte 0: unexpected 'x'"},
		{name: "a list without the passthrough parser", parsers: explicit, path: apitest.Chat, body: `[]`, wantErr: "parse request body: it is not an object"},
		{name: "no model without the passthrough parser", parsers: explicit, path: apitest.Chat, body: `{}`, wantErr: "parse request body: model not found in request body"},
		{name: "no body without the passthrough parser", parsers: explicit, path: "/v1/models"},
		{name: "no body", path: apitest.Completions},
		{name: "no path, an object", body: `{"prompt": "a"}`, wantGenerates: true},
		{name: "no path, a broken object", body: `{"prompt": `, wantGenerates: true, wantUnread: "at byte 11: unexpected end"},
		{name: "no path, something else", body: `anything`, wantGenerates: true},
		{name: "no path, blanks", body: " \n", wantGenerates: true},
		{
			name: "the path in another header", headers: Headers{{Name: "x-original-path", Value: "/v1/messages"}}, body: `{"model": "m"}`,
			want: "/v1/messages", wantGenerates: true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			parsers := tt.parsers
			if parsers == nil {
				parsers = allParsers(t)
			}
			var r Request
			err := r.ParseIncoming(parsers, Incoming{Path: tt.path, Headers: tt.headers, Body: []byte(tt.body)}, enough)
			if tt.wantErr != "" {
				require.EqualError(t, err, tt.wantErr)
				require.ErrorIs(t, err, ErrMalformed)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, r.API.suffix)
			assert.Equal(t, tt.wantGenerates, r.API.Generates)
			if tt.wantUnread == "" {
				require.NoError(t, r.Unread)
			} else {
				require.EqualError(t, r.Unread, tt.wantUnread)
				assert.Empty(t, r.Model)
			}
		})
	}
}

func TestParse_BlanksBeforeAnObjectWithoutAPath(t *testing.T) {
	t.Parallel()
	r := parsed(t, "", " \r\n\t{\"model\": \"m\", \"prompt\": \"Once\"}")
	assert.Equal(t, "m", r.Model)
	assert.Len(t, r.Prompt, 1)
}

func TestParse_ReadsWhatPythonReads(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"\uFEFF{\"model\": \"m\", \"prompt\": \"Once\"}", `{"model": "m", "temperature": NaN, "a": [-Infinity, Infinity], "prompt": "Once"}`} {
		for _, path := range []string{apitest.Completions, ""} {
			r := parsed(t, path, body)
			assert.Equal(t, "m", r.Model)
			assert.Equal(t, "m", body[r.ModelSpan.From:r.ModelSpan.To])
			assert.Len(t, r.Prompt, 1)
			assert.Equal(t, 1, r.Tokens)
		}
	}
}

func TestParse_KeepsNothingOfABodyThatItCannotRead(t *testing.T) {
	t.Parallel()
	r := parsed(t, apitest.Chat, `{"model": "m", "stream": true, "cache_salt": "s", "tools": [{"a": 1}], "messages": [{"role": "assistant", "content": "a"}], `)
	require.Error(t, r.Unread)
	assert.Equal(t, seen{}, see(r, ""))
}

func TestParse_ReadsTheModelOfOtherPaths(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"/v1/rerank", "/v1/score", "/tokenize", "/pooling", "/classify", "/v1/audio/speech", "/v1/responses/compact", "/generative_scoring",
	} {
		r := parsed(t, path, `{"model": "m\/1", "documents": ["a"]}`)
		assert.Equal(t, "m/1", r.Model, path)
		assert.Zero(t, r.Tokens, path)
	}
	assert.Empty(t, parsed(t, "/v1/rerank", `{"model": 1}`).Model)
}

func TestRequest_Infers(t *testing.T) {
	t.Parallel()
	const chat = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`
	for _, tt := range []struct {
		path, body string
		want       bool
	}{
		{path: apitest.Chat, body: chat, want: true},
		{path: "", body: chat, want: true},
		{path: "", body: `{"model":"m","documents":["a"]}`},
		{path: "/v1/rerank", body: `{"model":"m","documents":["a"]}`, want: true},
		{path: "/v1/moderations", body: `{"model":"m","input":"a"}`},
		{path: "/v2/models/m/generate", body: `{"text_input":"a"}`, want: true},
		{path: "/v2/models/m/versions/1/generate_stream", body: `{"text_input":"a"}`, want: true},
		{path: "/v2/models/m/infer", body: `{"inputs":[]}`},
		{path: "/generate", body: `{"text":"a"}`, want: true},
		{path: "/api/generate", body: `{"model":"m","prompt":"a"}`},
		{path: "/v1/models"},
	} {
		assert.Equal(t, tt.want, parsed(t, tt.path, tt.body).IsInference(), "%s %s", tt.path, tt.body)
	}
}

func TestParse_UnescapesTheModel(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "plain", give: `meta-llama/Llama-3`, want: "meta-llama/Llama-3"},
		{name: "PHP", give: `meta-llama\/Llama-3`, want: "meta-llama/Llama-3"},
		{name: "evasion", give: `\u006deta-llama/Llama-3`, want: "meta-llama/Llama-3"},
		{name: "other scripts", give: `mod\u00e8le-\u4e2d-\ud83d\ude00`, want: "modèle-中-😀"},
		{name: "HTML", give: `a\u0026b`, want: "a&b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body := `{"stream": true, "model" : "` + tt.give + `"}`
			r := parsed(t, apitest.Chat, body)
			assert.Equal(t, tt.want, r.Model)
			assert.Equal(t, tt.give, body[r.ModelSpan.From:r.ModelSpan.To], "the edit replaces it as it is written")
		})
	}
}

func TestParsersAreKnownByName(t *testing.T) {
	t.Parallel()
	_, err := NewParsers("openai-parser", "vertexai-parser")
	require.EqualError(t, err, `parser "vertexai-parser" is not one of openai-parser, anthropic-parser, vllmhttp-parser, `+
		`vllmgrpc-parser, sglanghttp-parser, passthrough-parser`)
}
