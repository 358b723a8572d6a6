//go:build system

package hermetic

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serveAPIs makes a server answer as the APIs of OpenAI and Anthropic do, in pieces.
func serveAPIs(s *modelServer) {
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/audio/transcriptions":
			n := sizeOfUpload(r)
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"text":"a file of %d bytes"}`, n)
		case "/v1/messages":
			writeEvents(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}",
				"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}",
				"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"one \"}}",
				"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"two\"}}",
				"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}", "event: message_stop\ndata: {\"type\":\"message_stop\"}")
		default:
			writeEvents(w, `data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"one "}}]}`,
				`data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"two"}}]}`, "data: [DONE]")
		}
	})
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

// TestClients sends requests of real clients to the proxy listener. Users see the answers, and the reasons of refusals.
func TestClients(t *testing.T) {
	t.Parallel()
	python, err := filepath.Glob("../../../../bin/cache/picker-clients-*/bin/python")
	require.NoError(t, err)
	if len(python) == 0 {
		t.Skip("no bin/cache/picker-clients-*: run make picker-clients")
	}
	r := start(t, world{mode: byFile, pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--proxy-bind-address=127.0.0.1:0", "--max-request-body=400000"}})
	serveAPIs(r.servers[0])
	for name, want := range map[string]string{
		"openai-stream":    "one two",
		"anthropic-stream": "one two",
		"openai-upload":    "a file of 300000 bytes",
		"openai-too-large": "APIStatusError: 413: Error code: 413 - request body is over 400000 bytes: send a shorter one",
		"anthropic-too-large": "ContentTooLargeError: 413: Error code: 413 - {'type': 'error', 'error': {'type': 'request_too_large', " +
			"'message': 'request body is over 400000 bytes: send a shorter one'}}",
		"openai-wrong-model": `BadRequestError: 400: Error code: 400 - parse request body: a header asks for model "another" in place of that of the body: ` +
			"the name of the model is longer than 1024 bytes",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, want+"\n", output(t, python[len(python)-1], "../clients/clients.py", "http://"+r.address("proxy-bind-address"), name))
		})
	}
}

// TestCurl does the same with curl, over both versions of HTTP.
func TestCurl(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed: apt-get install curl")
	}
	r := start(t, world{mode: byFile, pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--proxy-bind-address=127.0.0.1:0", "--max-request-body=400000"}})
	serveAPIs(r.servers[0])
	file := filepath.Join(t.TempDir(), "sound.wav")
	require.NoError(t, os.WriteFile(file, make([]byte, 300_000), 0o600))
	large := filepath.Join(t.TempDir(), "large.json")
	require.NoError(t, os.WriteFile(large, bytes.Repeat([]byte(" "), 500_000), 0o600))
	url := "http://" + r.address("proxy-bind-address")
	const ofAnother = "x-llm-d-model-name-rewrite: another" // so that the picker must read the body
	tests := []struct {
		name string
		args []string
		want string
	}{
		{name: "stream", args: []string{"-N", url + "/v1/completions", "-d", `{"model":"m","prompt":"hello","stream":true}`}, want: "data: [DONE]"},
		{name: "upload", args: []string{url + "/v1/audio/transcriptions", "-F", "model=m", "-F", "file=@" + file}, want: "a file of 300000 bytes"},
		{name: "upload in chunks", args: []string{url + "/v1/audio/transcriptions", "-H", "Transfer-Encoding: chunked", "-F", "file=@" + file}, want: "a file of 300000 bytes"},
		{name: "too large", args: []string{url + "/v1/completions", "-d", "@" + large}, want: `"message":"request body is over 400000 bytes: send a shorter one"`},
		{name: "no JSON", args: []string{url + "/v1/completions", "-H", ofAnother, "-d", "{no JSON"}, want: `"error":{"type":"invalid_request_error"`},
		{name: "Anthropic's API", args: []string{url + "/v1/messages", "-H", ofAnother, "-d", "{no JSON"}, want: `{"type":"error","error":{"type":"invalid_request_error"`},
	}
	for _, tt := range tests {
		for _, version := range []string{"--http1.0", "--http1.1", "--http2", "--http2-prior-knowledge"} {
			if tt.name == "upload in chunks" && version == "--http1.0" {
				continue // it has none
			}
			t.Run(tt.name+version, func(t *testing.T) {
				t.Parallel()
				assert.Contains(t, output(t, "curl", append([]string{"-sS", version}, tt.args...)...), tt.want)
			})
		}
	}
}

// output runs a program, and returns what it printed.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	var problems strings.Builder
	cmd.Stderr = &problems
	text, err := cmd.Output()
	require.NoError(t, err, problems.String())
	return string(text)
}
