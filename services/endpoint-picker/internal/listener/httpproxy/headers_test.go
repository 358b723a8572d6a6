package httpproxy

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

func TestRemoveHopByHop(t *testing.T) {
	t.Parallel()
	h := http.Header{
		"Connection": {"close, X-Named", " x-other ,"}, "X-Named": {"a"}, "X-Other": {"b"}, "Keep-Alive": {"timeout=5"}, "Te": {"gzip"}, "Trailer": {"X"},
		"Upgrade": {"h2c"}, "Http2-Settings": {"x"}, "Proxy-Connection": {"close"}, "Proxy-Authorization": {"secret"}, "Proxy-Authenticate": {"x"},
		"Transfer-Encoding": {"chunked"}, "X-Kept": {"c"}, "Content-Type": {"d"},
	}
	removeHopByHop(h)
	assert.Equal(t, http.Header{"X-Kept": {"c"}, "Content-Type": {"d"}}, h)
}

func TestForwarded(t *testing.T) {
	t.Parallel()
	claimed := http.Header{
		headerForwardedFor: {"1.1.1.1", "2.2.2.2"}, headerForwardedProto: {"ftp"}, headerForwardedHost: {"evil"}, headerForwarded: {"for=1.1.1.1"},
	}
	own := http.Header{headerForwardedFor: {"10.0.0.9"}, headerForwardedProto: {"http"}, headerForwardedHost: {"models.example"}}
	encrypted := own.Clone()
	encrypted.Set(headerForwardedProto, "https")
	appended := claimed.Clone()
	appended[headerForwardedFor] = []string{"1.1.1.1, 2.2.2.2, 10.0.0.9"}
	tests := []struct {
		name   string
		policy string
		give   http.Header
		tls    *tls.ConnectionState
		want   http.Header
	}{
		{name: "replace nothing", policy: "replace", want: own},
		{name: "replace over TLS", policy: "replace", tls: &tls.ConnectionState{}, want: encrypted},
		{name: "replace claims", policy: "replace", give: claimed, want: own},
		{name: "append to nothing", policy: "append", want: own},
		{name: "append to claims", policy: "append", give: claimed, want: appended},
		{name: "off", policy: "off", want: http.Header{}},
		{name: "off with claims", policy: "off", give: claimed, want: claimed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var policy ForwardedPolicy
			require.NoError(t, policy.Set(tt.policy))
			assert.Equal(t, tt.policy, policy.String())
			h := tt.give.Clone()
			if h == nil {
				h = http.Header{}
			}
			policy.setHeaders(h, &http.Request{Host: "models.example", TLS: tt.tls}, "10.0.0.9")
			assert.Equal(t, tt.want, h)
		})
	}
	var policy ForwardedPolicy
	require.EqualError(t, policy.Set("trust"), `"trust" is not one of replace, append, off`)
	assert.Equal(t, "policy", policy.Type())
}

// TestHeadersForModelServers has a client that sets everything that it must not.
func TestHeadersForModelServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.params.Options.Wanted.SetFurther([]string{"x-session", api.HeaderFairness})
		got := make(chan *http.Request, 1)
		r.serve(func(_ http.ResponseWriter, q *http.Request) { got <- q })
		r.pool.decision = request.Decision{Set: api.Headers{{Name: "x-request-id", Value: "new"}, {Name: "traceparent", Value: "trace"}}, Remove: []string{"x-removed"}}
		headers := []string{
			"Accept", "a", "Accept", "b", "Cookie", "c", "X-Removed", "d", "Connection", "X-Secret, X-Forwarded-For", "X-Secret", "e", "X-Forwarded-For", "6.6.6.6",
			"X_Forwarded_For", "6.6.6.6", "X_Gateway_Destination_Endpoint", "169.254.169.254:80",
			"X-Gateway-Destination-Endpoint", "169.254.169.254:80", "X-Session", "s", "TE", "trailers, gzip", "Upgrade", "h2c", "Expect", "100-continue",
		}
		for _, c := range api.Controls() {
			if c.Private {
				headers = append(headers, strings.ToUpper(c.Name), "169.254.169.254:80")
			}
		}
		c := r.client()
		r.do(c, http.MethodPost, "/v1/completions?q=%20", "body", headers...)
		q := <-got
		assert.Equal(t, r.address, q.Host, "the Host stays")
		assert.Equal(t, "/v1/completions?q=%20", q.RequestURI)
		assert.Equal(t, http.Header{
			"Accept": {"a", "b"}, "Cookie": {"c"}, "X-Session": {"s"}, "Te": {"trailers"}, "X-Request-Id": {"new"}, "Traceparent": {"trace"},
			"X-Forwarded-For": {"192.0.2.1"}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {r.address}, "User-Agent": {"Go-http-client/1.1"},
			"Content-Length": {"4"},
		}, q.Header)
		r.pool.mu.Lock()
		defer r.pool.mu.Unlock()
		assert.Contains(t, r.pool.headers, "x-session=s")
		assert.Contains(t, r.pool.headers, api.HeaderFairness+"=169.254.169.254:80", "picks read them")
	})
}

// TestAnswersAreNotCompressed has requests for inference, whose answers the picker reads.
func TestAnswersAreNotCompressed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.serve(func(w http.ResponseWriter, q *http.Request) {
			_, _ = io.WriteString(w, q.Header.Get("Accept-Encoding"))
		})
		c := r.client()
		assert.Equal(t, "gzip", r.do(c, http.MethodPost, "/files", "body", "Accept-Encoding", "gzip").body)
		r.pool.decision.Inference = true
		assert.Empty(t, r.do(c, http.MethodPost, "/v1/completions", "body", "Accept-Encoding", "gzip").body)
		r.serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "rubbish")
		})
		r.pool.decision.Generates = true
		assert.Equal(t, "rubbish", r.do(c, http.MethodPost, "/v1/completions", "body").body)
		r.pool.mu.Lock()
		defer r.pool.mu.Unlock()
		assert.Equal(t, request.Doubtful, r.pool.signals[len(r.pool.signals)-1])
	})
}

// TestLinesOfRequestsPassUnchanged has methods and paths that model servers must see as they are.
func TestLinesOfRequestsPassUnchanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.serve(echo)
		c, from := r.dial()
		for _, line := range []string{
			"DELETE /v1/files/1", "OPTIONS /v1/models", "GET //v1//models/", "GET /v1/%6dodels%2Fa?b=%2F;c", "POST /v1/%63ompletions", "GET /a%0d%0aX:%20b", "GET /./a/../b",
		} {
			assert.Equal(t, line+" ", send(t, c, from, line+" HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").body)
		}
	})
}

// TestNothingIsAdded sends the smallest request: it reaches the model server without a user agent, and the response has no
// content type.
func TestNothingIsAdded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := testOptions()
		o.Forwarded = Off
		r := start(t, o, limits.Limits{})
		got := make(chan http.Header, 1)
		r.serve(func(w http.ResponseWriter, q *http.Request) {
			got <- q.Header
			w.Header()["Content-Type"], w.Header()["Date"] = nil, nil
			_, _ = io.WriteString(w, "<html>")
		})
		c, from := r.dial()
		a := send(t, c, from, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		assert.Equal(t, "<html>", a.body)
		assert.Empty(t, <-got)
		a.header.Del("Date")
		assert.Equal(t, http.Header{"Content-Length": {"6"}}, a.header)
	})
}

// TestShapesOfRequests sends requests that proxies and servers have read differently. What reaches the model server is framed
// by the proxy, so nothing can be smuggled in.
func TestShapesOfRequests(t *testing.T) {
	t.Parallel()
	const attack = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	tests := []struct {
		name     string
		give     string
		want     int
		wantBody string // of the request, as the model server has it
	}{
		{name: "length and chunks", give: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", want: 400},
		{
			name: "chunks and a request behind them",
			give: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", want: 400,
		},
		{name: "two lengths", give: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 35\r\n\r\nabc" + attack, want: 400},
		{name: "two equal lengths", give: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", want: 200, wantBody: "abc"},
		{name: "list of lengths", give: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 35\r\n\r\nabc", want: 400},
		{name: "signed length", give: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc", want: 400},
		{name: "negative length", give: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\nabc", want: 400},
		{name: "huge length", give: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\nabc", want: 400},
		{name: "unknown coding", give: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", want: 501},
		{name: "two codings", give: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", want: 501},
		{name: "coding with a tab", give: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", want: 200, wantBody: "abc"},
		{name: "space before the colon", give: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\nabc", want: 400},
		{name: "folded header", give: "POST / HTTP/1.1\r\nHost: a\r\nX: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc", want: 400},
		{name: "chunks of HTTP/1.0", give: "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", want: 400},
		{name: "line without a carriage return", give: "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", want: 400},
		{name: "first line without a carriage return", give: "GET / HTTP/1.1\nHost: a\r\n\r\n", want: 400},
		{name: "last line without a carriage return", give: "GET / HTTP/1.1\r\nHost: a\r\n\n", want: 400},
		{name: "trailer without a carriage return", give: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: a\n\r\n", want: 400},
		{name: "size of a chunk is no number", give: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n", want: 400},
		{name: "chunk longer than its size", give: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n", want: 400},
		{name: "no host", give: "GET / HTTP/1.1\r\n\r\n", want: 400},
		{name: "two hosts", give: "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", want: 400},
		{name: "control characters", give: "GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n", want: 400},
		{name: "bare carriage return in a header", give: "GET / HTTP/1.1\r\nHost: a\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n", want: 400},
		{name: "newer version", give: "GET / HTTP/3.0\r\nHost: a\r\n\r\n", want: 505},
		{name: "absolute form", give: "GET http://b/c HTTP/1.1\r\nHost: a\r\n\r\n", want: 200},
		{name: "tunnel", give: "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", want: 501},
		{name: "web socket at a server without", give: "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", want: 200},
		{name: "web socket with a body", give: "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n\r\nabc", want: 200, wantBody: "abc"},
		{name: "web socket by POST", give: "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n\r\nabc", want: 200, wantBody: "abc"},
		{name: "offer of TLS", give: "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: TLS/1.2\r\nConnection: Upgrade\r\n\r\n", want: 200},
		{name: "offer of TLS with a body", give: "POST / HTTP/1.1\r\nHost: a\r\nUpgrade: TLS/1.2\r\nConnection: Upgrade\r\nContent-Length: 3\r\n\r\nabc", want: 200, wantBody: "abc"},
		{name: "unknown protocol", give: "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n", want: 200},
		{name: "offer of HTTP/2", give: "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", want: 200},
		{name: "offer of HTTP/2 with a body", give: "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 3\r\n\r\nabc", want: 200, wantBody: "abc"},
		{name: "usual headers", give: "GET / HTTP/1.1\r\nHost: a\r\nCookie: " + strings.Repeat("a", 40<<10) + "\r\n\r\n", want: 200},
		{name: "large headers", give: "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", maxHeaders+5000) + "\r\n\r\n", want: 431},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := start(t, testOptions(), limits.Limits{})
				got := make(chan string, 10)
				r.serve(func(w http.ResponseWriter, q *http.Request) {
					body, _ := io.ReadAll(q.Body)
					got <- q.RequestURI + string(body)
					echo(w, q)
				})
				c, from := r.dial()
				go func() { _, _ = io.WriteString(c, tt.give) }() // the proxy may not read it all
				a := receive(t, from)
				assert.Equal(t, tt.want, a.status, a.body)
				if tt.want != http.StatusOK {
					assert.Empty(t, got)
					return
				}
				require.Len(t, got, 1)
				assert.Contains(t, []string{"/" + tt.wantBody, "/c"}, <-got)
			})
		})
	}
}

func TestAnnounced(t *testing.T) {
	t.Parallel()
	for give, want := range map[string]int{"": 0, "timeout=5": 5, "max=3, Timeout=7": 7, "timeout": 0, "timeout=-1": 0, "timeout=99999999": 0, "timeout=5; x": 0} {
		assert.Equal(t, float64(want), announcedTimeout(give).Seconds(), give)
	}
}

// TestShadowsOfHeaders has headers whose names differ by underscores from those of the picker, or of a proxy.
func TestShadowsOfHeaders(t *testing.T) {
	t.Parallel()
	var w request.WantedHeaders
	w.SetFurther([]string{"x-session"})
	for name, removed := range map[string]bool{
		"X_Forwarded_For": true, "X_forwarded-Proto": true, "X-Forwarded_Port": true, "Forwarded_": false, "X_Real_Ip": true, "X_Request_Id": true, "Traceparent": false,
		"X_Gateway_Destination_Endpoint": true, "X_Prefiller_Host_Port": true, "X_Session": true, "Transfer_Encoding": true, "Content_Length": true,
		"Openai_Organization": false, "X_Own": false, "X_Twice": true,
	} {
		h := http.Header{"X-Twice": {"a"}, textproto.CanonicalMIMEHeaderKey(name): {"b"}}
		removeShadows(h, w.ListHeaders())
		_, kept := h[textproto.CanonicalMIMEHeaderKey(name)]
		assert.Equal(t, removed, !kept, name)
		assert.Contains(t, h, "X-Twice")
	}
}
