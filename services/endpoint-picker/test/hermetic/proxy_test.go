//go:build system

package hermetic

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const proxyFlag = "--proxy-bind-address=127.0.0.1:0"

// startProxy runs a picker with the proxy listener, whose model servers give an answer.
func startProxy(t testing.TB, w world, answer http.HandlerFunc) *rig {
	t.Helper()
	w.flags = append([]string{proxyFlag}, w.flags...)
	r := start(t, w)
	for _, s := range r.servers {
		s.serve(answer)
	}
	return r
}

func (r *rig) proxy() string { return "http://" + r.address("proxy-bind-address") }

// client returns a client with connections of its own, until the end of the test.
func (r *rig) client() *http.Client {
	transport := &http.Transport{DisableCompression: true}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// through sends a request to the proxy, and returns its response with the whole body.
func (r *rig) through(c *http.Client, path, body string) (*http.Response, string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.proxy()+path, strings.NewReader(body))
	require.NoError(r.t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.Do(request)
	require.NoError(r.t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(r.t, err)
	require.NoError(r.t, response.Body.Close())
	return response, string(text)
}

// echo answers with what came.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, body)
}

func TestProxy_ServesByEachSource(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			r := startProxy(t, world{mode: m, pages: []string{pageOf(9, 9, 0.9, ""), pageOf(0, 0, 0, "")}, flags: []string{"--report-endpoint"}}, echo)
			c := r.client()
			response, text := r.through(c, "/v1/completions?a=b%2Fc", ofModel)
			assert.Equal(t, http.StatusOK, response.StatusCode)
			assert.Equal(t, "POST /v1/completions?a=b%2Fc "+ofModel, text)
			assert.Equal(t, r.at(1), response.Header.Get("X-Fairlead-Picked-Endpoint"))

			models, err := c.Get(r.proxy() + "/v1/models")
			require.NoError(t, err)
			got, err := io.ReadAll(models.Body)
			require.NoError(t, err)
			require.NoError(t, models.Body.Close())
			assert.Equal(t, "GET /v1/models ", string(got))
			page := r.metrics()
			assert.Equal(t, 2.0, page.sum("fairlead_picker_streams_total", "outcome", "completed"))
			assert.Equal(t, 2.0, page.sum("fairlead_picker_responses_total", "code", "200", "served", "picked"))
			assert.Equal(t, 2.0, page.sum("fairlead_picker_proxy_attempts_total", "result", "answered"))
		})
	}
}

// TestProxy_StreamsAtOnce has a model server that waits after each event until the client has it.
func TestProxy_StreamsAtOnce(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			seen := make(chan struct{})
			r := startProxy(t, world{pages: []string{pageOf(0, 0, 0, "")}}, func(w http.ResponseWriter, q *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.Header().Set("Trailer", "X-Announced")
				w.WriteHeader(http.StatusOK)
				for i := range 5 {
					_ = http.NewResponseController(w).Flush()
					select {
					case <-seen:
					case <-q.Context().Done():
						return
					}
					_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
				}
				w.Header().Set("X-Announced", "a")
				w.Header().Set(http.TrailerPrefix+"X-Unannounced", "b")
			})
			protocols := &http.Protocols{}
			protocols.SetHTTP1(protocol == "HTTP/1.1")
			protocols.SetUnencryptedHTTP2(protocol != "HTTP/1.1")
			transport := &http.Transport{Protocols: protocols}
			t.Cleanup(transport.CloseIdleConnections)
			response, err := (&http.Client{Transport: transport}).Post(r.proxy()+"/v1/completions", "application/json", strings.NewReader(ofModel))
			require.NoError(t, err)
			assert.Equal(t, protocol, response.Proto)
			lines := bufio.NewScanner(response.Body)
			for i := range 5 {
				seen <- struct{}{}
				require.True(t, lines.Scan())
				assert.Equal(t, fmt.Sprintf("data: %d", i), lines.Text())
				require.True(t, lines.Scan())
			}
			assert.False(t, lines.Scan())
			require.NoError(t, response.Body.Close())
			assert.Equal(t, http.Header{"X-Announced": {"a"}, "X-Unannounced": {"b"}}, response.Trailer)
		})
	}
}

// TestProxy_EndsWithItsClient has a client that goes in the middle of a stream: the model server hears of it at once.
func TestProxy_EndsWithItsClient(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	r := startProxy(t, world{pages: []string{pageOf(0, 0, 0, "")}}, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.proxy()+"/v1/completions", strings.NewReader(ofModel))
	require.NoError(t, err)
	response, err := r.client().Do(request)
	require.NoError(t, err)
	assert.Equal(t, 1.0, r.metrics().sum("fairlead_picker_endpoint_requests_in_flight"))
	cancel()
	<-gone
	_ = response.Body.Close()
	r.settle()
	assert.Equal(t, 1.0, r.metrics().sum("fairlead_picker_streams_total", "outcome", "interrupted"))
}

// TestProxy_MovesFromServersThatRefuse has a first choice that nobody listens at any more.
func TestProxy_MovesFromServersThatRefuse(t *testing.T) {
	t.Parallel()
	r := startProxy(t, world{pages: []string{pageOf(9, 9, 0.9, "")}, mode: byFile, flags: []string{"--report-endpoint", "--eject-after=0"}}, echo)
	gone := &modelServer{address: netip.AddrPortFrom(newHost(), r.servers[0].address.Port())}
	r.servers = append(r.servers, gone)
	r.writeFile(nil)
	r.await(func() bool { return r.metrics().sum("llm_d_epp_ready_endpoints") == 2 }, "both")
	c := r.client()
	for range 8 {
		response, _ := r.through(c, "/v1/completions", ofModel)
		assert.Equal(t, http.StatusOK, response.StatusCode)
	}
	page := r.metrics()
	assert.Positive(t, page.sum("fairlead_picker_proxy_retries_total"))
	assert.Equal(t, page.sum("fairlead_picker_proxy_retries_total"), page.sum("fairlead_picker_responses_total", "code", "200", "served", "other"))
	r.servers = r.servers[:1]
}

// TestProxy_RewritesModels has a rule that sends another model to the server: neither the client nor the server sees the other's name.
func TestProxy_RewritesModels(t *testing.T) {
	t.Parallel()
	r := startProxy(t, world{
		pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--explain"},
		objects: map[string]map[string]object{pathRewrites: {"canary": rewriteTo("chat", object{"modelRewrite": "chat-v2"})}},
	}, func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		assert.Equal(t, "{\"model\": \"chat-v2\", \"prompt\": \"p\"}", string(body)) //nolint:testifylint // byte for byte
		assert.NotEmpty(t, q.Header.Get("X-Request-Id"))
		for _, piece := range []string{`{"model": "ch`, `at-v2", "usage": {"prompt_tokens": 7, "completion_tokens": 10}}`} {
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
	})
	response, text := r.through(r.client(), "/v1/completions", `{"model": "chat", "prompt": "p"}`)
	assert.Equal(t, `{"model": "chat", "usage": {"prompt_tokens": 7, "completion_tokens": 10}}`, text) //nolint:testifylint // byte for byte
	assert.Contains(t, response.Header.Get("X-Fairlead-Pick-Explained"), r.at(0)+" of 1")
	page := r.metrics()
	assert.Equal(t, 1.0, page.sum("llm_d_epp_model_rewrite_decisions_total", "target_model", "chat-v2"))
	assert.Equal(t, 10.0, page.sampled("llm_d_epp_request_output_tokens"))
}

// TestProxy_SharesTheLimits has a client that holds nearly all memory at the proxy listener. It gets no more over ext_proc, and
// another gateway gets its share.
func TestProxy_SharesTheLimits(t *testing.T) {
	t.Parallel()
	r := startProxy(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--max-request-body=1Mi", "--max-buffered-bytes=4Mi"}}, echo)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(hostile)}}
	for range 3 {
		c, err := dialer.DialContext(t.Context(), "tcp", r.address("proxy-bind-address"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", 950<<10, strings.Repeat("x", 900<<10))
		require.NoError(t, err)
	}
	r.buffers(atLeast(3<<20), "held")
	assert.Equal(t, exhausted("too many bytes of requests in memory"), r.from(hostile).ask(request{body: longBody(1000 << 10)}).refused())
	for range 5 {
		r.serve(request{body: longBody(100 << 10)}, response{})
	}
}

// TestProxy_Drains ends the picker while a response is open.
func TestProxy_Drains(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	r := startProxy(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--drain-delay=5s"}}, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.WriteString(w, "begin ")
		_ = http.NewResponseController(w).Flush()
		if q.URL.Path == "/slow" {
			<-release
		}
		_, _ = io.WriteString(w, "end")
	})
	c := r.client()
	response, err := c.Get(r.proxy() + "/slow")
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	assert.False(t, response.Close)
	r.stop()
	r.await(func() bool { return r.logs.FilterMessage("Started draining").Len() == 1 }, "draining")
	assert.Equal(t, int64(1), r.logs.FilterMessage("Started draining").All()[0].ContextMap()["requests"])
	next, text := r.through(c, "/fast", ofModel)
	assert.Equal(t, "begin end", text, "requests are still served")
	assert.True(t, next.Close, "and clients leave")
	r.await(func() bool {
		conn, err := net.Dial("tcp", r.address("proxy-bind-address"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, "closed")
	close(release)
	whole, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	assert.Equal(t, "begin end", string(whole))
	<-r.stopped
	assert.Zero(t, r.logs.FilterMessage("Cut requests still open at the end of the drain").Len())
}

// TestProxy_FindsPoolsByHost has two pools of one Service.
func TestProxy_FindsPoolsByHost(t *testing.T) {
	t.Parallel()
	p := startSeveral(t, 2, 0, 1)
	p.flags = append(p.flags, proxyFlag)
	r := p.replica()
	r.await(func() bool { return r.get(r.health(), "/readyz") == "ok\n" }, "ready")
	for _, s := range r.servers {
		s.serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s.address.String()) })
	}
	ask := func(host string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.proxy(), http.NoBody)
		require.NoError(t, err)
		request.Host = host
		response, err := r.client().Do(request)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode, string(text)
	}
	for i := range 2 {
		r.await(func() bool {
			code, text := ask(fmt.Sprintf("epp.ns.svc:%d", 9000+i))
			return code == http.StatusOK && text == r.at(i)
		}, "pool %d", i)
	}
	code, text := ask("models.example.com")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Equal(t, "the picker serves no InferencePool at this address; try again in 1 s", messageOf(t, []byte(text)))
}

// TestProxy_TLS serves with the certificate of ext_proc.
func TestProxy_TLS(t *testing.T) {
	t.Parallel()
	r := startProxy(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--secure-serving=true", "--proxy-tls"}}, echo)
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: protocol == "HTTP/2.0"}
		t.Cleanup(transport.CloseIdleConnections)
		response, err := (&http.Client{Transport: transport}).Get("https://" + r.address("proxy-bind-address") + "/v1/models")
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, "GET /v1/models ", string(text))
		assert.Equal(t, protocol, response.Proto)
	}
}
