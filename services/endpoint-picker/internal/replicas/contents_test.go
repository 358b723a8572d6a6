package replicas

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func host(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 9, byte(n)}) }

// contentsOf asks for the contents from an address, and returns the status of the answer.
func (r *replica) contentsOf(t *testing.T, from netip.Addr) int {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/contents?pool=pool", http.NoBody)
	request.RemoteAddr = netip.AddrPortFrom(from, 1).String()
	request.Header.Set(headerProtocol, protocol)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, request)
	return w.Code
}

// Contents go to one client one at a time. Its other requests wait, and those of other clients do not.
func TestContentsOfOneClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(nil)
		r.addMember(r.member)
		end := r.turns.waitForTurn(t.Context(), host(1))
		var waiting sync.WaitGroup
		for range maxReadersOfClient {
			waiting.Go(func() { assert.Equal(t, http.StatusServiceUnavailable, r.contentsOf(t, host(1))) })
		}
		synctest.Wait()
		begun := time.Now()
		assert.Equal(t, http.StatusServiceUnavailable, r.contentsOf(t, host(1)), "a request beyond the limit")
		assert.Equal(t, http.StatusOK, r.contentsOf(t, host(2)))
		assert.Zero(t, time.Since(begun), "neither waits")
		waiting.Wait()
		assert.Equal(t, contentsWait, time.Since(begun))
		end()
		assert.Equal(t, http.StatusOK, r.contentsOf(t, host(1)))
		assert.Empty(t, r.turns.clients)
		assert.Empty(t, r.member.asking.ofClient)
	})
}

// At most maxContents clients get contents at a time.
func TestContentsOfManyClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(nil)
		r.addMember(r.member)
		var ends []func()
		for n := range maxContents {
			ends = append(ends, r.turns.waitForTurn(t.Context(), host(n)))
		}
		assert.Equal(t, http.StatusServiceUnavailable, r.contentsOf(t, host(maxContents)))
		time.AfterFunc(contentsWait/2, ends[0])
		assert.Equal(t, http.StatusOK, r.contentsOf(t, host(maxContents)))
		for _, end := range ends[1:] {
			end()
		}
		assert.Empty(t, r.turns.clients)
	})
}

// Clients that ask without end make an index busy for a tenth of the time, and each of them gets as much of it.
func TestIndexIsReadRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const reading, lasts = 5 * time.Millisecond, 10 * time.Second
		turns := newTurns()
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		var asking sync.WaitGroup
		var reads [2]atomic.Int64
		for n := range reads {
			for range 4 { // at the same time
				asking.Go(func() {
					for ctx.Err() == nil {
						end := turns.waitForTurn(ctx, host(n))
						if end == nil {
							return
						}
						if turns.readIndex(ctx, func() { time.Sleep(reading) }) {
							reads[n].Add(1)
						}
						end()
					}
				})
			}
		}
		asking.Wait()
		const most = lasts / (reading * (1 + contentsRest))
		assert.InDelta(t, int64(most), reads[0].Load()+reads[1].Load(), 1)
		assert.InDelta(t, reads[0].Load(), reads[1].Load(), 2)
	})
}

// A client that does not read loses its connection, so that its place is free.
func TestContentsThatNobodyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a := n.addReplica(t)
		a.start(t)
		for i := range maxContents {
			c := a.attack(t, n, host(i))
			_, err := fmt.Fprintf(c, "GET /v1/contents?pool=pool HTTP/1.1\r\nHost: x\r\n%s: %s\r\n\r\n", headerProtocol, protocol)
			require.NoError(t, err)
		}
		synctest.Wait()
		assert.Len(t, a.turns.writing, maxContents)
		time.Sleep(contentsTimeout + time.Millisecond)
		assert.Empty(t, a.turns.writing)
	})
}

// attack connects to the port of a replica.
func (r *replica) attack(t *testing.T, n *network, from netip.Addr) net.Conn {
	t.Helper()
	c, err := n.listeners[r.address].From(netip.AddrPortFrom(from, 1))(t.Context(), "", "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Half requests without end are displaced. Readers stay, and others get in.
func TestHalfRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a, b := pair(t, n)
		var attack []net.Conn
		for i := range 4 * maxWaiting {
			c := a.attack(t, n, host(i%4))
			go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nX: "+strings.Repeat("x", maxHeader)) }()
			attack = append(attack, c)
		}
		synctest.Wait()
		open := 0
		for _, c := range attack {
			if c.SetReadDeadline(time.Time{}) == nil { // the other end is open
				open++
			}
		}
		assert.Equal(t, maxWaiting, open)
		assert.EqualValues(t, 1, b.member.connected.Load(), "it still hears")
		c := n.addReplica(t)
		c.start(t, a.address)
		eventually(t, func() bool { return c.member.connected.Load() == 1 }, "connected")
	})
}
