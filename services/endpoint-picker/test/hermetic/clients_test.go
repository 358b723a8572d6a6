//go:build system

package hermetic

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
)

// modelAPIs are servers that answer as the APIs of OpenAI and Anthropic do. The model of a request says how:
//
//	bad-request   with status 400
//	broken        with status 500
//	no-answer     closes the connection
//	error-event   with a stream that an error ends
//	endless       with a stream that has no end
//	any other     with a stream, in two pieces
type modelAPIs struct {
	left   chan struct{} // gets a value when the client of an endless stream has gone. A list of models waits for it
	failed atomic.Int32  // requests to the model broken or no-answer
}

// serveAPIs makes all servers of a rig answer.
func serveAPIs(r *rig) *modelAPIs {
	m := &modelAPIs{left: make(chan struct{}, 2)}
	for _, s := range r.servers {
		s.serve(m.ServeHTTP)
	}
	return m
}

func (m *modelAPIs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/audio/transcriptions":
		writeJSON(w, http.StatusOK, object{"text": fmt.Sprintf("a file of %d bytes", sizeOfUpload(r))})
		return
	case "/v1/models":
		select {
		case <-m.left:
			writeJSON(w, http.StatusOK, object{"object": "list", "data": []object{{"id": "[the server knows]", "object": "model"}}})
		case <-r.Context().Done():
		}
		return
	}
	var body struct{ Model string }
	raw, _ := io.ReadAll(r.Body)
	if err := json.Unmarshal(raw, &body); err != nil {
		writeJSON(w, http.StatusBadRequest, object{"error": object{"message": "no JSON"}})
		return
	}
	events := chatEvents(body.Model)
	if r.URL.Path == "/v1/messages" {
		events = messageEvents
	}
	m.answer(w, r, body.Model, events)
}

// answer answers with a stream whose first events come before an error or the end, unless the model says something else.
func (m *modelAPIs) answer(w http.ResponseWriter, r *http.Request, model string, events apiEvents) {
	switch model {
	case "bad-request":
		writeJSON(w, http.StatusBadRequest, errorOf("invalid_request_error", "max_tokens is too large"))
	case "broken":
		m.failed.Add(1)
		writeJSON(w, http.StatusInternalServerError, errorOf("api_error", "the engine has died"))
	case "no-answer":
		m.failed.Add(1)
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	case "error-event":
		writeEvents(w, append(events.begin, events.failure)...)
	case "endless":
		writeEvents(w, events.begin...)
		<-r.Context().Done()
		m.left <- struct{}{}
	default:
		writeEvents(w, append(events.begin, events.end...)...)
	}
}

// apiEvents are the events of a stream.
type apiEvents struct {
	begin   []string
	end     []string
	failure string
}

func chatEvents(model string) apiEvents {
	chunk := func(text string) string {
		return fmt.Sprintf(`data: {"id":"1","object":"chat.completion.chunk","created":1,"model":%q,"choices":[{"index":0,"delta":{"content":%q}}]}`, model, text)
	}
	return apiEvents{
		begin:   []string{chunk("one ")},
		end:     []string{chunk("two"), "data: [DONE]"},
		failure: `data: {"error":{"message":"out of memory","type":"api_error","code":500}}`,
	}
}

var messageEvents = apiEvents{
	begin: []string{
		`event: message_start` + "\n" + `data: {"type":"message_start","message":{"id":"1","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`,
		`event: content_block_start` + "\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"one "}}`,
	},
	end: []string{
		`event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"two"}}`,
		`event: content_block_stop` + "\n" + `data: {"type":"content_block_stop","index":0}`,
		`event: message_stop` + "\n" + `data: {"type":"message_stop"}`,
	},
	failure: `event: error` + "\n" + `data: {"type":"error","error":{"type":"overloaded_error","message":"out of memory"}}`,
}

// errorOf is an error of both APIs.
func errorOf(kind, message string) object {
	return object{"type": "error", "error": object{"type": kind, "message": message}}
}

func writeJSON(w http.ResponseWriter, status int, o object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(o)
}

func writeEvents(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		_, _ = io.WriteString(w, e+"\n\n")
		_ = http.NewResponseController(w).Flush()
	}
}

// sizeOfUpload returns the size of the file in a multipart body, -1 if it is not whole.
func sizeOfUpload(r *http.Request) int64 {
	_, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return -1
	}
	for parts := multipart.NewReader(r.Body, parameters["boundary"]); ; {
		part, err := parts.NextPart()
		if err != nil {
			return -1
		}
		if part.FileName() != "" {
			n, _ := io.Copy(io.Discard, part)
			return n
		}
	}
}

// A carrier brings requests of clients to the servers that the picker names.
type carrier struct {
	name     string
	attempts int // of a request that both servers fail
	flags    []string
}

const envoy = "Envoy"

// The Envoy of the example has no retries.
var carriers = []carrier{{name: "proxy listener", attempts: 2, flags: []string{proxyFlag}}, {name: envoy, attempts: 1}}

// eachCarrier runs a test with two servers behind each carrier. A rule rewrites the model chat, so that the picker must read bodies.
func eachCarrier(t *testing.T, test func(t *testing.T, r *rig, m *modelAPIs, c carrier, url string)) {
	for _, c := range carriers {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var program string
			if c.name == envoy {
				program = findEnvoy(t)
			}
			page := pageOf(0, 0, 0, "")
			r := start(t, world{
				pages: []string{page, page}, flags: append([]string{"--max-request-body=400000", "--eject-after=0"}, c.flags...),
				objects: map[string]map[string]object{pathRewrites: {"canary": rewriteTo("chat", object{"modelRewrite": "chat-v2"})}},
			})
			m := serveAPIs(r)
			if c.name == envoy {
				test(t, r, m, c, "http://"+r.startEnvoy(program, ""))
				return
			}
			test(t, r, m, c, r.proxy())
		})
	}
}

// TestClients sends requests of the libraries that users have. They see the answers, and the reasons of errors and refusals.
func TestClients(t *testing.T) {
	t.Parallel()
	python, err := filepath.Glob("../../../../bin/cache/picker-clients-*/bin/python")
	require.NoError(t, err)
	if len(python) == 0 {
		t.Skip("no bin/cache/picker-clients-*: run make picker-clients")
	}
	const (
		tooLarge = "413 - request body is over 400000 bytes: send a shorter one"
		nameless = `parse request body: a header asks for model "another" in place of that of the body: the name of the model is longer than 1024 bytes`
		encoded  = "parse request body: InferenceModelRewrites of this pool may be for its model: " +
			"the picker does not read compressed bodies: send it without Content-Encoding"
	)
	tests := []struct {
		name        string
		want        string
		behindEnvoy string // if it differs
	}{
		{name: "openai-stream", want: "one two"},
		{name: "openai-rewritten-model", want: "chat"},
		{name: "openai-upload", want: "a file of 300000 bytes"},
		{name: "openai-upload-in-chunks", want: "a file of 300000 bytes"},
		{name: "openai-bad-request", want: "BadRequestError: Error code: 400 - max_tokens is too large"},
		{name: "openai-broken", want: "InternalServerError: Error code: 500 - the engine has died"},
		{
			name: "openai-no-answer", want: "InternalServerError: Error code: 502 - send the request to the model server: EOF",
			behindEnvoy: "InternalServerError: Error code: 503", // Envoy's own text, which this library does not show
		},
		{name: "openai-error-event", want: "one APIError: out of memory"},
		{name: "openai-too-large", want: "APIStatusError: Error code: " + tooLarge},
		{name: "openai-upload-too-large", want: "APIStatusError: Error code: " + tooLarge},
		{name: "openai-wrong-model", want: "BadRequestError: Error code: 400 - " + nameless},
		{name: "openai-compressed", want: "APIStatusError: Error code: 415 - " + encoded},
		{name: "openai-leaves", want: "one [the server knows]"},
		{name: "anthropic-stream", want: "one two"},
		{name: "anthropic-bad-request", want: "BadRequestError: Error code: 400 - {'error': {'message': 'max_tokens is too large', 'type': 'invalid_request_error'}, 'type': 'error'}"},
		{name: "anthropic-broken", want: "InternalServerError: Error code: 500 - {'error': {'message': 'the engine has died', 'type': 'api_error'}, 'type': 'error'}"},
		{
			name: "anthropic-no-answer", want: "InternalServerError: Error code: 502 - {'type': 'error', 'error': {'type': 'api_error', 'message': 'send the request to the model server: EOF'}}",
			behindEnvoy: "ServiceUnavailableError: upstream connect error or disconnect/reset before headers. reset reason: connection termination",
		},
		{name: "anthropic-error-event", want: "one APIStatusError: {'type': 'error', 'error': {'type': 'overloaded_error', 'message': 'out of memory'}}"},
		{
			name: "anthropic-too-large", want: "ContentTooLargeError: Error code: 413 - {'type': 'error', 'error': {'type': 'request_too_large', " +
				"'message': 'request body is over 400000 bytes: send a shorter one'}}",
		},
		{name: "anthropic-leaves", want: "one [the server knows]"},
	}
	// One process has all cases, one after the other, so that they share connections as those of a program do.
	var cases []string
	for _, tt := range tests {
		cases = append(cases, tt.name)
	}
	eachCarrier(t, func(t *testing.T, r *rig, m *modelAPIs, c carrier, url string) {
		lines := output(t, python[len(python)-1], append([]string{"../clients/clients.py", url}, cases...)...)
		got := map[string]string{}
		for line := range strings.Lines(lines) {
			name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			got[name] = text
		}
		for _, tt := range tests {
			want := tt.want
			if c.name == envoy && tt.behindEnvoy != "" {
				want = tt.behindEnvoy
			}
			assert.Equal(t, want, got[tt.name], tt.name)
		}
		assert.EqualValues(t, c.attempts*4, m.failed.Load(), "attempts of the four requests to failing servers")
		streams := func(outcome string) float64 {
			return r.metrics().sum("fairlead_picker_streams_total", "outcome", outcome)
		}
		r.await(func() bool { return streams("interrupted") >= 2 && streams("refused") >= 5 }, "the picker knows the end of all requests")
		assert.Equal(t, 2.0, streams("interrupted"), "clients that left")
		assert.Equal(t, 5.0, streams("refused"))
	})
}

// TestCurl does the same with curl, over all versions of HTTP that it has.
func TestCurl(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed: apt-get install curl")
	}
	folder := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return "@" + path
	}
	sound := file("sound.wav", make([]byte, 300_000))
	large := file("large.json", bytes.Repeat([]byte(" "), 500_000))
	zipped := &bytes.Buffer{}
	z := gzip.NewWriter(zipped)
	_, _ = io.WriteString(z, `{"model":"m","prompt":"hello"}`)
	require.NoError(t, z.Close())
	compressed := file("compressed", zipped.Bytes())
	const (
		ofAnother  = "x-llm-d-model-name-rewrite: another" // so that the picker must read the body
		inChunks   = "Transfer-Encoding: chunked"
		first      = "Expect: 100-continue"
		whenLarger = `"message":"request body is over 400000 bytes: send a shorter one"`

		// sendsOn is the exit code of curl 7 when it cannot send more of the request over HTTP/2, because Envoy has answered and ended the
		// stream. If it notices that before it has read the answer, it shows none.
		sendsOn  = 92
		noAnswer = "\n000 HTTP/0"
	)
	tests := []struct {
		name string
		path string
		args []string
		code int
		want string
	}{
		{name: "stream", path: "/v1/chat/completions", args: []string{"-N", "-d", `{"model":"chat","stream":true}`}, code: 200, want: "data: [DONE]"},
		{name: "upload", path: "/v1/audio/transcriptions", args: []string{"-F", "model=m", "-F", "file=" + sound}, code: 200, want: "a file of 300000 bytes"},
		{name: "upload in chunks", path: "/v1/audio/transcriptions", args: []string{"-H", inChunks, "-F", "model=m", "-F", "file=" + sound}, code: 200, want: "a file of 300000 bytes"},
		{name: "upload that waits", path: "/v1/audio/transcriptions", args: []string{"-H", first, "-F", "model=m", "-F", "file=" + sound}, code: 200, want: "a file of 300000 bytes"},
		{name: "too large", path: "/v1/completions", args: []string{"-d", large}, code: 413, want: whenLarger},
		{name: "too large in chunks", path: "/v1/completions", args: []string{"-H", inChunks, "-d", large}, code: 413, want: whenLarger},
		{name: "too large and waits", path: "/v1/completions", args: []string{"-H", first, "-d", large}, code: 413, want: whenLarger},
		{name: "error of the server", path: "/v1/completions", args: []string{"-d", `{"model":"bad-request"}`}, code: 400, want: `"message":"max_tokens is too large"`},
		{name: "compressed", path: "/v1/completions", args: []string{"-H", "Content-Encoding: gzip", "--data-binary", compressed}, code: 415, want: "send it without Content-Encoding"},
		{name: "no JSON", path: "/v1/completions", args: []string{"-H", ofAnother, "-d", "{no JSON"}, code: 400, want: `"error":{"type":"invalid_request_error"`},
		{name: "Anthropic's API", path: "/v1/messages", args: []string{"-H", ofAnother, "-d", "{no JSON"}, code: 400, want: `{"type":"error","error":{"type":"invalid_request_error"`},
	}
	versions := []struct {
		flag string
		want string // by curl's account
	}{
		{flag: "--http1.0", want: "1"},
		{flag: "--http1.1", want: "1.1"},
		{flag: "--http2", want: "1.1"}, // offers an upgrade
		{flag: "--http2-prior-knowledge", want: "2"},
	}
	eachCarrier(t, func(t *testing.T, _ *rig, _ *modelAPIs, _ carrier, url string) {
		for _, tt := range tests {
			for _, v := range versions {
				if strings.Contains(tt.name, "in chunks") && v.flag == "--http1.0" {
					continue // it has none
				}
				t.Run(tt.name+v.flag, func(t *testing.T) {
					t.Parallel()
					args := append([]string{"-sS", v.flag, "-w", "\n%{http_code} HTTP/%{http_version}", url + tt.path}, tt.args...)
					text, err := execute(t, "curl", args...)
					if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == sendsOn && tt.code == http.StatusRequestEntityTooLarge && v.want == "2" {
						if text == noAnswer {
							return
						}
						err = nil
					}
					require.NoError(t, err)
					assert.Contains(t, text, tt.want)
					assert.True(t, strings.HasSuffix(text, fmt.Sprintf("\n%d HTTP/%s", tt.code, v.want)), text)
				})
			}
		}
	})
}

// output runs a program, and returns what it printed.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	text, err := execute(t, program, args...)
	require.NoError(t, err)
	return text
}

// execute runs a program, and returns what it printed. The error has what it printed as errors.
func execute(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kubetest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var problems strings.Builder
	cmd.Stderr = &problems
	text, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, problems.String())
	}
	return string(text), err
}
