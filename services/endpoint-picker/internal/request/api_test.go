package request

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, path, body string
		want             bool
		wantErr          string
	}{
		{name: "chat", path: "/v1/chat/completions", body: `{"model": "m"}`, want: true},
		{name: "completions behind a prefix, with a query", path: "/ns/name/v1/completions?a=b", body: `{"model": "m"}`, want: true},
		{name: "anthropic", path: "/v1/messages", body: `{"model": "m"}`, want: true},
		{name: "no model where one must be", path: "/v1/chat/completions", body: `{}`, wantErr: "parse request body: model not found in request body"},
		{name: "an empty model", path: "/v1/embeddings", body: `{"model": ""}`, wantErr: "parse request body: model not found in request body"},
		{name: "no model where none need be", path: "/generate", body: `{"text": "a"}`, want: true},
		{name: "no JSON", path: "/v1/completions", body: `model=m`, wantErr: "parse request body: at byte 0: unexpected 'm'"},
		{name: "another path", path: "/v1/models", body: `anything`},
		{name: "another path that ends alike", path: "/v1/chat/completions/7", body: `anything`},
		{name: "no body", path: "/v1/completions"},
		{name: "no path", body: `anything`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var r Request
			got, err := r.Parse(Incoming{Path: tt.path, Body: []byte(tt.body)})
			if tt.wantErr != "" {
				require.EqualError(t, err, tt.wantErr)
				require.ErrorIs(t, err, ErrMalformed)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, tt.want, got)
		})
	}
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
			require.NoError(t, r.ParseJSON())
			assert.Equal(t, tt.want, r.Tokens())
		})
	}
}
