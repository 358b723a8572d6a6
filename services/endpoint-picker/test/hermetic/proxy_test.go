package hermetic

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gone := &modelServer{address: addressOf(l)}
	require.NoError(t, l.Close())
	r.servers = append(r.servers, gone)
	r.writeFile(nil)
	r.await(func() bool { return r.metrics().sum("llm_d_epp_ready_endpoints") == 2 }, "both")
	c := r.client()
	for range 8 {
		response, _ := r.through(c, "/v1/completions", ofModel)
		assert.Equal(t, http.StatusOK, response.StatusCode)
	}
	r.servers = r.servers[:1]
}
