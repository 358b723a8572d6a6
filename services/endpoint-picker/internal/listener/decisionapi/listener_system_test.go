//go:build system

package decisionapi

import (
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/limits"
)

func onAnyPort(o *Options) { o.Address = "127.0.0.1:0" }

// listenTCP serves the API on a port, until the test ends.
func (r *rig) listenTCP(t testing.TB) *Server {
	t.Helper()
	require.NoError(t, r.OpenListener())
	run(t, r.Server)
	return r.Server
}

func TestListener_Port(t *testing.T) {
	t.Parallel()
	r := newRig(t, onAnyPort)
	used := r.listenTCP(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Post("http://"+used.ListenAddress()+PathPick, "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusOK, response.StatusCode)

	l := newRig(t, func(o *Options) { o.Address = used.ListenAddress() }).Server
	require.ErrorContains(t, l.OpenListener(), "listen on --flag "+used.ListenAddress())
	l.Close()
}

// BenchmarkMemoryOfCalls measures what calls hold whose body does not come, as the basis of callBytes. The other ends of the
// connections are in the process, too, with less than 1 KiB each.
func BenchmarkMemoryOfCalls(b *testing.B) {
	const calls = 500
	for name, head := range map[string]string{
		"idle": "", "outcome": "POST /v1/outcome HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"pick": "POST /v1/pick HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r := newLimitedRig(b, limits.Limits{}, onAnyPort)
				l := r.listenTCP(b)
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				var conns []net.Conn
				for range calls {
					c, err := net.Dial("tcp", l.ListenAddress())
					require.NoError(b, err)
					_, err = io.WriteString(c, head)
					require.NoError(b, err)
					conns = append(conns, c)
				}
				time.Sleep(time.Second)
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/calls, "B/each")
				b.ReportMetric(float64(r.ledger.TotalUse(limits.Bytes))/calls, "counted/each")
				for _, c := range conns {
					_ = c.Close()
				}
				l.Close()
			}
		})
	}
}
