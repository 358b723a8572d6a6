package httpserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"fairlead.dev/pkg/memnet"
)

// good is the address of a kubelet and a scraper.
var good = netip.MustParseAddrPort("10.0.0.1:1000")

func attacker(host int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(host >> 8), byte(host)}), 1000)
}

// counted is a server in memory that counts what it works on.
type counted struct {
	*Server

	pages, mostPages atomic.Int32
}

const pageSize = 1 << 20 // more than a connection holds

func startCounted(t *testing.T) *counted {
	t.Helper()
	c := &counted{}
	page := strings.Repeat("x", pageSize)
	c.Server = start(t, Params{
		Gatherer: prometheus.NewRegistry(),
		Handlers: map[string]http.Handler{"GET /page": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c.mostPages.Store(max(c.mostPages.Load(), c.pages.Add(1)))
			defer c.pages.Add(-1)
			_, _ = io.WriteString(w, page)
		})},
	})
	return c
}

// open opens a connection from an address and sends text, as much as the server reads.
func open(t *testing.T, e *endpoint, from netip.AddrPort, text string) net.Conn {
	t.Helper()
	c, err := e.listener.(*memnet.Listener).From(from)(t.Context(), "", "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	go func() { _, _ = io.WriteString(c, text) }()
	synctest.Wait()
	return c
}

// askFrom sends a request and returns the status and the length of the answer.
func askFrom(t *testing.T, e *endpoint, from netip.AddrPort, request string) (status, length int) {
	t.Helper()
	c := open(t, e, from, request)
	defer c.Close()
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	return response.StatusCode, int(n)
}

func isOpen(c net.Conn) bool { return c.SetReadDeadline(time.Time{}) == nil } // of a pipe with an open other end

func countOpen(all []net.Conn) (n int) {
	for _, c := range all {
		if isOpen(c) {
			n++
		}
	}
	return n
}

const (
	getProbe = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	getPage  = "GET /page HTTP/1.1\r\nHost: x\r\n\r\n"
)

// Attacks on both addresses: what they hold is bounded, and the good address is answered meanwhile.
func TestAttacks(t *testing.T) {
	t.Parallel()
	one := func(int) netip.AddrPort { return attacker(0) }
	tests := []struct {
		name     string
		from     func(n int) netip.AddrPort
		send     string
		wantOpen int // connections of the attack at most, on each address
	}{
		{name: "silent", from: one, wantOpen: maxWaiting},
		{name: "half requests", from: one, send: "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", maxHeaderBytes), wantOpen: maxWaiting},
		{name: "half requests from many addresses", from: attacker, send: "GET / HTTP/1.1\r\nX: ", wantOpen: maxWaiting},
		{name: "pages that nobody reads", from: one, send: getPage, wantOpen: maxWaiting},
		{name: "pages that nobody reads, for many addresses", from: attacker, send: getPage, wantOpen: maxWaiting},
		{name: "probes that nobody reads", from: one, send: strings.Repeat(getProbe, 1000), wantOpen: maxProbes + maxWaiting},
		{name: "a body without end", from: one, send: "POST /page HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx", wantOpen: maxWaiting + maxPages},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := startCounted(t)
				for _, e := range []*endpoint{s.metrics, s.health} {
					var attack []net.Conn
					for n := range 500 {
						attack = append(attack, open(t, e, tt.from(n), tt.send))
					}
					assert.LessOrEqual(t, countOpen(attack), tt.wantOpen)
				}
				status, _ := askFrom(t, s.health, good, getProbe)
				assert.Equal(t, 200, status)
				status, length := askFrom(t, s.metrics, good, getPage)
				assert.Equal(t, 200, status)
				assert.Equal(t, pageSize, length)
				assert.LessOrEqual(t, s.mostPages.Load(), int32(maxPages))
			})
		})
	}
}

// A page that nobody reads ends after a time, but a profile may take longer.
func TestUnreadPageEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startCounted(t)
		c := open(t, s.metrics, attacker(0), getPage)
		assert.EqualValues(t, 1, s.pages.Load())
		time.Sleep(answerTimeout - time.Second)
		assert.True(t, isOpen(c))
		time.Sleep(2 * time.Second)
		assert.False(t, isOpen(c))
		assert.Zero(t, s.pages.Load())
	})
}

func TestSizes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       int
	}{
		{name: "a long token", give: "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + strings.Repeat("x", 6<<10) + "\r\n\r\n", want: 200},
		{name: "long headers", give: "GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", maxHeaderBytes+4<<10) + "\r\n\r\n", want: 431},
		{name: "a body", give: "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", want: 200},
		{name: "a long body", give: fmt.Sprintf("POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", maxBodyBytes+1, strings.Repeat("x", maxBodyBytes+1)), want: 413},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := start(t, Params{Gatherer: prometheus.NewRegistry(), Handlers: map[string]http.Handler{
					"POST /body": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if _, err := io.Copy(io.Discard, r.Body); err != nil {
							w.WriteHeader(http.StatusRequestEntityTooLarge)
						}
					}),
				}})
				status, _ := askFrom(t, s.metrics, good, tt.give)
				assert.Equal(t, tt.want, status)
			})
		})
	}
}

// A profile takes longer than the limits of reading a request and of writing a page.
func TestLongProfile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Params{Options: Options{EnablePprof: true}})
		began := time.Now()
		status, body := get(t, s.metrics, "/debug/pprof/goroutine?seconds=100")
		assert.Equal(t, 200, status, body)
		assert.Equal(t, 100*time.Second, time.Since(began))
	})
}

// TestStreamEndsWithTheServer has an answer without an end.
func TestStreamEndsWithTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Params{Log: zaptest.NewLogger(t), Handlers: map[string]http.Handler{"GET /stream": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})}})
		s.metrics.listener, s.health.listener = memnet.Listen(), memnet.Listen()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		client := open(t, s.metrics, good, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
		go func() { _, _ = io.Copy(io.Discard, client) }()
		synctest.Wait()
		began := time.Now()
		cancel()
		require.NoError(t, <-ended)
		assert.Less(t, time.Since(began), shutdownTimeout)
	})
}
