package modelserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResponses(t *testing.T) {
	t.Parallel()
	const page = "vllm:num_requests_running 3\n"
	tests := []struct {
		name  string
		give  string
		again bool // the connection can be used again
	}{
		{name: "length", give: "HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n" + page, again: true},
		{name: "bare line ends, odd case, no reason", give: "HTTP/1.1 200\ncontent-LENGTH:28 \n\n" + page, again: true},
		{name: "chunks", give: "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5;x=y\r\nvllm:\r\n17\r\nnum_requests_running 3\n\r\n0\r\n\r\n", again: true},
		{name: "trailers", give: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1c\r\n" + page + "\r\n0\r\nA: b\r\n\r\n", again: true},
		{name: "until the end", give: "HTTP/1.1 200 OK\r\n\r\n" + page},
		{name: "the server closes", give: "HTTP/1.1 200 OK\r\nConnection: foo, Close\r\nContent-Length: 28\r\n\r\n" + page},
		{name: "old version", give: "HTTP/1.0 200 OK\r\nContent-Length: 28\r\n\r\n" + page},
		{name: "more than was said", give: "HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n" + page + "HTTP"},
		{name: "early hints first", give: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n" + page, again: true},
		{name: "one length twice", give: "HTTP/1.1 200 OK\r\nContent-Length: 28\r\nContent-Length: 28\r\n\r\n" + page, again: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for name, r := range map[string]io.Reader{
				"at once": strings.NewReader(tt.give), "byte by byte": iotest.OneByteReader(strings.NewReader(tt.give)),
			} {
				got, again, err := readResponse(newBuffers(r), vllm(t))
				require.NoError(t, err, name)
				assert.InDelta(t, 3, got.Running, 0, name)
				if name == "at once" { // what comes later is not seen
					assert.Equal(t, tt.again, again)
				}
			}
		})
	}
}

func newBuffers(r io.Reader) *buffers {
	b := pooled.New().(*buffers)
	b.resetReader(r)
	return b
}

func TestResponsesThatAreRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give string
		want string
	}{
		{name: "not HTTP", give: "220 smtp\r\n", want: "malformed"},
		{name: "another version", give: "HTTP/2.0 200 OK\r\n\r\n", want: "version HTTP/2.0"},
		{name: "no status", give: "HTTP/1.1 OK\r\n\r\n", want: "malformed"},
		{name: "long status", give: "HTTP/1.1 2000 OK\r\n\r\n", want: "malformed"},
		{name: "another protocol", give: "HTTP/1.1 101 Switching\r\n\r\n", want: "status 101"},
		{name: "hints for ever", give: strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 6), want: "no final response"},
		{name: "status", give: "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", want: "status 503"},
		{name: "header without a colon", give: "HTTP/1.1 200 OK\r\nA\r\n\r\n", want: "malformed"},
		{name: "lengths that differ", give: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", want: "multiple Content-Length"},
		{name: "length with a sign", give: "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx", want: "bad"},
		{name: "compressed", give: "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", want: "encoding"},
		{name: "coded", give: "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", want: "unsupported transfer encoding"},
		{name: "endless header", give: "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", maxHeader), want: "over 65536 bytes"},
		{name: "endless headers", give: "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: bbbbbbbbbbbb\r\n", 5000), want: "over 65536 bytes"},
		{name: "headers that break off", give: "HTTP/1.1 200 OK\r\nA: b\r\n", want: io.ErrUnexpectedEOF.Error()},
		{name: "page that breaks off", give: "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nvllm:num_requests_running 1\n", want: io.ErrUnexpectedEOF.Error()},
		{name: "chunks that break off", give: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1c\r\nvllm:", want: io.ErrUnexpectedEOF.Error()},
		{name: "trailers that break off", give: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA", want: io.ErrUnexpectedEOF.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, again, err := readResponse(newBuffers(strings.NewReader(tt.give)), vllm(t))
			require.ErrorContains(t, err, tt.want)
			assert.False(t, again)
		})
	}
}

func TestAPageOfAnotherEngineKeepsTheConnection(t *testing.T) {
	t.Parallel()
	_, again, err := readResponse(newBuffers(strings.NewReader("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nup 1\n")), vllm(t))
	require.ErrorIs(t, err, errNoGauges)
	assert.True(t, again)
}

// FuzzResponse reads responses of any kind: reading ends, and an error ends the connection.
func FuzzResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\nx"))
	f.Add([]byte("HTTP/1.0 404 Not Found\r\nConnection: close\r\n\r\nuntil the end"))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\ncontent-length:0\r\n\r\n"))
	r := vllm(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		b := newBuffers(bytes.NewReader(text))
		_, again, err := readResponse(b, r)
		if err != nil && !errors.Is(err, errNoGauges) {
			assert.False(t, again)
			assert.Less(t, len(err.Error()), 300)
		}
		if again {
			assert.Zero(t, b.response.Buffered())
		}
	})
}

func BenchmarkResponse(b *testing.B) {
	page := samplePage(3, 1, 0.5)
	response := []byte(fmt.Sprintf("HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 12:00:00 GMT\r\nServer: uvicorn\r\nContent-Length: %d\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\r\n%s", len(page), page))
	v, r := vllm(b), bytes.NewReader(nil)
	buf := newBuffers(r)
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(response)
		buf.resetReader(r)
		if _, _, err := readResponse(buf, v); err != nil {
			b.Fatal(err)
		}
	}
}
