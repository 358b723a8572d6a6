package picker_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/cluster"
)

// pieceSize is what a chunked body is written in.
const pieceSize = 50_000

// exchange is one request and what is expected of it.
type exchange struct {
	name    string
	method  string
	path    string
	body    string
	chunked bool // no content-length; in pieces
	trailer bool // after the body; Envoy drops those of HTTP/1.1
	http2   bool
	digest  bool // of the answer, in a trailer after it
}

// plainTokens make a token of four bytes. A model server with the race detector takes seconds for the real tokens of a large body.
var plainTokens = []string{"--tokenizer=four-bytes"}

// exchanges are requests of every size and kind whose answers are a function of their bodies, each byte of them: plain tokens
// of a text are its bytes.
func exchanges() []exchange {
	tokenize := func(size int) string {
		const frame = `{"prompt":""}`
		return `{"prompt":"` + strings.Repeat("every byte counts, ", size/19+1)[:size-len(frame)] + `"}`
	}
	const path = "/tokenize"
	return []exchange{
		{name: "a header and no body", method: http.MethodGet, path: "/v1/models"},
		{name: "27 bytes", method: http.MethodPost, path: path, body: tokenize(27)},
		{name: "5 kB", method: http.MethodPost, path: path, body: tokenize(5_000)},
		{name: "200 kB", method: http.MethodPost, path: path, body: tokenize(200_000)},
		{name: "3 MB", method: http.MethodPost, path: path, body: tokenize(3_000_000)},
		{name: "27 bytes, chunked", method: http.MethodPost, path: path, body: tokenize(27), chunked: true},
		{name: "200 kB, chunked", method: http.MethodPost, path: path, body: tokenize(200_000), chunked: true},
		{name: "3 MB, chunked", method: http.MethodPost, path: path, body: tokenize(3_000_000), chunked: true},
		{name: "5 kB, HTTP/2", method: http.MethodPost, path: path, body: tokenize(5_000), http2: true},
	}
}

// exchangesWithDigests are some whose answers have trailers. They are for an Envoy that takes those of HTTP/1.1.
func exchangesWithDigests() []exchange {
	var out []exchange
	for _, e := range exchanges() {
		if !e.chunked && !e.http2 {
			e.name, e.http2, e.digest = e.name+", and a digest after the answer", true, true
			out = append(out, e)
		}
	}
	return out
}

// exchangesWithTrailers are more of them. They are not for an Envoy with a retry policy: it sends a body that ext_proc held
// back twice, one copy after the other, when trailers follow it (envoyproxy/envoy#45470).
func exchangesWithTrailers() []exchange {
	var out []exchange
	for _, e := range exchanges() {
		if e.body != "" && !e.chunked && !e.http2 {
			e.name, e.chunked, e.trailer, e.http2 = e.name+" and trailers", true, true, true
			out = append(out, e)
		}
	}
	return out
}

// times is how often it is sent: on a new connection and a used one, but what takes a second only once.
func (e *exchange) times() int {
	if len(e.body) > 1_000_000 {
		return 1
	}
	return 2
}

// answered is what came back.
type answered struct {
	status         int
	header         http.Header
	body           string
	digest         string // in a trailer
	picked, served string
}

// send sends an exchange to a base URL.
func (e *exchange) send(ctx context.Context, client *http.Client, base string, header http.Header) (answered, error) {
	var body io.Reader = strings.NewReader(e.body)
	if e.chunked {
		body = io.MultiReader(pieces(e.body)...) // of a type whose length net/http does not know
	}
	req, err := http.NewRequestWithContext(ctx, e.method, base+e.path, body)
	if err != nil {
		return answered{}, err
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Content-Type", "application/json")
	if e.digest {
		req.Header.Set("TE", "trailers")
	}
	if e.trailer {
		req.Trailer = http.Header{"X-Checksum": {"of the body"}}
	}
	resp, err := client.Do(req)
	if err != nil {
		return answered{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return answered{status: resp.StatusCode, header: resp.Header, body: string(raw), digest: resp.Trailer.Get("Content-Digest"),
		picked: resp.Header.Get("x-fairlead-picked-endpoint"), served: resp.Header.Get("x-served-endpoint")}, err
}

func pieces(body string) []io.Reader {
	var out []io.Reader
	for len(body) > pieceSize {
		out, body = append(out, strings.NewReader(body[:pieceSize])), body[pieceSize:]
	}
	return append(out, strings.NewReader(body))
}

// clientOf returns a client for HTTP/1.1, or for HTTP/2 without TLS, whose connections go through dial if that is set.
func clientOf(t *testing.T, e *exchange, dial chatload.DialFunc) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: dial}
	transport.Protocols.SetHTTP1(!e.http2)
	transport.Protocols.SetUnencryptedHTTP2(e.http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// serverAddresses are the model servers' ip:port.
func serverAddresses(t *testing.T, c *cluster.Cluster) []string {
	t.Helper()
	pods, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + stack.Pool})
	require.NoError(t, err)
	require.NotEmpty(t, pods.Items)
	addrs := make([]string, len(pods.Items))
	for i, p := range pods.Items {
		addrs[i] = net.JoinHostPort(p.Status.PodIP, "8000")
	}
	return addrs
}

// assertExchanges sends requests of every size and kind and compares the answers with those that a model server gives
// when it is asked directly.
func assertExchanges(t *testing.T, c *cluster.Cluster, gateway string, exchanges []exchange) {
	server := serverAddresses(t, c)[0]
	direct := func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Dial(ctx, server) }
	for _, e := range exchanges {
		t.Run(e.name, func(t *testing.T) {
			asked := e
			asked.http2 = false // vLLM does not speak HTTP/2
			want, err := asked.send(t.Context(), clientOf(t, &asked, direct), "http://"+server, nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, want.status, want.body)
			client := clientOf(t, &e, nil)
			for range e.times() {
				got, err := e.send(t.Context(), client, gateway, nil)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, got.status, "%.200s", got.body)
				assert.NotEmpty(t, got.picked)
				assert.Equal(t, got.picked, got.served)
				if e.digest {
					assert.Equal(t, contentDigest(got.body), got.digest)
				}
				if e.body != "" { // the list of models says when each server started
					assert.Equal(t, digest(want.body), digest(got.body))
				}
			}
		})
	}
}

// contentDigest is what a model server says in the trailer of an answer.
func contentDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// digest stands for a text that is too long to be printed.
func digest(text string) string {
	return fmt.Sprintf("%d bytes, %x", len(text), sha256.Sum256([]byte(text)))
}

// assertCompletions asks for chat completions, streamed and whole.
func assertCompletions(t *testing.T, gateway string) {
	t.Run("streamed", func(t *testing.T) {
		report, err := chatload.Run(t.Context(), chatload.Options{
			BaseURL: gateway, Model: stack.Model, Concurrency: 16, Requests: 100, MaxTokens: 32, IgnoreEOS: true, KeepAlive: true,
			RequirePicked: true, Prompts: chatload.Prompts{Groups: 8, SharedTokens: 128, Seed: 3},
		})
		require.NoError(t, err)
		require.Zero(t, report.Failed(), "%v %v", report.Failures, report.Examples)
		assert.Len(t, report.Servers, 3, "a server got nothing")
	})
	for _, size := range []int{60, 5_000, 200_000, 3_000_000} {
		t.Run(fmt.Sprintf("whole, for %d bytes", size), func(t *testing.T) {
			pad, err := json.Marshal(strings.Repeat("p", size)) // in a field that no server looks at: the prompt is short
			require.NoError(t, err)
			e := exchange{method: http.MethodPost, path: "/v1/chat/completions", body: fmt.Sprintf(
				`{"user":%s,"model":%q,"messages":[{"role":"user","content":"Hello"}],"max_tokens":7,"ignore_eos":true}`, pad, stack.Model)}
			got, err := e.send(t.Context(), clientOf(t, &e, nil), gateway, nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, got.status, got.body)
			assert.Equal(t, got.picked, got.served)
			var completion struct {
				Object  string
				Choices []struct {
					Message struct{ Content string }
				}
				Usage struct {
					CompletionTokens int `json:"completion_tokens"`
				}
			}
			require.NoError(t, json.NewDecoder(bytes.NewReader([]byte(got.body))).Decode(&completion))
			assert.Equal(t, "chat.completion", completion.Object)
			require.Len(t, completion.Choices, 1)
			assert.NotEmpty(t, completion.Choices[0].Message.Content)
			assert.Equal(t, 7, completion.Usage.CompletionTokens)
		})
	}
}
