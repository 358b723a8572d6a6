package request

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"fairlead.dev/services/endpoint-picker/internal/jsonscan"
)

func allParsers(t testing.TB) *Parsers {
	t.Helper()
	p, err := NewParsers(AllParsers()...)
	require.NoError(t, err)
	return p
}

// framed is a message as gRPC sends it.
func framed(message []byte) string {
	return string([]byte{0, 0, 0, byte(len(message) >> 8), byte(len(message))}) + string(message)
}

// field is a field of a protobuf message that has a length.
func field(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

func number(n protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), value)
}

func TestParse(t *testing.T) {
	t.Parallel()
	const generate = "/vllm.grpc.engine.VllmEngine/Generate"
	explicit, err := NewParsers(ParserOpenAI)
	require.NoError(t, err)
	tests := []struct {
		name, path, body string
		headers          Headers
		parsers          *Parsers // all if nil
		want             string   // the suffix that claims it
		wantGenerates    bool
		wantErr          string
	}{
		{name: "chat", path: "/v1/chat/completions", body: `{"model": "m"}`, want: "/completions", wantGenerates: true},
		{
			name: "completions behind a prefix, with a query", path: "/ns/name/v1/completions?a=/v1/messages", body: `{"model": "m"}`,
			want: "/completions", wantGenerates: true,
		},
		{name: "anthropic", path: "/v1/messages", body: `{"model": "m"}`, want: "/v1/messages", wantGenerates: true},
		{name: "the longest suffix wins", path: "/v1/messages/count_tokens", body: `{"model": "m"}`, want: "/v1/messages/count_tokens"},
		{name: "vLLM's own, not SGLang's", path: "/inference/v1/generate", body: `{"token_ids": [1]}`, want: "/inference/v1/generate", wantGenerates: true},
		{name: "SGLang's own", path: "/generate", body: `{"text": "a"}`, want: "/generate", wantGenerates: true},
		{name: "vLLM's gRPC", path: generate, body: framed(field(3, []byte("text"))), want: generate, wantGenerates: true},
		{name: "compressed gRPC is let through", path: generate, body: "\x01\x00\x00\x00\x01x", wantGenerates: true},
		{name: "no frame", path: generate, body: "text", wantErr: "parse request body: it is not a gRPC message"},
		{name: "no message", path: generate, body: framed([]byte("\x1a\x7f")), wantErr: "parse request body: it is not a protobuf message"},
		{name: "no model where one must be", path: "/v1/chat/completions", body: `{}`, wantErr: "parse request body: model not found in request body"},
		{name: "an empty model", path: "/v1/embeddings", body: `{"model": ""}`, wantErr: "parse request body: model not found in request body"},
		{name: "no JSON", path: "/v1/completions", body: `model=m`, wantErr: "parse request body: at byte 0: unexpected 'm'"},
		{name: "another path", path: "/v1/audio", body: `anything`, wantGenerates: true},
		{name: "another path that ends alike", path: "/v1/chat/completions/7", body: `anything`, wantGenerates: true},
		{name: "another path without the passthrough parser", parsers: explicit, path: "/v1/audio", body: `x`, wantErr: "parse request body: no parser for its path"},
		{name: "no body without the passthrough parser", parsers: explicit, path: "/v1/models"},
		{name: "no body", path: "/v1/completions"},
		{name: "no path, an object", body: `{"prompt": "a"}`, wantGenerates: true},
		{name: "no path, a broken object", body: `{"prompt": `, wantErr: "parse request body: at byte 11: unexpected end"},
		{name: "no path, something else", body: `anything`, wantGenerates: true},
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
			err := r.Parse(parsers, Incoming{Path: tt.path, Headers: tt.headers, Body: []byte(tt.body)})
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

func TestParsersAreKnownByName(t *testing.T) {
	t.Parallel()
	_, err := NewParsers("openai-parser", "vertexai-parser")
	require.EqualError(t, err, `parser "vertexai-parser" is not one of openai-parser, anthropic-parser, vllmhttp-parser, `+
		`vllmgrpc-parser, sglanghttp-parser, passthrough-parser`)
}

func TestReadVLLM(t *testing.T) {
	t.Parallel()
	ids := protowire.AppendVarint(protowire.AppendVarint(protowire.AppendVarint(nil, 1), 300), 128_000)
	sampling := field(4, append(number(9, 5), number(8, 16)...))
	tests := []struct {
		name string
		give [][]byte
		want Request
	}{
		{name: "nothing"},
		{name: "text", give: [][]byte{field(1, []byte("id")), field(3, []byte("hello")), sampling, number(5, 1)}, want: Request{
			Stream: true, MaxTokens: 16, Prompt: []Part{{Span: jsonscan.Span{From: 11, To: 16}}},
		}},
		{name: "token ids, beside the text", give: [][]byte{field(2, append(field(1, []byte("ab")), field(2, ids)...))}, want: Request{
			Prompt: []Part{{Span: jsonscan.Span{From: 13, To: 19}, IDs: 3, Packed: true}},
		}},
		{name: "images come first", give: [][]byte{field(7, append(field(6, []byte("h1")), field(6, []byte("h2"))...)), field(3, []byte("x"))}, want: Request{
			Prompt: []Part{{Span: jsonscan.Span{From: 9, To: 11}, Media: true}, {Span: jsonscan.Span{From: 13, To: 15}, Media: true}, {Span: jsonscan.Span{From: 17, To: 18}}},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var r Request
			body := framed(bytes.Join(tt.give, nil))
			require.NoError(t, r.Parse(allParsers(t), Incoming{Path: "/vllm.grpc.engine.VllmEngine/Generate", Body: []byte(body)}))
			assert.Equal(t, tt.want, Request{Stream: r.Stream, MaxTokens: r.MaxTokens, Prompt: r.Prompt})
		})
	}
}

func FuzzReadVLLM(f *testing.F) {
	f.Add(field(3, []byte("hello")))
	f.Add(field(2, field(2, []byte{1, 2, 0x80})))
	f.Add(field(7, field(6, []byte("h"))))
	f.Fuzz(func(t *testing.T, message []byte) {
		if len(message) > 0xffff {
			return
		}
		var r Request
		if r.Parse(allParsers(t), Incoming{Path: "/vllm.grpc.engine.VllmEngine/Generate", Body: []byte(framed(message))}) != nil {
			return
		}
		for _, p := range r.Prompt {
			require.LessOrEqual(t, p.IDs, len(r.Text(p.Span)))
		}
		require.GreaterOrEqual(t, r.Tokens(), 0)
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       int
	}{
		{name: "none", give: `{}`, want: 0},
		{name: "text", give: `{"prompt": "twenty characters ..."}`, want: 5},
		{name: "token ids", give: `{"prompt": [1, 2, 3]}`, want: 3},
		{name: "several prompts", give: `{"prompt": ["four", "and ten"]}`, want: 3},
		{name: "an image", give: `{"messages": [{"content": [{"image_url": "data:image/png;base64,AAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}]}`, want: mediaTokens},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var r Request
			r.Reset([]byte(tt.give))
			require.NoError(t, r.readJSON())
			assert.Equal(t, tt.want, r.Tokens())
		})
	}
}
