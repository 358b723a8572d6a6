package connlimit

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"fairlead.dev/pkg/memnet"
	"fairlead.dev/pkg/servingcert"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAddressOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give net.Addr
		want string
	}{
		{give: &net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 1}, want: "10.0.0.1"},
		{give: &net.TCPAddr{IP: net.ParseIP("::ffff:10.0.0.1"), Port: 2}, want: "10.0.0.1"},
		{give: &net.TCPAddr{IP: net.ParseIP("fd00::1")}, want: "fd00::1"},
		{give: &net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}, want: "fe80::1"},
		{give: &net.UnixAddr{Name: "memory"}, want: "invalid IP"},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, AddressOf(tt.give).String())
	}
}

func TestClientOf(t *testing.T) {
	t.Parallel()
	for give, want := range map[string]string{
		"10.0.0.1:1": "10.0.0.1", "[::ffff:10.0.0.1]:2": "10.0.0.1", "[fe80::1%eth0]:3": "fe80::1", "pipe": "invalid IP",
	} {
		assert.Equal(t, want, ClientOf(&http.Request{RemoteAddr: give}).String(), give)
	}
}

// The places of a server in the tests.
const (
	places   = 4
	requests = 2
)

// rig is a server in memory. Its answers wait for next, except for those to /now.
type rig struct {
	*Limiter

	t        *testing.T
	memory   *memnet.Listener
	next     chan struct{}
	handling chan string // the paths of requests, when their handler begins
}

// start runs a server until the end of a bubble, when nothing may count anymore.
func start(t *testing.T, settings *tls.Config) *rig {
	t.Helper()
	r := &rig{Limiter: New(Limits{Waiting: places, Requests: requests}), t: t, memory: memnet.Listen(), next: make(chan struct{}), handling: make(chan string, 100)}
	server := &http.Server{TLSConfig: settings, ErrorLog: zap.NewStdLog(zap.NewNop()), Handler: r.Requests(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.handling <- q.URL.Path
		if _, err := io.Copy(io.Discard, q.Body); err != nil {
			return
		}
		if q.URL.Path != "/now" {
			<-r.next
		}
		_, _ = io.WriteString(w, q.URL.Path)
	}))}
	r.Attach(server)
	serve := func() error { return server.Serve(r.Listener(r.memory)) }
	if settings != nil {
		serve = func() error { return server.ServeTLS(r.Listener(r.memory), "", "") }
	}
	go func() { _ = serve() }()
	t.Cleanup(func() {
		_ = server.Close()
		close(r.next)
		synctest.Wait()
		assert.Empty(t, r.waiting.members)
		assert.Empty(t, r.waiting.ofAddress)
		assert.Empty(t, r.requests.members)
		assert.Empty(t, r.requests.ofAddress)
		assert.Equal(t, newQuota(r.bytes.limit), r.bytes)
	})
	return r
}

// client is one connection.
type client struct {
	net.Conn

	t *testing.T
}

// dial connects from a host of 10.0.0.0/24.
func (r *rig) dial(host int) *client {
	r.t.Helper()
	c, err := r.memory.From(netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:1000", host)))(r.t.Context(), "", "")
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = c.Close() })
	synctest.Wait()
	return &client{c, r.t}
}

func (c *client) send(text string) *client {
	c.t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(c.t, err)
	synctest.Wait()
	return c
}

func (c *client) ask(path string) *client {
	c.t.Helper()
	return c.send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")
}

// answer returns the body of the answer to a request.
func (c *client) answer() string {
	c.t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(c.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(c.t, err)
	synctest.Wait()
	return string(text)
}

// closed reports whether the server has closed the connection without an answer.
func (c *client) closed() bool {
	c.t.Helper()
	if c.SetReadDeadline(time.Now().Add(time.Nanosecond)) != nil {
		return true
	}
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(c.t, err, os.ErrDeadlineExceeded)
	require.NoError(c.t, c.SetReadDeadline(time.Time{}))
	return false
}

const half = "GET /now HTTP/1.1\r\nHost: x\r\nX: "

// An address that opens connections without end displaces its own, oldest first, whatever they do.
func TestConnectionsOfOneAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		probe := r.dial(1).send(half)
		idle := r.dial(2).ask("/now")
		assert.Equal(t, "/now", idle.answer())
		attack := []*client{r.dial(9), r.dial(9).send(half)}
		for range 100 {
			attack = append(attack, r.dial(9).send(half))
		}
		for i, c := range attack {
			assert.Equal(t, i < len(attack)-2, c.closed(), i)
		}
		assert.Len(t, r.Limiter.waiting.members, places)
		assert.Equal(t, "/now", probe.send("x\r\n\r\n").answer())
		assert.Equal(t, "/now", idle.ask("/now").answer())
		assert.Equal(t, "/now", r.dial(3).ask("/now").answer())
	})
}

// With an address for each connection, the oldest one leaves.
func TestConnectionsOfManyAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		for host := 10; host < 50; host++ {
			r.dial(host).send(half)
			assert.Equal(t, "/now", r.dial(1).ask("/now").answer())
		}
	})
}

// An address that takes all requests loses the oldest ones to others. Those that it displaces itself never reach the handler.
func TestRequestsInProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		first, second := r.dial(9).ask("/first"), r.dial(9).ask("/second")
		var more []*client
		for range 20 {
			more = append(more, r.dial(9).ask("/more"))
		}
		assert.True(t, first.closed())
		assert.True(t, second.closed())
		scrape := r.dial(1).ask("/scrape")
		for i, c := range more {
			assert.Equal(t, i < len(more)-1, c.closed(), i)
		}
		assert.Len(t, r.handling, requests, "displaced requests count until their handlers return")
		for range 2 { // they do
			r.next <- struct{}{}
		}
		synctest.Wait()
		for range 2 {
			r.next <- struct{}{}
		}
		assert.Equal(t, "/scrape", scrape.answer())
		assert.Equal(t, "/more", more[19].answer())
		close(r.handling)
		var handled []string
		for path := range r.handling {
			handled = append(handled, path)
		}
		assert.ElementsMatch(t, []string{"/first", "/second", "/more", "/scrape"}, handled)
		r.handling = make(chan string, 100)
	})
}

// A connection waits again after its request.
func TestConnectionIsUsedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		c := r.dial(1)
		for range 10 {
			c.ask("/slow")
			assert.Empty(t, r.Limiter.waiting.members)
			r.next <- struct{}{}
			assert.Equal(t, "/slow", c.answer())
			assert.Len(t, r.Limiter.waiting.members, 1)
		}
	})
}

// The handler bounds requests itself.
func TestNoLimitOfRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		r.requests.limit, r.running = 0, nil
		var all []*client
		for range 10 * places {
			all = append(all, r.dial(9).ask("/slow"))
		}
		assert.Len(t, r.handling, len(all))
		for _, c := range all {
			go func() { r.next <- struct{}{} }()
			assert.Equal(t, "/slow", c.answer())
		}
	})
}

// Bodies count as they arrive. Beyond the limit, the address with the most bytes loses its largest request.
func TestBytesOfBodies(t *testing.T) {
	t.Parallel()
	const announced = "POST /now HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
	tests := []struct {
		name   string
		attack []int // hosts, each with a body of which it sends
		sends  int
		want   []bool // which of them are closed, after a good request of 20 bytes from another address
	}{
		{name: "announced", attack: []int{9, 9, 8, 7}, sends: 1, want: []bool{false, false, false, false}},
		{name: "of one address", attack: []int{9, 9, 9}, sends: 30, want: []bool{true, false, false}},
		{name: "of two addresses", attack: []int{8, 9, 9}, sends: 30, want: []bool{false, true, false}},
		{name: "the largest of many addresses", attack: []int{7, 8, 9}, sends: 33, want: []bool{true, false, false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := start(t, nil)
				r.requests.limit, r.running, r.bytes.limit = 0, nil, 100
				var attack []*client
				for i, host := range tt.attack {
					attack = append(attack, r.dial(host).send(announced+strings.Repeat("x", max(tt.sends-i, 1))))
				}
				good := r.dial(1).send("POST /now HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n" + strings.Repeat("x", 19))
				assert.Equal(t, "/now", good.send("x").answer())
				var closed []bool
				for _, c := range attack {
					closed = append(closed, c.closed())
				}
				assert.Equal(t, tt.want, closed)
			})
		})
	}
}

// Bytes count until the answer: a connection may send any number of requests.
func TestBytesOfRequestsThatEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		r.bytes.limit = 100
		c := r.dial(1)
		for range 3 {
			assert.Equal(t, "/now", c.send("POST /now HTTP/1.1\r\nHost: x\r\nContent-Length: 60\r\n\r\n"+strings.Repeat("x", 60)).answer())
		}
		assert.Zero(t, r.bytes.total)
	})
}

// The request of a connection with TLS counts, and HTTP/2 is not offered: its connections carry many requests.
func TestTLS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		certificate, err := servingcert.SelfSigned(servingcert.Params{Log: zap.NewNop()}, "test", servingcert.Options{}, time.Now())
		require.NoError(t, err)
		r := start(t, certificate.TLS(servingcert.Options{}))
		var raw net.Conn
		transport := &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (_ net.Conn, err error) {
				raw, err = r.memory.Dial(ctx, network, address)
				return raw, err
			},
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
		}
		defer func() { // below TLS: two ends in memory that close it at the same time wait for each other
			_ = raw.Close()
			transport.CloseIdleConnections()
			synctest.Wait()
		}()
		for range places {
			r.dial(9).send("\x16\x03\x01") // the begin of a handshake
		}
		response, err := (&http.Client{Transport: transport}).Get("https://memory/now")
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, 1, response.ProtoMajor)
	})
}
