//go:build system

package httpproxy

import (
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/limits"
)

// BenchmarkHostileServer measures what one request to a hostile model server costs: memory while it is open, and processor time until the
// server is cut or has sent everything. Client and server are in the process, too.
func BenchmarkHostileServer(b *testing.B) {
	const begin = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
	for _, tt := range []struct{ name, answer string }{
		{"half of the headers", begin + strings.Repeat("aa:\r\n", 64<<10/5-100)},
		{"many headers", begin + manyHeaders(890) + "\r\n2\r\nok\r\n"},
		{"too many headers", begin + strings.Repeat("aa:\r\n", 64<<10/5-100) + "\r\n2\r\nok\r\n"},
		{"too many names of trailers", begin + "Trailer: " + strings.Repeat("a,", 30_000) + "a\r\n\r\n2\r\nok\r\n"},
		{"informational responses", strings.Repeat("HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n", 100_000)},
	} {
		b.Run(tt.name, func(b *testing.B) {
			const n = 200
			for b.Loop() {
				r := startTCP(b, testOptions(), limits.Limits{})
				sent := make(chan struct{})
				r.serveRaw(func(_ int, c net.Conn) {
					_ = readRequest(c)
					_, _ = io.WriteString(c, tt.answer)
					sent <- struct{}{}
					_, _ = io.Copy(io.Discard, c)
				})
				before, began := memory(), processorTime(b)
				ends := make([]net.Conn, n)
				for i := range ends {
					var err error
					ends[i], err = net.Dial("tcp", r.address)
					require.NoError(b, err)
					_, err = io.WriteString(ends[i], "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
					require.NoError(b, err)
				}
				for range n {
					<-sent
				}
				b.ReportMetric((processorTime(b)-began)/n, "cpu-ms/each")
				b.ReportMetric(float64(memory()-before)/n, "B/each")
				b.ReportMetric(float64(r.ledger.TotalUse(limits.Bytes))/n, "counted/each")
				for _, c := range ends {
					_ = c.Close()
				}
				r.Close()
			}
		})
	}
}

// memory returns the memory of objects and stacks, in bytes.
func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// processorTime returns the time of the process so far, in milliseconds.
func processorTime(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}
