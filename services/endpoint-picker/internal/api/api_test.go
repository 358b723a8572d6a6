package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/api/apitest"
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
	require.NoError(t, r.Parse(allParsers(t), Incoming{Path: path, Body: []byte(body)}, enough))
	return &r
}

func TestParse(t *testing.T) {
	t.Parallel()
	explicit, err := NewParsers(ParserOpenAI)
	require.NoError(t, err)
	long := strings.Repeat("m", MaxModel)
	tests := []struct {
		name, path, body string
		headers          Headers
		parsers          *Parsers // all if nil
		want             string   // the suffix that claims it
		wantGenerates    bool
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
		{name: "no frame", path: apitest.VLLMGRPC, body: "text", wantErr: "parse request body: it is not a gRPC message"},
		{name: "no message", path: apitest.VLLMGRPC, body: string(apitest.Frame([]byte("\x1a\x7f"))), wantErr: "parse request body: it is not a protobuf message"},
		{name: "no model where one must be", path: apitest.Chat, body: `{}`, wantErr: "parse request body: model not found in request body"},
		{name: "an empty model", path: apitest.Embeddings, body: `{"model": ""}`, wantErr: "parse request body: model not found in request body"},
		{name: "the longest model", path: apitest.Chat, body: `{"model": "` + long + `"}`, want: "/chat/completions", wantGenerates: true},
		{name: "the longest model, escaped", path: apitest.Chat, body: `{"model": "` + strings.Repeat(`\u006d`, MaxModel) + `"}`, want: "/chat/completions", wantGenerates: true},
		{name: "a longer model", path: apitest.Chat, body: `{"model": "` + long + `m"}`, wantErr: "parse request body: the name of the model is longer than 1024 bytes"},
		{name: "a longer model, escaped", path: apitest.SGLang, body: `{"model": "` + long + `\u006d"}`, wantErr: "parse request body: the name of the model is longer than 1024 bytes"},
		{name: "a much longer model", path: apitest.SGLang, body: `{"model": "` + strings.Repeat(long, 7) + `"}`, wantErr: "parse request body: the name of the model is longer than 1024 bytes"},
		{name: "no JSON", path: apitest.Completions, body: `model=m`, wantErr: "parse request body: at byte 0: unexpected 'm'"},
		{name: "another path", path: "/v1/audio", body: `anything`, wantGenerates: true},
		{name: "another path that ends alike", path: "/v1/chat/completions/7", body: `anything`, wantGenerates: true},
		{name: "another path without the passthrough parser", parsers: explicit, path: "/v1/audio", body: `x`, wantErr: "parse request body: no parser for its path"},
		{name: "no body without the passthrough parser", parsers: explicit, path: "/v1/models"},
		{name: "no body", path: apitest.Completions},
		{name: "no path, an object", body: `{"prompt": "a"}`, wantGenerates: true},
		{name: "no path, a broken object", body: `{"prompt": `, wantErr: "parse request body: at byte 11: unexpected end"},
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
			err := r.Parse(parsers, Incoming{Path: tt.path, Headers: tt.headers, Body: []byte(tt.body)}, enough)
			if tt.wantErr != "" {
				require.EqualError(t, err, tt.wantErr)
				require.ErrorIs(t, err, ErrMalformed)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, r.API.suffix)
			assert.Equal(t, tt.wantGenerates, r.API.Generates)
		})
	}
}

func TestParse_BlanksBeforeAnObjectWithoutAPath(t *testing.T) {
	t.Parallel()
	r := parsed(t, "", " \r\n\t{\"model\": \"m\", \"prompt\": \"Once\"}")
	assert.Equal(t, "m", r.Model)
	assert.Len(t, r.Prompt, 1)
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
