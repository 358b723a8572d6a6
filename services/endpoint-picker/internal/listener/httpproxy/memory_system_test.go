//go:build system

package httpproxy

import (
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/limits"
)

// BenchmarkMemory measures what a client makes the process hold, as the basis of connBytes, requestBytes and HeaderGrowth. The
// other ends of the connections are in the process, too, with less than 1 KiB each.
//
//	idle            a connection after its first request
//	half a header   with 32 KiB of headers of 6 bytes
//	stream          a request with one event of its response
//	headers         the same with as many fields of 6 bytes in the response as it may have
func BenchmarkMemory(b *testing.B) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for _, tt := range []struct{ name, request, answer string }{
		{"idle", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", ok},
		{"half a header", "GET / HTTP/1.1\r\nHost: a\r\n" + manyHeaders(32<<10/6), ""},
		{"stream", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"},
		{"headers", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + manyHeaders(890) + "\r\n2\r\nok\r\n"},
	} {
		b.Run(tt.name, func(b *testing.B) {
			const n = 500
			for b.Loop() {
				r := startTCP(b, testOptions(), limits.Limits{})
				l, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(b, err)
				r.pool.add(l.Addr().String())
				var ends []net.Conn
				var before, after runtime.MemStats
				settle := func(m *runtime.MemStats) {
					runtime.GC()
					runtime.GC()
					runtime.ReadMemStats(m)
				}
				var server net.Conn
				open := func() {
					c, err := net.Dial("tcp", r.address)
					require.NoError(b, err)
					ends = append(ends, c)
					_, err = io.WriteString(c, tt.request)
					require.NoError(b, err)
					if tt.answer == "" {
						return
					}
					if server == nil || strings.HasSuffix(tt.answer, "2\r\nok\r\n") {
						server, err = l.Accept()
						require.NoError(b, err)
						ends = append(ends, server)
					}
					buffer := make([]byte, 4096)
					_, err = server.Read(buffer)
					require.NoError(b, err)
					_, err = io.WriteString(server, tt.answer)
					require.NoError(b, err)
					for got := ""; !strings.HasSuffix(got, "ok") && !strings.HasSuffix(got, "ok\r\n"); {
						k, err := c.Read(buffer)
						require.NoError(b, err)
						got += string(buffer[:k])
					}
				}
				for range 20 {
					open()
				}
				settle(&before)
				for range n {
					open()
				}
				if tt.answer == "" {
					await(b, func() bool { return r.ledger.TotalUse(limits.Bytes) > n*(16<<10) })
				}
				settle(&after)
				b.ReportMetric(float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/n, "B/each")
				b.ReportMetric(float64(r.ledger.TotalUse(limits.Bytes))/(n+20), "counted/each")
				for _, c := range ends {
					_ = c.Close()
				}
				_ = l.Close()
				r.Close()
			}
		})
	}
}

func manyHeaders(n int) string {
	const digits = "abcdefghijklmnopqrstuvwxyz0123456789"
	var s strings.Builder
	for i := range n {
		s.WriteByte(digits[i%36])
		s.WriteByte(digits[i/36%36])
		s.WriteByte(digits[i/36/36%36])
		s.WriteString(":\r\n")
	}
	return s.String()
}
