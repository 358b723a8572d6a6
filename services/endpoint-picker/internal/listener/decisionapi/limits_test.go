package decisionapi

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/memnet"
	"fairlead.dev/services/endpoint-picker/internal/limits"
)

// Clients, by the addresses of their connections.
const (
	greedy = "192.0.2.1:1000"
	good   = "192.0.2.2:1000"
)

// callFrom makes a call of a client.
func (r *rig) callFrom(client, path, body string) (status int, answer string) {
	q := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	q.RemoteAddr = client
	return r.serve(q)
}

// pickAll picks for a client until it is refused, and returns the ids. It gives each pick time to count for the fair level.
func (r *rig) pickAll(client, body string) (ids []string) {
	for {
		status, answer := r.callFrom(client, PathPick, body)
		if status != http.StatusOK {
			assert.Equal(r.t, http.StatusTooManyRequests, status, answer)
			return ids
		}
		ids = append(ids, answer[7:39])
		time.Sleep(limits.LevelAge)
	}
}

func completedBody(id string) string { return `{"id":"` + id + `","event":"completed"}` }

// TestLimits_Fair has a client that takes all. Another one gets its share, and each outcome makes room.
func TestLimits_Fair(t *testing.T) {
	t.Parallel()
	large := `{"body":"` + strings.Repeat("a", 100<<10) + `"}`
	tests := []struct {
		name      string
		limits    limits.Limits
		body      string
		want      int // picks of the first client
		wantOther int // picks of the second one
	}{
		{name: "open picks", limits: limits.Limits{Streams: 8}, body: "{}", want: 8, wantOther: 4},
		{name: "bytes of open picks", limits: limits.Limits{Bytes: 200 << 10}, body: "{}", want: 97, wantOther: 48},
		{name: "bytes of prompts", limits: limits.Limits{Bytes: 2 << 20}, body: large, want: 127, wantOther: 63},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newLimitedRig(t, tt.limits)
				ids := r.pickAll(greedy, tt.body)
				assert.Equal(t, tt.want, len(ids)) //nolint:testifylint // the ids say nothing
				status, _ := r.callFrom("192.0.2.1:1001", PathPick, tt.body)
				assert.Equal(t, http.StatusTooManyRequests, status, "another port is the same client")
				assert.EqualValues(t, len(ids), r.pool.inFlight(), "a refused pick holds no place")

				assert.Equal(t, tt.wantOther, len(r.pickAll(good, tt.body))) //nolint:testifylint // the ids say nothing
				stats := r.PickStats()
				assert.EqualValues(t, 3, stats.RefusedPicks+stats.RefusedBytes)

				for i, id := range ids { // the client is far beyond its share
					status, answer := r.callFrom(greedy, PathOutcome, completedBody(id))
					require.Equal(t, http.StatusNoContent, status, answer)
					if i == len(ids)/4 {
						time.Sleep(limits.LevelAge)
						status, _ = r.callFrom(greedy, PathPick, tt.body)
						assert.Equal(t, http.StatusTooManyRequests, status, "it is still beyond its share")
					}
				}
				time.Sleep(limits.LevelAge)
				assert.NotEmpty(t, r.pickAll(greedy, tt.body))
				r.Server.Close()
				r.assertNothingHeld()
			})
		})
	}
}

// TestLimits_OneShareForAllListeners has clients that also use the listener for gateways.
func TestLimits_OneShareForAllListeners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newLimitedRig(t, limits.Limits{Streams: 8, Bytes: 1 << 20})
		streams, bytes := r.ledger.OpenAccount(netip.MustParseAddr("192.0.2.1")), r.ledger.OpenAccount(netip.MustParseAddr("192.0.2.3"))
		streams.AddUse(limits.Streams, 6)
		bytes.AddUse(limits.Bytes, 1<<20)
		assert.Len(t, r.pickAll(greedy, "{}"), 2)
		time.Sleep(limits.LevelAge)
		assert.Empty(t, r.pickAll("192.0.2.3:1000", "{}"))
		assert.NotEmpty(t, r.pickAll(good, "{}"))
		assert.False(t, streams.TryAddUse(limits.Streams, 1), "and the gateway gets no more for what the picks hold")
		r.Server.Close()
		assert.EqualValues(t, 6, r.ledger.TotalUse(limits.Streams))
		streams.AddUse(limits.Streams, -6)
		bytes.AddUse(limits.Bytes, -1<<20)
		streams.Close()
		bytes.Close()
	})
}

// TestLimits_PickOutlivesItsConnection has a client that connects for each call, as some load balancers do.
func TestLimits_PickOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l, n := r.listen(t)
		status, answer := callAt(t, n, greedy, PathPick, "{}")
		require.Equal(t, http.StatusOK, status)
		awaitClosed(t, l)
		assert.EqualValues(t, 1, r.ledger.TotalUse(limits.Streams))
		account := r.ledger.OpenAccount(netip.MustParseAddrPort(greedy).Addr())
		defer account.Close()
		assert.EqualValues(t, 1, account.CurrentUse(limits.Streams))
		assert.Equal(t, r.ledger.TotalUse(limits.Parked), account.CurrentUse(limits.Bytes), "the pick is all that counts")
		assert.Positive(t, account.CurrentUse(limits.Bytes))
		status, _ = callAt(t, n, greedy, PathOutcome, completedBody(answer[7:39]))
		assert.Equal(t, http.StatusNoContent, status)
		awaitClosed(t, l)
		assert.Zero(t, account.CurrentUse(limits.Bytes))
	})
}

// TestLimits_OutcomesBeyondTheShare has a client that has taken all when another one takes its share. It can pick no more, but it
// can report outcomes, each on a new connection. Then it opens connections without end.
func TestLimits_OutcomesBeyondTheShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newLimitedRig(t, limits.Limits{Bytes: 1 << 20}, func(o *Options) { o.Timeout = time.Hour })
		l, n := r.listen(t)
		fill := func(client string) (ids []string) {
			for {
				status, answer := callAt(t, n, client, PathPick, "{}")
				awaitClosed(t, l)
				if status != http.StatusOK {
					assert.Equal(t, http.StatusTooManyRequests, status)
					return ids
				}
				ids = append(ids, answer[7:39])
			}
		}
		ids := fill(greedy)
		time.Sleep(limits.LevelAge)
		assert.NotEmpty(t, fill(good))
		account := r.ledger.OpenAccount(netip.MustParseAddrPort(greedy).Addr())
		defer account.Close()
		require.True(t, account.IsBeyondShare(limits.Bytes))
		for _, id := range ids[:len(ids)/8] {
			status, _ := callAt(t, n, greedy, PathOutcome, completedBody(id))
			require.Equal(t, http.StatusNoContent, status)
			awaitClosed(t, l) // the reserve is for two connections
		}
		require.True(t, account.IsBeyondShare(limits.Bytes))

		var conns []net.Conn
		for range 20 {
			c := connect(t, n, greedy)
			_, _ = io.WriteString(c, "POST /v1/outcome HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 1<<10))
			conns = append(conns, c)
		}
		synctest.Wait()
		assert.Greater(t, l.PickStats().RefusedConnections, int64(10))
		status, _ := callAt(t, n, good, PathPick, "{}")
		assert.NotZero(t, status, "another client has a connection")
		for _, c := range conns {
			require.NoError(t, c.Close())
		}
	})
}

// callAt makes a call on a connection of its own, from an address. The status is 0 if there is no answer.
func callAt(t *testing.T, memory *memnet.Listener, client, path, body string) (status int, answer string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: memory.From(netip.MustParseAddrPort(client))}}
	response, err := c.Post("http://memory"+path, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

// awaitClosed waits until the listener has no connection.
func awaitClosed(t *testing.T, l *Server) {
	t.Helper()
	require.Eventually(t, func() bool { return l.OpenConns() == 0 }, kubetest.Patience, time.Millisecond)
}
