package decisionapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// FuzzPick reads picks of any text. What is accepted is within the limits, and whatever it is, nothing is left.
func FuzzPick(f *testing.F) {
	for _, text := range []string{
		`{"path":"/v1/completions","headers":{"x-session":["a","b"]},"body":"{\"prompt\":\"\\u0041\"}"}`,
		`{"body_base64":"e30="}`,
		`{"model":"m","stream":true,"cache_salt":"s","prompt_tokens":70,"prompt_blocks":["ff",1],"block_tokens":32,"conversation":{"opening":1,"asked":1,"history":2}}`,
	} {
		f.Add(text, false)
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, raw bool) {
		r := newRig(t)
		r.params.Options.Wanted.SetFurther([]string{"x-session"})
		q := httptest.NewRequest(http.MethodPost, PathPick, strings.NewReader(text))
		if raw {
			q.Header.Set(headerPath, text)
		}
		status, answer := r.serve(q)
		if status != http.StatusOK {
			_, message := wrongOf(t, answer)
			assert.NotEmpty(t, message)
			r.assertNothingHeld()
			return
		}
		seen := r.pool.incoming[0]
		assert.LessOrEqual(t, len(seen.Path), maxPath)
		assert.LessOrEqual(t, len(seen.Body), len(text))
		assert.LessOrEqual(t, len(seen.Headers), maxHeaders)
		if d := seen.Digest; d != nil {
			assert.Positive(t, d.Size)
			assert.LessOrEqual(t, d.Tokens, maxTokens)
			assert.LessOrEqual(t, len(d.Blocks)*d.Size*prefixindex.BlockTokens, d.Tokens)
			assert.LessOrEqual(t, d.Turns.History, len(d.Blocks))
		}
		r.Server.Close()
		r.assertNothingHeld()
	})
}

// FuzzOutcome reads reports of any text about an open pick.
func FuzzOutcome(f *testing.F) {
	f.Add(`{"id":"ID","event":"completed","status":200,"endpoint":"10.0.0.2:8000","first_token_seconds":0.5,"prompt_tokens":9,"cached_tokens":1,"completion_tokens":2}`)
	f.Add(`{"id":"ID","event":"failed"}`)
	f.Add(`{"id":"ID","event":"first_token"}`)
	f.Fuzz(func(t *testing.T, text string) {
		r := newRig(t)
		a := r.pick("", "{}")
		status, answer := r.call(PathOutcome, strings.ReplaceAll(text, "ID", a.ID))
		open := r.PickStats().Open
		switch status {
		case http.StatusNoContent:
			assert.Empty(t, answer)
		default:
			_, message := wrongOf(t, answer)
			assert.NotEmpty(t, message)
			assert.Equal(t, 1, open, "a refused report changes nothing")
		}
		if open == 0 {
			last := r.pool.last()
			assert.LessOrEqual(t, max(last.Usage.Prompt, last.Usage.Output, last.Usage.Cached), maxTokens)
			assert.False(t, last.FirstContent.After(last.EndTime))
		}
		r.Server.Close()
		r.assertNothingHeld()
	})
}
