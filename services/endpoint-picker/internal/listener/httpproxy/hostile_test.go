package httpproxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// fields returns n lines of headers, each with the same text in front of its number.
func fields(n int, text string) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, text+"\r\n", i)
	}
	return s.String()
}

// TestHostileResponses has model servers whose responses cannot be relayed. The client gets 502, and the result is counted.
func TestHostileResponses(t *testing.T) {
	t.Parallel()
	const ok = "Content-Length: 2\r\n\r\nok"
	tests := []struct {
		name, response string
		want           int
	}{
		{name: "status 000", response: "HTTP/1.1 000 Zero\r\n" + ok, want: http.StatusBadGateway},
		{name: "status 099", response: "HTTP/1.1 099 Low\r\n" + ok, want: http.StatusBadGateway},
		{name: "the lowest status", response: "HTTP/1.1 200 OK\r\n" + ok, want: http.StatusOK},
		{name: "the highest status", response: "HTTP/1.1 999 High\r\n" + ok, want: 999},
		{name: "status of four digits", response: "HTTP/1.1 1000 Higher\r\n" + ok, want: http.StatusBadGateway},
		{name: "short fields", response: "HTTP/1.1 200 OK\r\n" + fields(800, "x%d:") + ok, want: http.StatusOK},
		{name: "too many short fields", response: "HTTP/1.1 200 OK\r\n" + fields(1000, "x%d:") + ok, want: http.StatusBadGateway},
		{name: "long fields", response: "HTTP/1.1 200 OK\r\n" + fields(60, "x%d: "+strings.Repeat("x", 1000)) + ok, want: http.StatusOK},
		{name: "too many long fields", response: "HTTP/1.1 200 OK\r\n" + fields(70, "x%d: "+strings.Repeat("x", 1000)) + ok, want: http.StatusBadGateway},
		{name: "trailers", response: chunked(fields(maxTrailers, "Trailer: x%d"), fields(maxTrailers, "x%d: 1")), want: http.StatusOK},
		{name: "too many trailers are announced", response: chunked(fields(maxTrailers+1, "Trailer: x%d"), ""), want: http.StatusBadGateway},
		{name: "too many trailers in one line", response: chunked("Trailer: "+strings.ReplaceAll(fields(maxTrailers+1, "x%d"), "\r\n", ",")+"x\r\n", ""), want: http.StatusBadGateway},
		{name: "two lengths", response: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n" + ok, want: http.StatusBadGateway},
		{name: "NUL in a header", response: "HTTP/1.1 200 OK\r\nX: a\x00b\r\n" + ok, want: http.StatusBadGateway},
		{name: "CR in a header", response: "HTTP/1.1 200 OK\r\nX: a\rb\r\n" + ok, want: http.StatusBadGateway},
		{name: "length and chunks", response: chunked("Content-Length: 1\r\n", ""), want: http.StatusOK},
		{name: "hints", response: strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", maxInformational) + "HTTP/1.1 200 OK\r\n" + ok, want: http.StatusOK},
		{name: "too many hints", response: strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", maxInformational+1) + "HTTP/1.1 200 OK\r\n" + ok, want: http.StatusBadGateway},
		{name: "too many of those that are not relayed", response: strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxInformational+1) + "HTTP/1.1 200 OK\r\n" + ok, want: http.StatusBadGateway},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := start(t, testOptions(), limits.Limits{})
				r.serveRaw(func(_ int, c net.Conn) {
					_ = readRequest(c)
					_, _ = io.WriteString(c, tt.response)
				})
				a := r.do(r.client(), http.MethodPost, "/", "body")
				assert.Equal(t, tt.want, a.status)
				require.NoError(t, a.err)
				record := r.pool.ended(t, 1)[0]
				assert.Equal(t, tt.want, record.Status)
				assert.Equal(t, request.Completed, record.Outcome)
				result := Answered
				if tt.want == http.StatusBadGateway {
					result = Broken
				}
				assert.Equal(t, int64(1), r.ProxyStats().Attempts[result])
			})
		})
	}
}

// chunked is a response with a body, and lines of its headers and trailers.
func chunked(headers, trailers string) string {
	return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + headers + "\r\n2\r\nok\r\n0\r\n" + trailers + "\r\n"
}

// TestTooManyTrailersAtTheEnd has trailers that were not announced: the response has begun, and does not end whole.
func TestTooManyTrailersAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.serveRaw(func(_ int, c net.Conn) {
			_ = readRequest(c)
			_, _ = io.WriteString(c, chunked("", fields(maxTrailers+1, "x%d: 1")))
		})
		a := r.do(r.client(), http.MethodPost, "/", "body")
		require.ErrorIs(t, a.err, io.ErrUnexpectedEOF)
		assert.Equal(t, request.Interrupted, r.pool.ended(t, 1)[0].Outcome)
		assert.Equal(t, int64(1), r.ProxyStats().Attempts[Broken])
	})
}

// TestResponseWithoutARequest has a server that sends a second response behind the first. Nobody gets it.
func TestResponseWithoutARequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.serveRaw(func(_ int, c net.Conn) {
			_ = readRequest(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nextra")
		})
		for range 3 {
			assert.Equal(t, "ok", r.do(r.client(), http.MethodPost, "/", "body").body)
			synctest.Wait()
		}
	})
}

// TestHintsEndWithTheirLimit has a server that sends hints without end. The client gets as many as are allowed, and the server is cut.
func TestHintsEndWithTheirLimit(t *testing.T) {
	t.Parallel()
	const hint = "HTTP/1.1 103 Early Hints\r\n\r\n"
	for version, hints := range map[string]int{"1.1": maxInformational, "1.0": 0} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := start(t, testOptions(), limits.Limits{})
				cut := make(chan struct{})
				r.serveRaw(func(_ int, c net.Conn) {
					defer close(cut)
					for err := readRequest(c); err == nil; {
						_, err = io.WriteString(c, hint)
					}
				})
				c, from := r.dial()
				_, err := io.WriteString(c, "POST / HTTP/"+version+"\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				require.NoError(t, err)
				text, err := io.ReadAll(from)
				require.NoError(t, err)
				<-cut
				assert.Equal(t, hints, strings.Count(string(text), " 103 Early Hints\r\n"))
				assert.Contains(t, string(text), " 502 Bad Gateway\r\n")
			})
		})
	}
}

// TestHeadersOfResponsesCount expects that a client pays for the headers of its response while they arrive and until its end.
func TestHeadersOfResponsesCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		half := "HTTP/1.1 200 OK\r\n" + fields(100, "X%02d:")
		next := make(chan string)
		r.serveRaw(func(_ int, c net.Conn) {
			_ = readRequest(c)
			for text := range next {
				_, _ = io.WriteString(c, text)
			}
		})
		c, from := r.dial()
		go func() { _, _ = io.Copy(io.Discard, from) }()
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
		synctest.Wait()
		before := r.ledger.TotalUse(limits.Bytes)
		counted := func() int64 {
			synctest.Wait()
			return r.ledger.TotalUse(limits.Bytes) - before
		}
		next <- half
		assert.Equal(t, int64(limits.HeaderGrowth*len(half)), counted())
		next <- "\r\n"
		h := http.Header{}
		for i := range 100 {
			h.Set(fmt.Sprintf("X%02d", i), "")
		}
		assert.Equal(t, int64(headerCopies*limits.HeadersSize(h)), counted())
		close(next)
		assert.Equal(t, int64(-requestBytes), counted(), "the request has ended, too")
		require.NoError(t, c.Close())
	})
}

// TestHeadersOfAClientBeyondItsShare has a server that never ends the headers of its response. Short ones may arrive, but when the client is
// beyond its share, long ones are cut.
func TestHeadersOfAClientBeyondItsShare(t *testing.T) {
	t.Parallel()
	const line = "aa:\r\n"
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{Bytes: 100 << 10})
		sent := make(chan int)
		r.serveRaw(func(_ int, c net.Conn) {
			_ = readRequest(c)
			n, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for k := 0; err == nil; n += k {
				k, err = io.WriteString(c, line)
			}
			sent <- n
		})
		c, from := r.dial()
		_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		require.NoError(t, err)
		n := <-sent
		assert.Greater(t, n, usualHeader)
		assert.Less(t, n, usualHeader+usualHeader, "one read of the transport more")
		assert.Equal(t, http.StatusBadGateway, receive(t, from).status)
	})
}
