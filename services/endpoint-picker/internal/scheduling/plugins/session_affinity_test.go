package plugins

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

const byID = "{strategy: session_id}"

func tokenOf(name string) string { return base64.StdEncoding.EncodeToString([]byte(name)) }

// ranks returns candidates on the ports 8000, 8001 and so on of the pod ns/a, and one on ns/b.
func ranks(n int) []candidate {
	candidates := busy(make([]load, n+1)...)
	for i := range candidates {
		candidates[i].Server = &server{Name: "ns/a", Address: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(8000+i))}
	}
	candidates[n].Server = &server{Name: "ns/b", Address: netip.MustParseAddrPort("10.0.0.2:8000")}
	return candidates
}

func TestSessionTokens(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		token string
		give  []candidate
		want  []int // what the filter keeps
	}{
		{name: "no token", give: ranks(1), want: []int{0, 1}},
		{name: "pod and port", token: tokenOf("ns/a:8000"), give: ranks(1), want: []int{0}},
		{name: "one of several ports", token: tokenOf("ns/a:8001"), give: ranks(3), want: []int{1}},
		{name: "a port that has gone", token: tokenOf("ns/a:8009"), give: ranks(3), want: []int{0, 1, 2, 3}},
		{name: "a pod that has gone", token: tokenOf("ns/z:8000"), give: ranks(1), want: []int{0, 1}},
		{name: "old form, one port", token: tokenOf("ns/b"), give: ranks(3), want: []int{3}},
		{name: "old form, several ports", token: tokenOf("ns/a"), give: ranks(3), want: []int{0, 1, 2}},
		{name: "not base64", token: "!", give: ranks(1), want: []int{0, 1}},
		{name: "too long", token: tokenOf(strings.Repeat("a", maxToken)), give: ranks(1), want: []int{0, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := &pickRequest{Now: noon, Headers: api.Headers{{Name: "x-session-token", Value: tt.token}}}
			assert.Equal(t, tt.want, indexes(filter(t, "session-affinity-filter", "").Filter(r, append([]candidate{}, tt.give...))))
			scores := scoresOf(scorer(t, "session-affinity-scorer", ""), r, tt.give)
			for i, score := range scores {
				kept := len(tt.want) < len(tt.give) && assert.ObjectsAreEqual(true, contains(tt.want, i))
				assert.Equal(t, kept, score == 1, "scorer and filter agree on %d", i)
			}
		})
	}
}

func contains(list []int, n int) bool {
	for _, m := range list {
		if m == n {
			return true
		}
	}
	return false
}

func TestSessionsAreBoundToOneRank(t *testing.T) {
	t.Parallel()
	for name, parameters := range map[string]string{"token": "", "identifier": byID} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := build[*sessionAffinityFilter](t, "session-affinity-filter", parameters)
			candidates := ranks(3)
			r := &pickRequest{Now: noon, Headers: api.Headers{{Name: "x-session-id", Value: "chat"}}}
			header, value := f.sessions.Bind(r, candidates[1].Server)
			r.Headers = append(r.Headers, api.Header{Name: header, Value: value})
			assert.Equal(t, []int{1}, indexes(f.Filter(r, append([]candidate{}, candidates...))))
		})
	}
}

// FuzzTokens checks that whatever a client sends is no token, or means at most one name and port.
func FuzzTokens(f *testing.F) {
	f.Add("bnMvYTo4MDAw", "ns/a", uint16(8000))
	f.Add("bnMvYQ==", "ns/a:1", uint16(1))
	f.Fuzz(func(t *testing.T, token, name string, port uint16) {
		var buffer sessionBuffer
		if bound, ok := decodeToken(token, &buffer); ok {
			plain, err := base64.StdEncoding.DecodeString(token)
			require.NoError(t, err)
			if bound.port > 0 {
				require.Equal(t, string(plain[:len(bound.name)]), string(bound.name))
			} else {
				require.Equal(t, string(plain), string(bound.name))
			}
		}
		if port == 0 || len(name) > 512 {
			return
		}
		s := &server{Name: name, Address: netip.AddrPortFrom(netip.IPv4Unspecified(), port)}
		_, value := newSessions(sessionSettings{strategy: sessionInHeader, header: "h"}).Bind(&pickRequest{}, s)
		bound, ok := decodeToken(value, &buffer)
		require.True(t, ok)
		require.True(t, bound.matches(s), "its own token")
	})
}

func TestSessionIdentifiers(t *testing.T) {
	t.Parallel()
	sessions := newSessions(sessionSettings{strategy: sessionByID, sources: []sessionIDHeader{{header: "x-chat"}, {header: cookieHeader, cookie: "chat"}}})
	tests := []struct {
		name string
		give api.Headers
		want string
	}{
		{name: "no header"},
		{name: "cookie", give: api.Headers{{Name: "cookie", Value: "a=b; chat=7; c=d"}}, want: "7"},
		{name: "the first source counts", give: api.Headers{{Name: "cookie", Value: "chat=7"}, {Name: "x-chat", Value: "8"}}, want: "8"},
		{name: "another cookie", give: api.Headers{{Name: "cookie", Value: "chats=7; chat"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, sessions.sessionID(tt.give))
		})
	}
}

// install builds a session affinity filter after a previous configuration.
func install(t *testing.T, parameters string, previous *Parts) *Parts {
	t.Helper()
	document, err := strictyaml.Parse([]byte(parameters), strictyaml.Options{MaxBytes: 1 << 10})
	require.NoError(t, err)
	typed, _ := FindType("session-affinity-filter")
	p := typed.New(Environment{})
	document.Decode(p)
	c := document.Checker("")
	p.Validate(&Check{Checker: c, Plugins: noPlugins{}})
	parts := &Parts{}
	p.(Installer).ApplyTo(&Builder{Checker: c, Reference: c, Parts: parts, Previous: previous})
	require.NoError(t, c.AllProblems())
	require.Len(t, parts.Binders, 1)
	return parts
}

func TestReloadKeepsSessionsWithTheSameParameters(t *testing.T) {
	t.Parallel()
	first := install(t, byID, nil)
	for name, tt := range map[string]struct {
		parameters string
		same       bool
	}{
		"same":              {parameters: byID, same: true},
		"same, written out": {parameters: "{strategy: session_id, sessionIdConfig: {evictionTtlSeconds: 300}}", same: true},
		"another time":      {parameters: "{strategy: session_id, sessionIdConfig: {evictionTtlSeconds: 301}}"},
		"another interval":  {parameters: "{strategy: session_id, sessionIdConfig: {evictionSweepSeconds: 11}}"},
		"another source":    {parameters: "{strategy: session_id, sessionIdConfig: {sources: [{header: x-chat}]}}"},
		"another strategy":  {parameters: "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := install(t, tt.parameters, first)
			assert.Equal(t, tt.same, first.Sessions == next.Sessions)
			assert.Equal(t, tt.same, next.Binders[0] == scheduling.Binder(first.Sessions))
		})
	}
}

func newTable() *sessionTable { return newSessionTable(time.Minute, time.Second) }

func bound(t *testing.T, table *sessionTable, id string, now time.Time) string {
	t.Helper()
	s, ok := table.findSession(id, now)
	assert.Equal(t, ok, s != sessionServer{})
	return s.name
}

func TestSessionsStayOnTheirEndpoint(t *testing.T) {
	t.Parallel()
	table := newTable()
	assert.Empty(t, bound(t, table, "a", noon))
	table.bindSession("a", sessionServer{"ns/one", 1}, noon)
	table.bindSession("b", sessionServer{"ns/two", 1}, noon)
	assert.Equal(t, "ns/one", bound(t, table, "a", noon.Add(time.Minute)))
	table.bindSession("a", sessionServer{"ns/three", 1}, noon.Add(time.Second))
	assert.Equal(t, "ns/three", bound(t, table, "a", noon.Add(61*time.Second)))
	assert.Equal(t, 2, table.len())
}

func TestUnusedSessionsAreRemoved(t *testing.T) {
	t.Parallel()
	table := newTable()
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	table.bindSession("a", sessionServer{"ns/one", 1}, at(0))
	table.bindSession("b", sessionServer{"ns/one", 1}, at(1))
	table.bindSession("a", sessionServer{"ns/one", 1}, at(2))
	table.bindSession("c", sessionServer{"ns/one", 1}, at(62))
	assert.Equal(t, 2, table.len(), "b expired")
	assert.Equal(t, "ns/one", bound(t, table, "a", at(62)))
	assert.Empty(t, bound(t, table, "a", at(63)), "expired, but not swept yet")
	assert.Equal(t, 1, table.len())
}

func TestSweepIsBounded(t *testing.T) {
	t.Parallel()
	table := newTable()
	const sessions = 3*sweepBatch + 1
	for i := range sessions {
		table.bindSession(fmt.Sprint(i), sessionServer{"ns/one", 1}, noon)
	}
	later := noon.Add(time.Hour)
	for i, want := range []int{sessions + 1 - sweepBatch, sessions + 1 - 2*sweepBatch, 2, 1} {
		table.bindSession("new", sessionServer{"ns/one", 1}, later)
		assert.Equal(t, want, table.len(), "call %d", i)
	}
	table.bindSession("old", sessionServer{"ns/one", 1}, later.Add(-time.Hour))
	table.order.MoveToFront(table.order.Back())
	table.bindSession("new", sessionServer{"ns/one", 1}, later.Add(time.Second-1))
	assert.Equal(t, 2, table.len(), "the next sweep is after the interval")
	table.bindSession("new", sessionServer{"ns/one", 1}, later.Add(time.Second))
	assert.Equal(t, 1, table.len())
}

func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	table := newTable()
	for i := range maxSessions + 10 {
		table.bindSession(fmt.Sprint(i), sessionServer{"ns/one", 1}, noon)
	}
	assert.Equal(t, maxSessions, table.len())
	assert.Empty(t, bound(t, table, "9", noon), "the oldest was removed first")
	assert.Equal(t, "ns/one", bound(t, table, "10", noon))
}

// TestMemoryOfLongIdentifiers checks that clients cannot take memory by long identifiers, or by a short one in a long cookie.
func TestMemoryOfLongIdentifiers(t *testing.T) { // not parallel: it measures the heap
	const sessions, limit = 20_000, 12 << 20
	padding := strings.Repeat("x", 8<<10)
	for name, id := range map[string]func(i int) api.Header{
		"header": func(i int) api.Header { return api.Header{Name: "x-chat", Value: fmt.Sprint(i, padding)} },
		"cookie": func(i int) api.Header {
			return api.Header{Name: "cookie", Value: fmt.Sprintf("a=%s; chat=%d", padding, i)}
		},
	} {
		s := newSessions(sessionSettings{
			strategy: sessionByID, sources: []sessionIDHeader{{header: "x-chat"}, {header: cookieHeader, cookie: "chat"}}, ttl: time.Hour, sweep: time.Second,
		})
		before := heap()
		for i := range sessions {
			s.Bind(&pickRequest{Now: noon, Headers: api.Headers{id(i)}}, &server{Name: fmt.Sprint("ns/pod-", i%8), Address: netip.MustParseAddrPort("10.0.0.1:8000")})
		}
		taken := heap() - before
		assert.Equal(t, sessions, s.table.len())
		assert.Less(t, taken, int64(limit), "%s: %d MiB for %d sessions", name, taken>>20, sessions)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// len returns the number of sessions.
func (t *sessionTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.order.Len()
}
