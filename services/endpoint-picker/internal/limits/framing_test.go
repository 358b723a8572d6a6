package limits

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// follow scans a text in pieces of a size, up to an error or a WebSocket.
func follow(text string, size int) (passed int, f *framingParser, err error) {
	f = &framingParser{}
	for piece := range slices.Chunk([]byte(text), size) {
		n, err := f.scanBytes(piece)
		passed += n
		if err != nil || f.undecided {
			return passed, f, err
		}
	}
	return passed, f, nil
}

func TestFraming(t *testing.T) {
	t.Parallel()
	const get, post = "GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\n"
	tests := []struct {
		name, pass, hold string // what passes, and what does not
		want             error
	}{
		{name: "nothing"},
		{name: "no body", pass: get + "Host: a\r\n\r\n" + get + "\r\n"},
		{name: "empty lines between requests", pass: "\r\n" + get + "\r\n\r\n" + get + "\r\n"},
		{name: "a body", pass: post + "Content-Length: 4\r\n\r\n\na \n" + get + "X: \r\n\r\n"},
		{name: "a body of no length", pass: post + "content-length:0\r\n\r\n" + get + "\r\n"},
		{name: "equal lengths", pass: post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n\n" + get},
		{name: "different lengths", pass: post + "Content-Length: 1\r\nContent-Length: 2\r", hold: "\n\r\n\n", want: errLength},
		{name: "a length after many blanks", pass: post + "Content-Length:" + strings.Repeat(" ", maxStoredLine) + "1\r", hold: "\n",
			want: errLength},
		{name: "no length", pass: post + "Content-Length: +1\r", hold: "\n\r\n\n", want: errLength},
		{name: "chunks", pass: post + "TRANSFER-ENCODING: chunked\r\n\r\n1;x=y\r\n\n\r\nA \r\n0123\n56789\r\n00\r\nX: a\r\n\r\n" + get + "\r\n"},
		{name: "a chunk without a size", pass: post + "Transfer-Encoding: chunked\r\n\r\n;x\r", hold: "\n", want: errChunk},
		{name: "a chunk beyond int64", pass: post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r", hold: "\n", want: errChunk},
		{name: "a chunk without an end", pass: post + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r", hold: "\n", want: errChunk},
		{name: "both lengths", pass: post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r", hold: "\n0\r\n\r\n", want: errTwoFrames},
		{name: "both, the other way", pass: post + "transfer-encoding: x\r\ncontent-length: 1\r\n\r", hold: "\n", want: errTwoFrames},
		{name: "chunks of HTTP/1.0", pass: "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r", hold: "\n", want: errOldChunks},
		{name: "length of HTTP/1.0", pass: "POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\n\n"},
		{name: "folded", pass: get + "A: b\r\n c\r", hold: "\n\r\n", want: errFolded},
		{name: "folded by a tab", pass: get + "\tc\r", hold: "\n\r\n", want: errFolded},
		{name: "folded trailer", pass: post + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r", hold: "\n\r\n", want: errFolded},
		{name: "LF in the request line", pass: "GET / HTTP/1.1", hold: "\n\r\n", want: errBareLF},
		{name: "LF in a header", pass: get + "A: b", hold: "\n\r\n", want: errBareLF},
		{name: "LF at the end", pass: get + "A: b\r\n", hold: "\n", want: errBareLF},
		{name: "LF in a long line", pass: get + "A: " + strings.Repeat("b", 5000), hold: "\n", want: errBareLF},
		{name: "LF in a trailer", pass: post + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b", hold: "\n\r\n", want: errBareLF},
		{name: "LF in the second request", pass: get + "\r\n" + get + "A: b", hold: "\n\r\n", want: errBareLF},
		{name: "long lines", pass: get + "A: " + strings.Repeat("b", maxStoredLine-4) + "\r\nA: " + strings.Repeat("b",
			maxStoredLine-3) + "\r\nA: " + strings.Repeat("b", maxStoredLine-2) + "\r\n\r\n"},
		{name: "HTTP/2", pass: preface + "\r\n\r\nSM\r\n\r\n\n\n"},
		{name: "a WebSocket", pass: get + "Upgrade: WebSocket\r\n\r\n", hold: "\n\n"},
		{name: "a WebSocket with a body", pass: post + "Upgrade: websocket\r\nContent-Length: 1\r\n\r\na" + get + "A: b", hold: "\n", want: errBareLF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{1, 2, 7, 1 << 20} {
				passed, _, err := follow(tt.pass+tt.hold, size)
				require.ErrorIs(t, err, tt.want)
				assert.Equal(t, len(tt.pass), passed, "in pieces of %d", size)
			}
		})
	}
}

// FuzzFraming expects that requests which net/http reads from what passes have none of the violations, and end where the framing says.
func FuzzFraming(f *testing.F) {
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\n\r\n",
		"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\na", "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "GET / HTTP/1.1\nA: b\n\n",
	} {
		f.Add(text, uint8(0))
		f.Add(text, uint8(3))
	}
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		passed, _, _ := follow(text, int(size)+1)
		rest := &countingReader{from: strings.NewReader(text[:passed])}
		reader := bufio.NewReader(rest)
		at := func() int { return rest.n - reader.Buffered() }
		for begin := 0; ; begin = at() {
			r, err := http.ReadRequest(reader)
			if err != nil || r.ProtoMajor != 1 || strings.Contains(strings.ToLower(strings.Join(r.Header["Upgrade"], ",")), "websocket") {
				return
			}
			head := text[begin:at()]
			if i := strings.Index(head, "\r\n\r\n"); i >= 0 {
				head = head[:i+4]
			}
			for _, line := range strings.SplitAfter(head, "\n") {
				if line != "" && (!strings.HasSuffix(line, "\r\n") || isBlank(line[0])) {
					t.Fatalf("line %q of %q", line, text)
				}
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			whole := &framingParser{}
			if n, err := whole.scanBytes([]byte(text[:at()])); n < at() || err != nil || whole.part != atRequest || whole.remaining > 0 {
				t.Fatalf("%q ends for net/http: %d, %v, %d, %d", text[:at()], n, err, whole.part, whole.remaining)
			}
		}
	})
}

// countingReader counts what was read.
type countingReader struct {
	from io.Reader
	n    int
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	c.n += n
	return n, err
}

// TestMalformedRequests expects that net/http answers 400, and closes the connection.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"first request":  "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
		"second request": "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\nHost: a\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := start(t, 1<<30)
				c := r.dial(t, "")
				var got bytes.Buffer
				done := make(chan struct{})
				go func() { defer close(done); _, _ = io.Copy(&got, c) }()
				go func() { _, _ = io.WriteString(c, text) }()
				synctest.Wait()
				if name == "second request" {
					<-r.counts
					r.next <- struct{}{}
				}
				<-done
				assert.Contains(t, got.String(), "HTTP/1.1 400 Bad Request\r\n")
				assert.Empty(t, r.counts, "no further request was served")
			})
		})
	}
}

// TestDeclinedWebSocket has a client that sends more bytes after a request for a WebSocket. After the server declines, it reads none of these
// bytes as a request.
func TestDeclinedWebSocket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 1<<30)
		c := r.dial(t, "")
		go func() {
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
		}()
		<-r.counts
		r.next <- struct{}{}
		_, err := io.ReadAll(c)
		require.NoError(t, err)
		assert.Empty(t, r.counts)
	})
}
