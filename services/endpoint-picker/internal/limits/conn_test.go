package limits

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"fairlead.dev/pkg/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server with a listener that counts.
type rig struct {
	*HTTPListener

	server *http.Server
	ledger *Ledger
	counts chan [2]int64 // what counts for the client before and after BeginRequest
	next   chan struct{} // lets a request end
	memory *memnet.Listener
}

func newRig(limit int, secure *tls.Config) *rig {
	l := NewLedger(Limits{Bytes: limit})
	r := &rig{ledger: l, counts: make(chan [2]int64, 1), next: make(chan struct{})}
	r.server = &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		c := ConnOf(q)
		before := c.Account().CurrentUse(Bytes)
		c.BeginRequest(q)
		defer c.EndRequest()
		r.counts <- [2]int64{before, c.Account().CurrentUse(Bytes)}
		<-r.next
	})}
	r.server.Protocols = &http.Protocols{}
	r.server.Protocols.SetHTTP1(true)
	r.server.Protocols.SetUnencryptedHTTP2(true)
	r.HTTPListener = NewHTTPListener(HTTPParams{
		Log: zap.NewNop(), Ledger: l, Address: "127.0.0.1:0", TLS: secure, Protocols: []string{"h2", "http/1.1"}, Server: r.server,
	})
	return r
}

// start runs a server in memory until the end of a bubble, when nothing may be counted anymore.
func start(t *testing.T, limit int) *rig {
	t.Helper()
	r := newRig(limit, nil)
	r.memory = memnet.Listen()
	r.AttachListener(r.memory)
	go func() { _ = r.Run() }()
	t.Cleanup(func() {
		r.Close()
		synctest.Wait()
		assert.Zero(t, r.OpenConns())
		assert.Zero(t, r.ledger.TotalUse(Bytes))
	})
	return r
}

// clientAddress is the address of all clients.
var clientAddress = netip.MustParseAddrPort("192.0.2.1:1000")

// dial connects, and sends text. What the server reads of it has counted.
func (r *rig) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	c, err := r.memory.From(clientAddress)(t.Context(), "", "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	r.send(t, c, text)
	return c
}

func (*rig) send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if text != "" {
		_, err := io.WriteString(c, text)
		require.NoError(t, err)
	}
	synctest.Wait()
}

// TestHeadersCountUntilTheyHaveArrived sends two requests on a connection, the second one after a pause in its headers.
func TestHeadersCountUntilTheyHaveArrived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 0)
		const half = "GET / HTTP/1.1\r\nHost: x\r\n"
		c := r.dial(t, half)
		for range 2 {
			assert.Equal(t, connBytes+HeaderGrowth*int64(len(half)), r.ledger.TotalUse(Bytes))
			r.send(t, c, "\r\n")
			got := <-r.counts
			assert.Equal(t, [2]int64{connBytes + HeaderGrowth*int64(len(half)+2), connBytes}, got)
			r.next <- struct{}{}
			answer := make([]byte, 1024)
			_, err := c.Read(answer)
			require.NoError(t, err)
			r.send(t, c, half)
		}
	})
}

// TestHTTP2 counts the window of a connection once.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 0)
		protocols := &http.Protocols{}
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: protocols, DialContext: r.memory.From(clientAddress)}
		defer transport.CloseIdleConnections()
		r.assertWindowCounts(t, &http.Client{Transport: transport}, "http://memory")
	})
}

// assertWindowCounts sends two requests on one connection.
func (r *rig) assertWindowCounts(t *testing.T, client *http.Client, url string) {
	t.Helper()
	for _, acknowledgment := range []float64{9 * HeaderGrowth, 0} { // of the settings: the server reads it while the first handler begins
		go func() { r.next <- struct{}{} }()
		response, err := client.Get(url)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, 2, response.ProtoMajor)
		assert.InDelta(t, connBytes+http2Bytes, (<-r.counts)[1], acknowledgment)
	}
}

// TestClientBeyondItsShare closes its connections, new ones and those with headers, but not the account that somebody else holds.
func TestClientBeyondItsShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 2*connBytes)
		client := r.ledger.OpenAccount(clientAddress.Addr())
		closed := func(c net.Conn) {
			_, err := c.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		}
		one, _ := r.dial(t, ""), r.dial(t, "")
		assert.Equal(t, 2, r.OpenConns())
		closed(r.dial(t, ""))
		assert.EqualValues(t, 1, r.RefusedConns())
		r.send(t, one, "GET / HTTP/1.1\r\nX: "+strings.Repeat("x", 100))
		closed(one)
		assert.EqualValues(t, 2, r.RefusedConns())
		assert.EqualValues(t, connBytes, client.CurrentUse(Bytes))

		client.AddUse(Bytes, 4*connBytes)
		client.AddUse(Parked, 4*connBytes)
		closed(r.dial(t, ""))
		client.AddUse(Bytes, -4*connBytes)
		client.AddUse(Parked, -4*connBytes)
		client.Close()
	})
}

func TestRequestsOfOtherListeners(t *testing.T) {
	t.Parallel()
	assert.Nil(t, ConnOf(httptest.NewRequest(http.MethodGet, "/", http.NoBody)))
}

func TestHeadersSize(t *testing.T) {
	t.Parallel()
	assert.Zero(t, HeadersSize(nil))
	assert.Equal(t, fieldOverhead+1+2*(fieldOverhead/2+3), HeadersSize(http.Header{"A": {"abc", "def"}}))
}
