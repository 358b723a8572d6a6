package api

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/modelserver/internal/faults"
)

func fiveTokens(stream bool) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"Hello"}],"max_tokens":5,"stream":%t}`, stream)
}

func TestFaultsOfAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give          string
		status        int
		kind          string // of content
		stream, whole string // bodies
	}{
		{give: faults.ErrorSGLang, status: 200, kind: contentEvents, stream: "data: " + errorSGLang + "\n\ndata: [DONE]\n\n", whole: errorSGLang},
		{give: faults.ErrorOpenAI, status: 200, kind: contentEvents, stream: "data: " + errorOpenAI + "\n\n", whole: errorOpenAI},
		{give: faults.ErrorAnthropic, status: 200, kind: contentEvents, stream: "event: error\ndata: " + errorAnthropic + "\n\n", whole: errorAnthropic},
		{give: faults.EmptyBody, status: 200, kind: contentJSON},
		{give: faults.EmptyStream, status: 200, kind: contentEvents},
		{give: faults.Comments, status: 200, kind: contentEvents, stream: comment + comment, whole: comment + comment},
		{give: faults.Login, status: 302, kind: contentPage, stream: loginPage, whole: loginPage},
		{give: faults.Page, status: 200, kind: contentPage, stream: loginPage, whole: loginPage},
	}
	for _, tt := range tests {
		t.Run(tt.give, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fault, err := faults.ParseFault(tt.give + ",delay=50ms")
				require.NoError(t, err)
				s := start(t, func(p *Params) { p.Faults = faults.NewRegister(1, faults.Set{Answer: fault}) })
				s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				begin := time.Now()
				stream := s.post(t, chat, fiveTokens(true))
				assert.Equal(t, 50*time.Millisecond, time.Since(begin))
				assert.Equal(t, []any{tt.status, tt.kind, tt.stream}, []any{stream.status, stream.header.Get("Content-Type"), stream.body})
				assert.Equal(t, tt.whole, s.post(t, chat, fiveTokens(false)).body)
				assert.Zero(t, s.Driver.Stats().PrefixCacheQueries, "the engine knows of none")
				assert.Equal(t, http.StatusNotFound, s.post(t, chat, `{"model":"x","messages":[]}`).status, "wrong requests have no answer")
			})
		})
	}
}

func TestHalfFaultEndsTheAnswerAsIfItWasWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		s.post(t, "/admin/faults", `{"answer":"half,tokens=3"}`)
		got := s.post(t, chat, fiveTokens(true))
		require.NoError(t, got.err)
		assert.Equal(t, 3, strings.Count(got.body, `"delta":{"content":`))
		assert.NotContains(t, got.body, "[DONE]")
		got = s.post(t, chat, fiveTokens(false))
		require.NoError(t, got.err)
		assert.Equal(t, `{"object":"chat.completion","id":"`, got.body) //nolint:testifylint // no JSON
		assert.EqualValues(t, 2, s.Driver.Stats().Finished["abort"])
	})
}

// Requests that get nothing end when their client leaves, or when the server closes.
func TestFaultsWithoutAnEnd(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string]bool{faults.Hang: false, faults.Silence: true} {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, unchanged)
			s.post(t, "/admin/faults", `{"answer":"`+name+`"}`)
			response, err := s.askForAnHour(t)
			assert.Equal(t, headers, err == nil, name)
			if err == nil {
				assert.Equal(t, contentEvents, response.Header.Get("Content-Type"))
				var body []byte
				body, err = io.ReadAll(response.Body)
				assert.Empty(t, body)
				require.NoError(t, response.Body.Close())
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			s.assertReleased(t)
		})
	}
}

// askForAnHour sends a request whose client leaves after an hour.
func (s *testServer) askForAnHour(t *testing.T) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+chat, strings.NewReader(fiveTokens(true)))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	return s.client.Do(r)
}

// assertReleased expects that a request ends when the server releases the requests that hang.
func (s *testServer) assertReleased(t *testing.T) {
	t.Helper()
	time.AfterFunc(time.Minute, s.ReleaseHung)
	begin := time.Now()
	require.Error(t, s.post(t, chat, fiveTokens(true)).err)
	assert.Equal(t, time.Minute, time.Since(begin))
}

// A stalled answer goes on for as long as its client wants, and the server.
func TestStallFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		s.post(t, "/admin/faults", `{"answer":"stall,tokens=3"}`)
		response, err := s.askForAnHour(t)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, 3, strings.Count(string(body), `"delta":{"content":`))
		s.assertReleased(t)
	})
}

// TestEventsBeforeTheFirstToken has a prefill of 2.5 s.
func TestEventsBeforeTheFirstToken(t *testing.T) {
	t.Parallel()
	const role = `"delta":{"role":"assistant","content":""}`
	tests := []struct {
		name       string
		path, body string // by default a chat
		give       Habits
		want       []string // what the lines until the first token have, with their times
	}{
		{name: "none", want: []string{"2.5s " + role, "2.5s content"}},
		{name: "the role", give: Habits{RoleFirst: true}, want: []string{"0s " + role, "2.5s content"}},
		{name: "comments", give: Habits{KeepAliveInterval: time.Second},
			want: []string{"1s : keep-alive", "2s : keep-alive", "2.5s " + role, "2.5s content"}},
		{name: "both", give: Habits{RoleFirst: true, KeepAliveInterval: 2 * time.Second}, want: []string{"0s " + role, "2s : keep-alive", "2.5s content"}},
		{name: "Responses API", path: "/v1/responses", body: `{"model":"m","stream":true,"input":"Hello"}`, give: Habits{KeepAliveInterval: 2 * time.Second},
			want: []string{"0s event: response.created", "0s content", "0s event: response.in_progress", "0s content", "2s : keep-alive",
				"2.5s event: response.output_text.delta"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := start(t, func(p *Params) { p.Habits, p.Spec.Law.Base = tt.give, 2500*time.Millisecond })
				begin := time.Now()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+cmp.Or(tt.path, chat), strings.NewReader(cmp.Or(tt.body, fiveTokens(true))))
				require.NoError(t, err)
				r.Header.Set("Content-Type", "application/json")
				response, err := s.client.Do(r)
				require.NoError(t, err)
				var got []string
				lines := bufio.NewScanner(response.Body)
				for len(got) < len(tt.want) && lines.Scan() {
					kind := "content"
					switch line := lines.Text(); {
					case line == "":
						continue
					case strings.Contains(line, role):
						kind = role
					case strings.HasPrefix(line, ":"), strings.HasPrefix(line, "event:"):
						kind = line
					}
					got = append(got, time.Since(begin).String()+" "+kind)
				}
				assert.Equal(t, tt.want, got)
				rest, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				assert.NotContains(t, string(rest), ": keep-alive")
				assert.NotContains(t, string(rest), role)
			})
		})
	}
}
