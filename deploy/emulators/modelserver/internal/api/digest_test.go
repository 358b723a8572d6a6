package api

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDigestFollowsAnAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, path, body string }{
		{"whole", "/tokenize", `{"prompt":"hello"}`},
		{"streamed", "/v1/completions", `{"model":"m","prompt":"hello","max_tokens":5,"stream":true}`},
		{"error", "/v1/completions", `{`},
	} {
		for _, wanted := range []string{"", "trailers", "gzip;q=0.5, Trailers"} {
			t.Run(tt.name+" "+wanted, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := start(t, unchanged)
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+tt.path, strings.NewReader(tt.body))
					require.NoError(t, err)
					req.Header.Set("Content-Type", "application/json")
					if wanted != "" {
						req.Header.Set("TE", wanted)
					}
					resp, err := s.client.Do(req)
					require.NoError(t, err)
					defer resp.Body.Close()
					body, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					require.NotEmpty(t, body)
					if wanted == "" {
						assert.Empty(t, resp.Trailer)
						return
					}
					sum := sha256.Sum256(body)
					assert.Equal(t, "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":", resp.Trailer.Get("Content-Digest"))
				})
			})
		}
	}
}
