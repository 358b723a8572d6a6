package httpproxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/textproto"
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

// http2Client returns a client of HTTP/2 without TLS.
func (r *rig) http2Client() *http.Client {
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: r.connect}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestHeadersOfResponses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := testOptions()
		o.ReportEndpoint = true
		r := start(t, o, limits.Limits{})
		r.serve(func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h["Set-Cookie"], h["Connection"], h["X-Secret"], h["Keep-Alive"] = []string{"a", "b"}, []string{"X-Secret"}, []string{"c"}, []string{"timeout=5"}
			h.Set("X-Fairlead-Picked-Endpoint", "faked")
			h.Set("Content-Type", "text/event-stream; charset=utf-8")
			_, _ = io.WriteString(w, "data: x\n\n")
		})
		r.pool.decision = request.Decision{Reply: api.Headers{{Name: "x-fairlead-pick-explained", Value: "why"}}, Conformance: true}
		a := r.do(r.client(), http.MethodGet, "/", "")
		a.header.Del("Date")
		address := r.pool.endpoints[0].Address()
		assert.Equal(t, http.Header{
			"Set-Cookie": {"a", "b"}, "Content-Type": {"text/event-stream; charset=utf-8"}, "Content-Length": {"9"},
			"X-Fairlead-Picked-Endpoint": {address}, "X-Fairlead-Pick-Explained": {"why"}, "X-Conformance-Test-Served-Endpoint": {address},
		}, a.header)
		record := r.pool.ended(t, 1)[0]
		assert.True(t, record.Streaming)
		assert.Equal(t, 9, record.ResponseBytes)
	})
}

func TestHead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.serve(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1000") })
		for range 2 { // the second on the same connections
			a := r.do(r.client(), http.MethodHead, "/health", "")
			assert.Equal(t, "1000", a.header.Get("Content-Length"))
			assert.Empty(t, a.body)
		}
		assert.Equal(t, request.Completed, r.pool.ended(t, 2)[1].Outcome)
	})
}

// TestInformationalResponses has a server that sends hints before its response.
func TestInformationalResponses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.serveRaw(func(_ int, c net.Conn) {
			_ = readRequest(c)
			_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\nConnection: Y\r\nY: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		})
		c, from := r.dial()
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
		lines := textproto.NewReader(from)
		line, err := lines.ReadLine()
		require.NoError(t, err)
		assert.Equal(t, "HTTP/1.1 103 Early Hints", line)
		h, err := lines.ReadMIMEHeader()
		require.NoError(t, err)
		assert.Equal(t, textproto.MIMEHeader{"Link": {"a"}}, h)
		a := receive(t, from)
		assert.Equal(t, "ok", a.body)
		assert.Empty(t, a.header.Get("Link"))
	})
}

// TestUnreadResponse has a client that reads nothing of a long response: it is given up, and so is the model server's part.
func TestUnreadResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := testOptions()
		r := start(t, o, limits.Limits{})
		gone := make(chan time.Time, 1)
		r.serveHTTP(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			for q.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 10_000))
			}
			gone <- time.Now()
		})})
		c, _ := r.dial()
		began := time.Now()
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
		assert.InDelta(t, o.SendTimeout.Seconds(), (<-gone).Sub(began).Seconds(), 2)
		synctest.Wait()
		assert.Zero(t, r.InFlight())
		assert.Equal(t, request.Interrupted, r.pool.records[0].Outcome)
	})
}

// TestLeave expects that draining keeps serving, and makes clients use other connections.
func TestLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.serve(echo)
		one, two := r.client(), r.http2Client()
		for _, c := range []*http.Client{one, two} {
			assert.False(t, mustClose(t, r, c))
		}
		assert.Equal(t, 2, r.OpenConns())
		r.StartDraining()
		assert.True(t, mustClose(t, r, one), "HTTP/1.1 has a header")
		assert.False(t, mustClose(t, r, two), "HTTP/2 has none")
		await(t, func() bool { return r.OpenConns() == 0 })
	})
}

func mustClose(t *testing.T, r *rig, c *http.Client) bool {
	t.Helper()
	response, err := c.Post("http://"+r.address, "text/plain", strings.NewReader("a"))
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusOK, response.StatusCode)
	return response.Close
}

// TestDrain expects that open requests end as they would, within a time limit.
func TestDrain(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]func(r *rig) *http.Client{"HTTP/1.1": (*rig).client, "HTTP/2": (*rig).http2Client} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := start(t, testOptions(), limits.Limits{})
				release := make(chan struct{})
				r.serve(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = io.WriteString(w, "begin ")
					_ = http.NewResponseController(w).Flush()
					<-release
					_, _ = io.WriteString(w, "end")
				})
				client := protocol(r)
				response, err := client.Get("http://" + r.address)
				require.NoError(t, err)
				defer func() { _ = response.Body.Close() }()
				short, cancel := context.WithCancel(t.Context())
				cancel()
				assert.False(t, r.DrainConns(short), "a request is open")
				assert.Equal(t, 1, r.InFlight())
				_, err = r.connect(t.Context(), "tcp", r.address)
				require.Error(t, err, "nothing new is accepted")
				close(release)
				text, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				assert.Equal(t, "begin end", string(text))
				client.CloseIdleConnections()
				assert.True(t, r.DrainConns(t.Context()))
			})
		})
	}
}

// TestHealthSignalOfClientsThatGo has clients that go before or after the first content of an answer.
func TestHealthSignalOfClientsThatGo(t *testing.T) {
	t.Parallel()
	const delta = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
	tests := []struct {
		name    string
		headers bool
		body    string
		want    []request.HealthSignal
	}{
		{name: "before anything", want: []request.HealthSignal{request.Silent}},
		{name: "after the headers", headers: true, want: []request.HealthSignal{request.Silent}},
		{name: "after a comment", headers: true, body: ": ping\n\n", want: []request.HealthSignal{request.Silent}},
		{name: "after the first content", headers: true, body: delta, want: []request.HealthSignal{request.Silent}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := start(t, testOptions(), limits.Limits{})
				r.pool.decision.Inference = true
				for range 2 { // so that the proxy waits for the beginning of the answer
					r.serve(func(w http.ResponseWriter, q *http.Request) {
						_, _ = io.Copy(io.Discard, q.Body)
						w.Header().Set("Content-Type", "text/event-stream")
						if tt.headers {
							_, _ = io.WriteString(w, tt.body)
							_ = http.NewResponseController(w).Flush()
						}
						<-q.Context().Done()
					})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.address+"/v1/chat/completions", strings.NewReader("{}"))
				require.NoError(t, err)
				if response, err := r.client().Do(request); err == nil {
					_, _ = io.ReadAll(response.Body)
					_ = response.Body.Close()
				}
				r.pool.ended(t, 1)
				assert.Equal(t, tt.want, r.pool.signals)
				assert.Empty(t, r.pool.failures, "no other server gets it")
			})
		})
	}
}

// TestCloseCuts expects that the client of a cut response sees that it is not complete.
func TestCloseCuts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		gone := make(chan struct{})
		r.serve(func(w http.ResponseWriter, q *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-q.Context().Done()
			close(gone)
		})
		response, err := r.client().Get("http://" + r.address)
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		r.Close()
		_, err = io.ReadAll(response.Body)
		require.Error(t, err)
		<-gone
		assert.Zero(t, r.InFlight())
	})
}

// TestRandomFaults has clients and model servers that do anything at any time. At the end nothing is counted: no request, no byte, no
// connection, and no lease. Responses that are complete are right.
func TestRandomFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { testRandomFaults(t, start) })
}

func testRandomFaults(t *testing.T, start func(t testing.TB, o Options, l limits.Limits) *rig) {
	t.Helper()
	o := testOptions()
	o.MaxServerConns = 6
	r := start(t, o, limits.Limits{Streams: 50, Bytes: 8 << 20})
	for i := range 3 {
		r.serveRaw(func(n int, c net.Conn) { faultyServer(rand.New(rand.NewPCG(uint64(i), uint64(n))), c) })
	}
	r.refusing()
	var clients sync.WaitGroup
	for i := range 12 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(100, uint64(i)))
			c := r.client()
			if i%3 == 0 {
				c = r.http2Client()
			}
			for range 40 {
				faultyClient(t, r, c, random)
			}
		})
	}
	clients.Wait()
	await(t, func() bool { return r.InFlight() == 0 })
	r.pool.mu.Lock()
	open := int64(0)
	outcomes := map[request.Outcome]int{}
	for _, record := range r.pool.records {
		outcomes[record.Outcome]++
		if record.Outcome == request.Unseen {
			open++ // abandoned: it counts until the next scrape, which this test does not have
		}
	}
	r.pool.mu.Unlock()
	assert.LessOrEqual(t, r.pool.inFlight(), open)
	assert.Greater(t, outcomes[request.Completed], 50)
	assert.Greater(t, len(outcomes), 3, outcomes)
	for _, s := range r.upstream.servers {
		assert.Zero(t, s.requests.Load())
	}
}

// faultyServer answers requests with the length of their body, or does something else.
func faultyServer(random *rand.Rand, c net.Conn) {
	from := bufio.NewReader(c)
	for {
		if random.IntN(20) == 0 {
			return
		}
		q, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		if random.IntN(20) == 0 {
			reset(c)
			return
		}
		n, err := io.Copy(io.Discard, q.Body)
		if err != nil {
			return
		}
		text := strings.Repeat(fmt.Sprintf("%d ", n), 1+random.IntN(3000))
		answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		if random.IntN(2) == 0 {
			answer = fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(text), text)
		}
		if random.IntN(8) == 0 {
			_, _ = io.WriteString(c, answer[:random.IntN(len(answer))])
			return
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// faultyClient sends a request, and may go at any time.
func faultyClient(t *testing.T, r *rig, c *http.Client, random *rand.Rand) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	size := random.IntN(100_000)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.address, io.LimitReader(cancelingReader{random, cancel}, int64(size)))
	if err != nil {
		t.Error(err)
		return
	}
	if random.IntN(2) == 0 {
		request.Header.Set("Idempotency-Key", "1")
	}
	response, err := c.Do(request)
	if err != nil {
		return
	}
	defer func() { _ = response.Body.Close() }()
	if random.IntN(5) == 0 {
		return
	}
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode == http.StatusOK && !strings.HasPrefix(string(text), fmt.Sprintf("%d ", size)) {
		t.Errorf("%d bytes, and the server got %.20q", size, text)
	}
}

// cancelingReader cancels a request in the middle of its body, now and then.
type cancelingReader struct {
	random *rand.Rand
	cancel context.CancelFunc
}

func (c cancelingReader) Read(b []byte) (int, error) {
	if c.random.IntN(40) == 0 {
		c.cancel()
	}
	return len(b), nil
}
