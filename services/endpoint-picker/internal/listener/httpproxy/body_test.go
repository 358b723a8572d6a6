package httpproxy

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// TestBodies sends bodies around the sizes of buffers, with and without a length.
func TestBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.serve(func(w http.ResponseWriter, q *http.Request) {
			body, _ := io.ReadAll(q.Body)
			_, _ = fmt.Fprintf(w, "%d %v %s", q.ContentLength, q.TransferEncoding, body)
		})
		c := r.client()
		for _, size := range []int{1, firstRead - 1, firstRead, firstRead + 1, 2 * firstRead, 100_000, 1 << 20} {
			body := strings.Repeat("x", size)
			want := fmt.Sprintf("%d [] %s", size, body)
			assert.Equal(t, want, r.do(c, http.MethodPost, "/", body).body, "%d bytes", size)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.address, struct{ io.Reader }{strings.NewReader(body)})
			require.NoError(t, err)
			response, err := c.Do(request)
			require.NoError(t, err)
			got, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			assert.Equal(t, want, string(got), "%d bytes in chunks", size)
		}
		assert.Equal(t, "0 [] ", r.do(c, http.MethodPost, "/", "").body)
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	exhausted := func(why error) request.Refusal { return *request.Exhausted(why) }
	large := strings.Repeat("x", 2000)
	tests := []struct {
		name   string
		limits limits.Limits
		refuse *request.Refusal // by the pick
		empty  bool             // the pool
		give   string
		form   request.ErrorFormat
		want   request.Refusal
	}{
		{name: "too large by its length", give: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n", want: *request.TooLarge(1024)},
		{
			name: "too large for Anthropic's API", give: "POST /v1//%6dessages/?beta=true HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n",
			form: request.Anthropic, want: *request.TooLarge(1024),
		},
		{name: "too large in chunks", give: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + large, want: *request.TooLarge(1024)},
		{
			name: "too large, and the client waits", give: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\nExpect: 100-continue\r\n\r\n",
			want: *request.TooLarge(1024),
		},
		{name: "too many bytes", limits: limits.Limits{Bytes: 60 << 10}, give: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", want: exhausted(limits.ErrTooManyBytes)},
		{name: "no endpoint", empty: true, give: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", want: request.Refusal{
			Code: 503, Reason: request.ReasonNoEndpoints, RetryAfter: time.Second, Text: "no ready endpoints in the pool",
		}},
		{
			name: "refused by the pick", refuse: request.BadRequest(io.ErrUnexpectedEOF), give: "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			want: *request.BadRequest(io.ErrUnexpectedEOF),
		},
		{name: "of a request without a body", empty: true, give: "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", want: request.Refusal{
			Code: 503, Reason: request.ReasonNoEndpoints, RetryAfter: time.Second, Text: "no ready endpoints in the pool",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := testOptions()
				o.MaxRequestBody = 1024
				r := start(t, o, tt.limits)
				r.pool.refuse = tt.refuse
				if !tt.empty {
					r.serve(echo)
				}
				c, from := r.dial()
				_, err := io.WriteString(c, tt.give)
				require.NoError(t, err)
				response, err := http.ReadResponse(from, &http.Request{Method: tt.give[:strings.IndexByte(tt.give, ' ')]})
				require.NoError(t, err)
				body, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				got := request.Refusal{Code: response.StatusCode, Reason: response.Header.Get("X-Llm-D-Request-Dropped-Reason"), Text: tt.want.Text}
				if after := response.Header.Get("Retry-After"); after != "" {
					assert.Equal(t, "1", after)
					got.RetryAfter = time.Second
				}
				tt.want.Cause = nil
				assert.Equal(t, tt.want, got)
				wantBody, _ := tt.want.EncodeBody(tt.form)
				assert.Equal(t, response.Request.Method != http.MethodHead, string(body) == string(wantBody), string(body))
				assert.Equal(t, "application/json", response.Header.Get("Content-Type"))
				records := r.pool.ended(t, 1)
				assert.Equal(t, request.Refused, records[0].Outcome)
				assert.Equal(t, tt.want.Code, records[0].Status)
			})
		})
	}
}

// TestTooManyRequests has a client with all open requests. Another one gets its share.
func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{Streams: 2})
		r.serve(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
		for range 2 {
			c, _ := r.dial()
			_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Equal(t, 2, r.InFlight())
		a := r.do(r.client(), http.MethodGet, "/", "")
		assert.Equal(t, http.StatusTooManyRequests, a.status)
		assert.Equal(t, "too many open requests; try again in 1 s", messageOf(t, a.body))
	})
}

// TestContinue has clients that send a body only when they are asked to.
func TestContinue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.serve(func(w http.ResponseWriter, q *http.Request) {
			assert.Empty(t, q.Header.Get("Expect"))
			echo(w, q)
		})
		c, from := r.dial()
		_, err := io.WriteString(c, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
		require.NoError(t, err)
		line, err := from.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
		_, err = from.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "POST /a body", send(t, c, from, "body").body)
	})
}

// TestSlowClients has clients that send a part of a request, and no more.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give string
		then string // once a second
		want int    // 0 if the connection is closed without an answer
	}{
		{name: "half a body", give: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc", want: http.StatusRequestTimeout},
		{name: "a body of single bytes", give: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n", then: "x", want: http.StatusRequestTimeout},
		{name: "chunks of single bytes", give: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", then: "1\r\nx\r\n", want: http.StatusRequestTimeout},
		{name: "half a header", give: "GET / HTTP/1.1\r\nHost", want: http.StatusBadRequest},
		{name: "headers without an end", give: "GET / HTTP/1.1\r\nHost: a\r\n", then: "X: y\r\n"},
		{name: "nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := testOptions()
				r := start(t, o, limits.Limits{})
				r.serve(echo)
				c, from := r.dial()
				began := time.Now()
				var sending sync.WaitGroup
				defer sending.Wait()
				defer func() { _ = c.Close() }()
				sending.Go(func() {
					_, err := io.WriteString(c, tt.give)
					for err == nil && tt.then != "" {
						time.Sleep(time.Second)
						_, err = io.WriteString(c, tt.then)
					}
				})
				response, err := http.ReadResponse(from, nil)
				took := time.Since(began)
				if tt.want == 0 {
					require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				} else {
					require.NoError(t, err)
					assert.Equal(t, tt.want, response.StatusCode)
					_ = response.Body.Close()
				}
				assert.InDelta(t, o.BodyTimeout.Seconds(), took.Seconds(), 2)
			})
		})
	}
}

// TestSlowHeadersCount has a client that opens connections and sends headers without an end. It reaches its share, and another
// client is served.
func TestSlowHeadersCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{Bytes: 2 << 20})
		r.serve(echo)
		for range 40 {
			c, _ := r.dial()
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", 16<<10))
		}
		synctest.Wait()
		assert.Positive(t, r.ProxyStats().RefusedConnections)
		assert.Less(t, r.ledger.TotalUse(limits.Bytes), int64(2<<20+(20+16*20)<<10))
	})
}

// TestClientGoesInABody ends bodies in the middle: nothing is picked, and nothing stays.
func TestClientGoesInABody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.serve(echo)
		for i, give := range []string{"Content-Length: 100\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"} {
			c, from := r.dial()
			_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\n"+give)
			require.NoError(t, err)
			synctest.Wait()
			require.Equal(t, 1, r.InFlight())
			require.NoError(t, c.Close())
			assert.Equal(t, request.Unpicked, r.pool.ended(t, i+1)[i].Outcome)
			_, err = from.ReadByte()
			require.Error(t, err)
		}
	})
}

// TestEdits renames the model in a request, and back in its response, whose pieces cut it in the middle.
func TestEdits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.refusing() // the body is sent again
		r.serve(func(w http.ResponseWriter, q *http.Request) {
			body, _ := io.ReadAll(q.Body)
			assert.Equal(t, "{\"model\": \"served-model\", \"prompt\": \"p\"}", string(body)) //nolint:testifylint // byte for byte
			assert.Equal(t, int64(len(body)), q.ContentLength)
			answer := `{"id": "1", "model": "served-model", "choices": []}`
			w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
			for _, piece := range []string{answer[:22], answer[22:]} {
				_, _ = io.WriteString(w, piece)
				_ = http.NewResponseController(w).Flush()
			}
		})
		for range 3 {
			r.pool.mu.Lock()
			r.pool.decision.Edit = request.Edit{Span: api.Span{From: 10, To: 13}, Replacement: []byte(`"served-model"`)}
			r.pool.decision.Restore = api.NewModelRenamer("served-model", []byte(`"m"`))
			r.pool.mu.Unlock()
			a := r.do(r.client(), http.MethodPost, "/v1/completions", `{"model": "m", "prompt": "p"}`)
			assert.Equal(t, `{"id": "1", "model": "m", "choices": []}`, a.body) //nolint:testifylint // byte for byte
			if length := a.header.Get("Content-Length"); length != "" {         // net/http adds that of a small body
				assert.Equal(t, strconv.Itoa(len(a.body)), length)
			}
		}
	})
}
