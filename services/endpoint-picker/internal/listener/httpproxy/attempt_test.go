package httpproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// readRequest reads one request from a connection of the proxy.
func readRequest(c net.Conn) error {
	q, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, q.Body)
	return err
}

// TestRepeats has a first server that fails in each way, and a second one that does not.
func TestRepeats(t *testing.T) {
	t.Parallel()
	const (
		moved  = "moved"  // the second server answers
		failed = "failed" // 502
		cut    = "cut"    // the client sees that the response is not complete
	)
	faults := []struct {
		name             string
		fault            func(n int, c net.Conn) // nil: nobody listens
		post, get, keyed string
	}{
		{name: "nobody listens", post: moved, get: moved, keyed: moved},
		{name: "the end after the request", fault: func(_ int, c net.Conn) { _ = readRequest(c) }, post: failed, get: moved, keyed: moved},
		{
			name: "half of the headers", post: failed, get: moved, keyed: moved,
			fault: func(_ int, c net.Conn) { _ = readRequest(c); _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ") },
		},
		{
			name: "no HTTP", post: failed, get: moved, keyed: moved,
			fault: func(_ int, c net.Conn) { _ = readRequest(c); _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n\r\n") },
		},
		{
			name: "half of the body", post: cut, get: cut, keyed: cut,
			fault: func(_ int, c net.Conn) {
				_ = readRequest(c)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
			},
		},
		{
			name: "a chunk without an end", post: cut, get: cut, keyed: cut,
			fault: func(_ int, c net.Conn) {
				_ = readRequest(c)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
			},
		},
		{
			name: "another protocol", post: failed, get: failed, keyed: failed,
			fault: func(_ int, c net.Conn) {
				_ = readRequest(c)
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			},
		},
	}
	for _, tt := range faults {
		for kind, want := range map[string]string{"POST": tt.post, "GET": tt.get, "KEYED": tt.keyed} {
			t.Run(tt.name+" "+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := start(t, testOptions(), limits.Limits{})
					if tt.fault == nil {
						r.refusing()
					} else {
						r.serveRaw(tt.fault)
					}
					second := r.serve(echo)
					method, body, headers := "POST", "body", []string(nil)
					switch kind {
					case "GET":
						method, body = "GET", ""
					case "KEYED":
						headers = []string{"Idempotency-Key", "1"}
					}
					a := r.do(r.client(), method, "/", body, headers...)
					record := r.pool.ended(t, 1)[0]
					switch want {
					case moved:
						assert.Equal(t, reply{http.StatusOK, a.header, method + " / " + body, nil}, a)
						assert.Equal(t, second, record.Served)
						assert.Equal(t, request.Completed, record.Outcome)
						assert.Equal(t, int64(1), r.ProxyStats().Retries)
					case failed:
						assert.Equal(t, http.StatusBadGateway, a.status)
						assert.False(t, record.HasMoved())
						assert.Equal(t, http.StatusBadGateway, record.Status)
						assert.Zero(t, r.ProxyStats().Retries)
					case cut:
						require.Error(t, a.err)
						assert.Equal(t, request.Interrupted, record.Outcome)
						assert.Zero(t, r.ProxyStats().Retries)
					}
					assert.Zero(t, r.pool.inFlight())
				})
			})
		}
	}
}

// TestStatusIsRelayed expects that no status is a reason to ask another server.
func TestStatusIsRelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []int{204, 304, 400, 404, 429, 500, 502, 503, 504, 599} {
			r := start(t, testOptions(), limits.Limits{})
			r.serve(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(code)
			})
			r.serve(echo)
			a := r.do(r.client(), http.MethodGet, "/", "")
			assert.Equal(t, code, a.status)
			assert.Equal(t, "7", a.header.Get("Retry-After"))
			assert.Equal(t, code, r.pool.ended(t, 1)[0].Status)
		}
	})
}

// TestNobodyIsThere expects a bounded number of attempts, and a status after which clients try again.
func TestNobodyIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		for range 5 {
			r.refusing()
		}
		a := r.do(r.client(), http.MethodPost, "/", "body")
		assert.Equal(t, http.StatusServiceUnavailable, a.status)
		assert.Equal(t, "no connection to the model server; try again in 1 s", messageOf(t, a.body), "it has no address")
		assert.Equal(t, "1", a.header.Get("Retry-After"))
		assert.Empty(t, a.header.Get("X-Llm-D-Request-Dropped-Reason"))
		assert.Equal(t, int64(testOptions().MaxAttempts), r.ProxyStats().Attempts[Unconnected])
		assert.Equal(t, int64(testOptions().MaxAttempts-1), r.ProxyStats().Retries)
		record := r.pool.ended(t, 1)[0]
		assert.Equal(t, http.StatusServiceUnavailable, record.Status)
		assert.True(t, record.HasMoved(), "the last server failed, too")
		assert.Zero(t, r.pool.inFlight())
	})
}

// TestDialTimeout has a node that has gone: nobody answers. Requests move to the next server.
func TestDialTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.serve(echo)
		r.pool.add("10.9.9.9:8000")
		r.pool.endpoints[0], r.pool.endpoints[1] = r.pool.endpoints[1], r.pool.endpoints[0]
		began := time.Now()
		a := r.do(r.client(), http.MethodPost, "/", "body")
		assert.Equal(t, "POST / body", a.body)
		assert.Equal(t, dialTimeout, time.Since(began))
	})
}

// TestSilence has servers that stop at some point, and others that are slow.
func TestSilence(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		answer http.HandlerFunc
		want   int
		cut    bool
		took   time.Duration
	}{
		{name: "no response", answer: func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }, want: http.StatusGatewayTimeout, took: time.Minute},
		{
			name: "no further piece", want: http.StatusOK, cut: true, took: 70 * time.Second,
			answer: func(w http.ResponseWriter, q *http.Request) {
				time.Sleep(10 * time.Second)
				_ = http.NewResponseController(w).Flush()
				<-q.Context().Done()
			},
		},
		{
			name: "a long prefill and slow tokens", want: http.StatusOK, took: 11 * 59 * time.Second,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				for range 11 {
					time.Sleep(59 * time.Second)
					_, _ = io.WriteString(w, "x")
					_ = http.NewResponseController(w).Flush()
				}
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := testOptions()
				o.IdleTimeout = time.Minute
				r := start(t, o, limits.Limits{})
				r.serveHTTP(&http.Server{Handler: tt.answer})
				r.serve(echo)
				began := time.Now()
				a := r.do(r.client(), http.MethodGet, "/", "")
				assert.Equal(t, tt.want, a.status)
				assert.Equal(t, tt.cut, a.err != nil)
				assert.Equal(t, tt.took, time.Since(began))
				synctest.Wait()
				assert.Zero(t, r.pool.inFlight())
			})
		})
	}
}

// TestClientGoes ends the request of a client at each stage. The model server hears of it at once, and gets nothing again.
func TestClientGoes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		before func(w http.ResponseWriter)
		want   request.Outcome
	}{
		{name: "before the response", before: func(http.ResponseWriter) {}, want: request.Unseen},
		{name: "during the response", before: func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, want: request.Interrupted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := start(t, testOptions(), limits.Limits{})
				here, gone := make(chan struct{}), make(chan struct{})
				r.serve(func(w http.ResponseWriter, q *http.Request) {
					_, _ = io.Copy(io.Discard, q.Body)
					tt.before(w)
					close(here)
					<-q.Context().Done()
					close(gone)
				})
				r.serve(func(http.ResponseWriter, *http.Request) { t.Error("the request was sent again") })
				c, from := r.dial()
				_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: 1\r\nContent-Length: 4\r\n\r\nbody")
				require.NoError(t, err)
				if <-here; tt.want == request.Interrupted {
					_, err = from.ReadByte()
					require.NoError(t, err)
				}
				require.NoError(t, c.Close())
				<-gone
				assert.Equal(t, tt.want, r.pool.ended(t, 1)[0].Outcome)
				assert.Equal(t, int64(1), r.ProxyStats().Attempts[Gone])
			})
		})
	}
}

// TestServerIsFull has a server with as many requests as it may have connections.
func TestServerIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := testOptions()
		o.MaxServerConns = 2
		r := start(t, o, limits.Limits{})
		release := make(chan struct{})
		r.serve(func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-release
		})
		r.serve(echo)
		c := r.client()
		for range 2 {
			response, err := c.Get("http://" + r.address)
			require.NoError(t, err)
			t.Cleanup(func() { _ = response.Body.Close() })
		}
		a := r.do(c, http.MethodGet, "/", "")
		assert.Equal(t, http.StatusTooManyRequests, a.status)
		assert.Equal(t, errFull.Error()+"; try again in 1 s", messageOf(t, a.body))
		assert.Equal(t, "rejected-saturated", a.header.Get("X-Llm-D-Request-Dropped-Reason"))
		assert.Equal(t, []ServerStats{{r.pool.endpoints[0].Address(), 2}}, r.ProxyStats().Servers)
		record := r.pool.ended(t, 1)[0]
		assert.Equal(t, request.Refused, record.Outcome)
		assert.False(t, record.HasMoved(), "the server did not fail")
		close(release)
		r.pool.ended(t, 3)
		assert.Equal(t, http.StatusOK, r.do(c, http.MethodGet, "/", "").status)
	})
}

func TestCountsOfErrors(t *testing.T) {
	t.Parallel()
	c := newCounters()
	for _, err := range []error{nil, errGone, errors.Join(errUnconnected, io.EOF), errSilent, io.EOF} {
		c.countResult(err)
	}
	for result, n := range c.attempts {
		assert.Equal(t, int64(1), n.Load(), result)
	}
}
