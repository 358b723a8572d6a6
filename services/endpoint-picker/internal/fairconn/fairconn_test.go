package fairconn

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"fairlead.dev/services/endpoint-picker/internal/fairshare"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server behind a gate.
type rig struct {
	*Gate
	*httptest.Server

	ledger *fairshare.Ledger
	counts chan [2]int64 // what counts for the client before and after Begin
	next   chan struct{} // lets a request end
}

func newRig(t *testing.T, limit int, secure bool) *rig {
	t.Helper()
	l := fairshare.NewLedger(fairshare.Limits{Bytes: limit})
	r := &rig{Gate: NewGate(l), ledger: l, counts: make(chan [2]int64, 1), next: make(chan struct{})}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		c := Of(q)
		before := c.Account().Used(fairshare.Bytes)
		c.Begin(q)
		defer c.End()
		r.counts <- [2]int64{before, c.Account().Used(fairshare.Bytes)}
		<-r.next
	}))
	r.Server.Config.ConnContext = Context
	r.Server.Listener = r.Gate.Listener(r.Server.Listener)
	if r.Server.EnableHTTP2 = secure; secure {
		r.Server.StartTLS()
	} else {
		r.Server.Start()
	}
	t.Cleanup(func() {
		r.Server.Close()
		r.await(t, func() bool { return r.Open() == 0 && l.Total(fairshare.Bytes) == 0 })
	})
	return r
}

func (r *rig) await(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 20*time.Second, time.Millisecond)
}

func (r *rig) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.Server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	return c
}

// TestHeadersCountUntilTheyHaveArrived sends two requests on a connection, the second one after a pause in its headers.
func TestHeadersCountUntilTheyHaveArrived(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, false)
	const half = "GET / HTTP/1.1\r\nHost: x\r\n"
	c := r.dial(t, half)
	for range 2 {
		r.await(t, func() bool { return r.ledger.Total(fairshare.Bytes) == connBytes+headerGrowth*int64(len(half)) })
		_, err := io.WriteString(c, "\r\n")
		require.NoError(t, err)
		got := <-r.counts
		assert.Equal(t, [2]int64{connBytes + headerGrowth*int64(len(half)+2), connBytes}, got)
		r.next <- struct{}{}
		answer := make([]byte, 1024)
		_, err = c.Read(answer)
		require.NoError(t, err)
		_, err = io.WriteString(c, half)
		require.NoError(t, err)
	}
}

// TestHTTP2 counts the window of a connection once, through TLS.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, true)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	for range 2 {
		go func() { r.next <- struct{}{} }()
		response, err := client.Get(r.Server.URL)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, 2, response.ProtoMajor)
		assert.EqualValues(t, connBytes+http2Bytes, (<-r.counts)[1])
	}
}

// TestClientBeyondItsShare closes its connections, new ones and those with headers, but not the account that somebody else holds.
func TestClientBeyondItsShare(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2*connBytes, false)
	client := r.ledger.Open(netip.MustParseAddr("127.0.0.1"))
	closed := func(c net.Conn) {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
		_, err := c.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	one, _ := r.dial(t, ""), r.dial(t, "")
	r.await(t, func() bool { return r.Open() == 2 })
	closed(r.dial(t, ""))
	assert.EqualValues(t, 1, r.Refused())
	_, err := io.WriteString(one, "GET / HTTP/1.1\r\nX: "+strings.Repeat("x", 100))
	require.NoError(t, err)
	closed(one)
	assert.EqualValues(t, 2, r.Refused())
	r.await(t, func() bool { return client.Used(fairshare.Bytes) == connBytes })

	client.Add(fairshare.Bytes, 4*connBytes)
	client.Add(fairshare.Parked, 4*connBytes)
	closed(r.dial(t, "GET / HTTP/1.1\r\n\r\n"))
	client.Add(fairshare.Bytes, -4*connBytes)
	client.Add(fairshare.Parked, -4*connBytes)
	client.Close()
}

func TestRequestsOfOtherListeners(t *testing.T) {
	t.Parallel()
	assert.Nil(t, Of(httptest.NewRequest(http.MethodGet, "/", http.NoBody)))
}

func TestHeadersSize(t *testing.T) {
	t.Parallel()
	assert.Zero(t, HeadersSize(nil))
	assert.Equal(t, fieldOverhead+1+2*(fieldOverhead/2+3), HeadersSize(http.Header{"A": {"abc", "def"}}))
}
