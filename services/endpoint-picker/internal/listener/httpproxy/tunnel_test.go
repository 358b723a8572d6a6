package httpproxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// opening is a request for a WebSocket: RFC 6455, 1.3.
const opening = "GET /v1/realtime?model=m HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

const switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"

// serveWebSocket adds a model server that opens a WebSocket, and sends back what it gets until a line "bye". It tells how its connection
// ended.
func (r *rig) serveWebSocket() (requests <-chan *http.Request, ended <-chan error) {
	asked, ends := make(chan *http.Request, 10), make(chan error, 10)
	r.serveRaw(func(_ int, c net.Conn) {
		from := bufio.NewReader(c)
		q, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		asked <- q
		_, _ = io.WriteString(c, switching)
		for {
			line, err := from.ReadString('\n')
			if err != nil || line == "bye\n" {
				ends <- err
				return
			}
			_, _ = io.WriteString(c, line)
		}
	})
	return asked, ends
}

// open opens a WebSocket, and exchanges a line.
func (r *rig) open() (net.Conn, *bufio.Reader) {
	r.t.Helper()
	c, from := r.dial()
	go func() { _, _ = io.WriteString(c, opening+"hello\n") }() // the first frame may come with the request
	a := receive(r.t, from)
	assert.Equal(r.t, http.StatusSwitchingProtocols, a.status)
	a.header.Del("Date")
	assert.Equal(r.t, http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Accept": {"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="},
	}, a.header)
	assertLine(r.t, from, "hello\n")
	return c, from
}

func assertLine(t testing.TB, from *bufio.Reader, want string) {
	t.Helper()
	line, err := from.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, want, line)
}

// TestWebSocket ends a WebSocket in each way. It counts for its client and for its server while it is open.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	const idle = time.Minute
	say := func(t *testing.T, c net.Conn, line string) {
		t.Helper()
		_, err := io.WriteString(c, line)
		require.NoError(t, err)
	}
	tests := []struct {
		name    string
		end     func(t *testing.T, r *rig, c net.Conn)
		want    request.Outcome
		result  Result
		serverd error // how the connection of the model server ended
	}{
		{name: "the server ends it", end: func(t *testing.T, _ *rig, c net.Conn) { say(t, c, "bye\n") }, want: request.Completed, result: Answered},
		{
			name: "the client ends it", end: func(t *testing.T, _ *rig, c net.Conn) { require.NoError(t, c.Close()) },
			want: request.Completed, result: Answered, serverd: io.EOF,
		},
		{name: "nothing passes", end: func(*testing.T, *rig, net.Conn) { time.Sleep(idle + time.Second) }, want: request.Interrupted, result: Silent, serverd: io.EOF},
		{name: "the listener is closed", end: func(_ *testing.T, r *rig, _ net.Conn) { r.Close() }, want: request.Interrupted, result: Gone, serverd: io.EOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := testOptions()
				o.IdleTimeout = idle
				r := start(t, o, limits.Limits{})
				requests, ended := r.serveWebSocket()
				c, from := r.open()
				q := <-requests
				assert.Equal(t, "/v1/realtime?model=m", q.RequestURI)
				assert.Equal(t, []string{"dGhlIHNhbXBsZSBub25jZQ=="}, q.Header["Sec-Websocket-Key"])
				assert.Equal(t, []string{"Upgrade"}, q.Header["Connection"])

				for range 3 { // longer than a connection between requests may be idle
					time.Sleep(idle - time.Second)
					say(t, c, "and again\n")
					assertLine(t, from, "and again\n")
				}
				synctest.Wait()
				assert.Equal(t, int64(1), r.pool.inFlight())
				assert.Equal(t, int64(1), r.ledger.TotalUse(limits.Streams))
				assert.Greater(t, r.ledger.TotalUse(limits.Bytes), int64(requestBytes))
				assert.Equal(t, 1, r.ProxyStats().Connections)

				tt.end(t, r, c)
				_, err := from.ReadByte()
				require.Error(t, err)
				assert.Equal(t, tt.serverd, <-ended)
				record := r.pool.ended(t, 1)[0]
				assert.Equal(t, tt.want, record.Outcome)
				assert.Equal(t, http.StatusSwitchingProtocols, record.Status)
				assert.Equal(t, len("hello\n")+3*len("and again\n"), record.ResponseBytes)
				assert.Zero(t, r.pool.inFlight())
				assert.Equal(t, int64(1), r.ProxyStats().Attempts[tt.result])
				assert.Zero(t, r.upstream.serverAt(r.pool.endpoints[0].Address()).keepAlive.learned, "the end of a tunnel is no idle timeout")
			})
		})
	}
}

// TestWebSocketInADrain expects that a tunnel may end as it would, within the time limit.
func TestWebSocketInADrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.serveWebSocket()
		c, from := r.open()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		drained := make(chan bool, 1)
		go func() { drained <- r.DrainConns(ctx) }()
		time.Sleep(30 * time.Second)
		_, err := io.WriteString(c, "still here\n")
		require.NoError(t, err)
		assertLine(t, from, "still here\n")
		time.Sleep(time.Minute)
		<-drained
		assert.Equal(t, 1, r.InFlight())
		r.Close()
		_, err = from.ReadByte()
		require.Error(t, err)
	})
}

// TestWebSocketOfAClientThatReadsNothing expects that the tunnel ends, and the server with it.
func TestWebSocketOfAClientThatReadsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := testOptions()
		r := start(t, o, limits.Limits{})
		began := time.Now()
		took := make(chan time.Duration, 1)
		r.serveRaw(func(_ int, c net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, err := io.WriteString(c, switching)
			for err == nil {
				_, err = io.WriteString(c, strings.Repeat("x", 1<<10))
			}
			took <- time.Since(began)
		})
		c, from := r.dial()
		_, err := io.WriteString(c, opening)
		require.NoError(t, err)
		assert.Equal(t, http.StatusSwitchingProtocols, receive(t, from).status)
		assert.Equal(t, o.SendTimeout, <-took)
	})
}

// TestOtherSwitchesOfProtocols has servers that answer with 101 what nobody asked for.
func TestOtherSwitchesOfProtocols(t *testing.T) {
	t.Parallel()
	for name, give := range map[string][2]string{
		"nobody asked":     {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", switching},
		"another protocol": {opening, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := start(t, testOptions(), limits.Limits{})
				r.serveRaw(func(_ int, c net.Conn) {
					_ = readRequest(c)
					_, _ = io.WriteString(c, give[1])
				})
				c, from := r.dial()
				a := send(t, c, from, give[0])
				assert.Equal(t, http.StatusBadGateway, a.status)
				assert.Equal(t, errUnsupported.Error(), messageOf(t, a.body))
			})
		})
	}
}
