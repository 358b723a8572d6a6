package ingress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
)

// ways are the hosts of rewrite.yaml.
func ways() []string { return []string{"strip.test", "regex.test", "replace.test"} }

func assertHosts(t *testing.T, w *world) {
	for _, host := range ways() {
		tests := []struct{ give, want string }{
			{give: host, want: "/x"},
			{give: host + ":8080", want: "/x"},
			{give: strings.ToUpper(host), want: "/x"},
			{give: host + ".", want: "/x"},
			{give: "a." + host, want: "404"},
			{give: "nobody.test", want: "404"},
		}
		for _, tt := range tests {
			got := w.get(t, tt.give, "/p/q/x")
			assert.Equal(t, tt.want, got.String(), tt.give)
			if got.status == http.StatusOK {
				assert.Equal(t, tt.give, got.echo.Host, "the server sees the client's")
			}
		}
	}
}

// assertRewrites is what the server gets to see of a path when its prefix /p/q is taken away, in each way.
func assertRewrites(t *testing.T, w *world) {
	tests := []struct {
		give                          string
		wantStrip, wantRegex, wantRep string
	}{
		{give: "/p/q", wantStrip: "/", wantRegex: "/", wantRep: "/"},
		{give: "/p/q/", wantStrip: "/", wantRegex: "/", wantRep: "/"},
		{give: "/p/q?a=1", wantStrip: "/?a=1", wantRegex: "/?a=1", wantRep: "/?a=1"},
		{give: "/p/q/v1/models", wantStrip: "/v1/models", wantRegex: "/v1/models", wantRep: "/v1/models"},
		{give: "/p/q/v1/models/", wantStrip: "/v1/models/", wantRegex: "/v1/models/", wantRep: "/v1/models/"},
		{give: "/p/q/p/q/x", wantStrip: "/p/q/x", wantRegex: "/p/q/x", wantRep: "/p/q/x"},
		{give: "/p/q/x?a=%20b+c&a=%2F&=&d", wantStrip: "/x?a=%20b+c&a=%2F&=&d", wantRegex: "/x?a=%20b+c&a=%2F&=&d", wantRep: "/x?a=%20b+c&a=%2F&=&d"},
		// A semicolon becomes an ampersand, whatever the way.
		{give: "/p/q/x?a=1;b", wantStrip: "/x?a=1&b", wantRegex: "/x?a=1&b", wantRep: "/x?a=1&b"},
		{give: "/p/q/a%20b%3Fc%25d", wantStrip: "/a%20b%3Fc%25d", wantRegex: "/a%20b%3Fc%25d", wantRep: "/a%20b%3Fc%25d"},
		{give: "/p/q/%C3%A9", wantStrip: "/%C3%A9", wantRegex: "/%C3%A9", wantRep: "/%C3%A9"},
		// What needs no escape loses it.
		{give: "/p/q/%41", wantStrip: "/A", wantRegex: "/A", wantRep: "/A"},
		// An HTTPRoute's rewrite makes a slash of an escaped slash: a model's name in a path comes apart.
		{give: "/p/q/meta%2Fllama", wantStrip: "/meta%2Fllama", wantRegex: "/meta%2Fllama", wantRep: "/meta/llama"},
		{give: "/p/q/x%2F", wantStrip: "/x%2F", wantRegex: "/x%2F", wantRep: "/x/"},
		// Paths are cleaned before they are matched.
		{give: "/p/q//x", wantStrip: "/x", wantRegex: "/x", wantRep: "/x"},
		{give: "/x/../p/q/x", wantStrip: "/x", wantRegex: "/x", wantRep: "/x"},
		{give: "/p/q/../x", wantStrip: "404", wantRegex: "404", wantRep: "404"},
		{give: "/p%2Fq/x", wantStrip: "404", wantRegex: "404", wantRep: "404"},
		// A prefix ends at a slash.
		{give: "/p/qx", wantStrip: "404", wantRegex: "404", wantRep: "404"},
		{give: "/p", wantStrip: "404", wantRegex: "404", wantRep: "404"},
		// Regular expressions of ingress-nginx know no case.
		{give: "/P/q/x", wantStrip: "404", wantRegex: "/x", wantRep: "404"},
	}
	for _, tt := range tests {
		for i, want := range []string{tt.wantStrip, tt.wantRegex, tt.wantRep} {
			host := ways()[i]
			assert.Equal(t, want, w.get(t, host, tt.give).String(), "%s%s", host, tt.give)
		}
	}
	assert.Equal(t, []string{"/p/q"}, w.get(t, "strip.test", "/p/q/x").echo.Headers["X-Forwarded-Prefix"], "a Middleware says what it took")
}

// assertStreams shows that events come when they are sent, and not at the end of the answer, which is an hour later.
func assertStreams(t *testing.T, w *world) {
	for _, host := range ways() {
		w.awaitEvents(t, question{host: host, target: "/p/q/v1?events=4&interval=20ms&pause=1h", body: unsized([]byte(`{"stream":true}`))}, 3)
	}
}

// awaitEvents waits for the first events of an answer, and leaves the others.
func (w *world) awaitEvents(t *testing.T, q question, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kubetest.Patience)
	defer cancel()
	resp, err := w.send(ctx, q)
	require.NoError(t, err, q.host)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode, q.host)
	lines := bufio.NewScanner(resp.Body)
	for want > 0 {
		require.True(t, lines.Scan(), "%s: %d events are missing: %v", q.host, want, lines.Err())
		if strings.HasPrefix(lines.Text(), "data: ") {
			want--
		}
	}
}

// events returns when the events of an answer came.
func (w *world) events(t *testing.T, q question) []time.Time {
	t.Helper()
	resp, err := w.send(t.Context(), q)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode, q.host)
	var out []time.Time
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			out = append(out, time.Now())
		}
	}
	assert.NoError(t, lines.Err(), "%s%s after %d events", q.host, q.target, len(out))
	return out
}

// large is a body above every limit that a proxy is known to have by default.
var large = bytes.Repeat([]byte("20 million of bytes\n"), 1_000_000)

// unsized hides the size of a body: it is sent in chunks. Streams through Traefik need such a body here. Go's ReverseProxy reads a body of
// known size once more after its last byte. If the server has answered by then, which a model server is too slow for, the read fails
// and the answer is cut: https://github.com/golang/go/issues/40747. Six of a hundred streams of the echo server were.
func unsized(body []byte) io.Reader { return io.MultiReader(bytes.NewReader(body)) }

func assertBodies(t *testing.T, w *world) {
	digest := sha256.Sum256(large)
	for _, host := range ways() {
		for name, body := range map[string]io.Reader{"sized": bytes.NewReader(large), "in chunks": unsized(large)} {
			got, err := w.ask(t.Context(), question{host: host, target: "/p/q/", body: body})
			require.NoError(t, err, "%s, %s", host, name)
			require.Equal(t, http.StatusOK, got.status, "%s, %s", host, name)
			assert.EqualValues(t, len(large), got.echo.Body.Bytes)
			assert.Equal(t, hex.EncodeToString(digest[:]), got.echo.Body.SHA256)
		}
	}
}

// trickle is a body whose last byte comes after a while.
type trickle struct {
	wait time.Duration
	ctx  context.Context
	read int
}

func (r *trickle) Read(p []byte) (int, error) {
	r.read++
	switch r.read {
	case 1:
		return copy(p, "x"), nil
	case 2:
		select {
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		case <-time.After(r.wait):
			return copy(p, "y"), nil
		}
	}
	return 0, io.EOF
}

// assertLongWaits takes more than a minute.
func assertLongWaits(t *testing.T, w *world) {
	const wait = 65 * time.Second
	w.create(t, ingress{name: "impatient", class: nginxClass})
	w.await(t, "impatient.test", "/", "/")
	type waiting struct {
		name     string
		give     question
		want     []int
		wantBody string // of a stream
		wantErr  error
	}
	body := func() io.Reader { return strings.NewReader("{}") }
	pause, late := fmt.Sprintf("/p/q/?events=2&pause=%v", wait), fmt.Sprintf("/p/q/?delay=%v", wait)
	tests := []waiting{
		// The default of ingress-nginx is a minute.
		{name: "a stream without annotations", give: question{host: "impatient.test", target: pause, body: body()}, want: []int{200}, wantBody: eventText(1), wantErr: io.ErrUnexpectedEOF},
		{name: "a late answer without annotations", give: question{host: "impatient.test", target: late, body: body()}, want: []int{504}},
	}
	for _, host := range ways() {
		tests = append(tests,
			waiting{name: "a stream", give: question{host: host, target: pause, body: body()}, want: []int{200}, wantBody: eventText(1) + eventText(2)},
			waiting{name: "a late answer", give: question{host: host, target: late, body: body()}, want: []int{200}},
			// The entry point reads for a minute (respondingTimeouts.readTimeout): no object changes that. What is noticed first
			// decides the status.
			waiting{name: "a slow body", give: question{host: host, target: "/p/q/", body: &trickle{wait: wait, ctx: t.Context()}}, want: []int{499, 504}},
		)
	}
	questions := make([]question, len(tests))
	for i, tt := range tests {
		questions[i] = tt.give
	}
	for i, got := range w.askAll(t.Context(), questions) {
		tt := tests[i]
		assert.Contains(t, tt.want, got.status, "%s at %s", tt.name, tt.give.host)
		assert.Contains(t, got.body, tt.wantBody, "%s at %s", tt.name, tt.give.host)
		assert.Equal(t, tt.wantErr, got.err, "%s at %s", tt.name, tt.give.host)
		assert.Less(t, got.took, 2*time.Minute, "%s at %s: it was sent once", tt.name, tt.give.host)
	}
}

func eventText(index int) string {
	return fmt.Sprintf("data: {\"name\":%q,\"index\":%d}\n\n", server, index)
}
