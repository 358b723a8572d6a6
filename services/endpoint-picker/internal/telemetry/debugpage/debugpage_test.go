package debugpage

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/pkg/golden"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return noon.Add(d) }

// newPage returns a page of two endpoints, one of which is stale and ejected, and of two picks.
func newPage(t *testing.T) *Page {
	t.Helper()
	estimator := estimate.New(prefixindex.NewMemoryBudget(1 << 20))
	describe := func(pod, address string, rank int) endpoint.Description {
		return endpoint.Description{
			Identity: endpoint.Identity{Namespace: "ns", Pod: pod, Address: netip.MustParseAddrPort(address)}, Rank: rank,
			Labels: map[string]string{"app": "vllm", "role": "<script>"},
		}
	}
	a, b := estimator.NewEndpoint(describe("a", "10.0.0.1:8000", 0), noon), estimator.NewEndpoint(describe("b", "[2001:db8::1]:8001", 1), noon)
	a.RecordSample(a.StartScrape(after(2500*time.Millisecond)), endpoint.Gauges{Waiting: 1, Running: 4, KVUsage: 0.25, Blocks: 1000})
	estimator.RecordPlacement(&estimate.Prompt{Chain: &prefixindex.Chain{Hashes: []uint64{1, 2, 3}}}, a, &estimate.Expectation{})
	(&estimate.Prompt{Tokens: 200}).PlaceOn(a, noon, estimate.Streamed)
	b.RecordFailure(b.StartScrape(noon))
	b.Health().ExplainEjection("5 failed requests since its last answer")
	b.Health().EjectUntil("responses", noon.Add(time.Hour))
	picks := NewPicks(2)
	for i := range 2 {
		picks.ObserveRequest(&request.Record{Outcome: request.Refused, StartTime: noon, EndTime: noon, RequestID: fmt.Sprint("forgotten ", i)})
	}
	picks.ObserveRequest(&request.Record{Outcome: request.Unpicked, StartTime: noon, EndTime: noon})
	picks.ObserveRequest(&request.Record{PickRecord: request.PickRecord{Model: "chat", Target: "chat"}, Outcome: request.Refused, Status: 503, Reason: "no ready endpoints in the pool",
		StartTime: noon, EndTime: noon})
	picks.ObserveRequest(&request.Record{
		PickRecord: request.PickRecord{
			Model: "chat", Target: "chat-v2", Fairness: "tenant", Priority: 1,
			Endpoint:     a,
			PickDuration: 25 * time.Microsecond,
			PromptTokens: 800, MatchedTokens: 48,
			Scores: []request.Score{{Endpoint: a, Total: 1, Wait: 0.025, Matched: 48}, {Endpoint: b, Total: 0.5, Wait: 0.05}},
		},
		Outcome: request.Completed, RequestID: "<b>r-1</b>", Path: "/v1/chat/completions", Served: "10.0.0.9:8000", Status: 200, StartTime: after(time.Second), ArrivalTime: after(time.Second),
		FirstContent: after(1200 * time.Millisecond), EndTime: after(2 * time.Second),
	})
	snapshot := func() *pool.Snapshot { return &pool.Snapshot{Endpoints: []*endpoint.Endpoint{a, b}} }
	return &Page{
		Log: zap.NewNop(), Version: "v1.2.3", StaleAfter: 2 * time.Second, KeepsPicks: picks.IsEnabled(),
		Pools: func() []Pool {
			return []Pool{{Title: "ns/chat", Snapshot: snapshot, Estimator: estimator, Picks: picks}}
		},
		Clock: clocktesting.NewFakePassiveClock(after(3 * time.Second)),
	}
}

func get(t *testing.T, p *Page, path, accept string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, h := range p.Handlers() {
		mux.Handle(pattern, h)
	}
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	return w
}

func TestPage(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, path, accept, wantType, wantBody string }{
		{name: "a program", path: "/debug/pools", accept: "*/*", wantType: "application/json", wantBody: "testdata/pools.json"},
		{name: "a browser", path: "/debug/pools", accept: "text/html,application/xhtml+xml,*/*;q=0.8", wantType: "text/html; charset=utf-8", wantBody: "testdata/pools.html"},
		{name: "by name", path: "/debug/pools.html", wantType: "text/html; charset=utf-8", wantBody: "testdata/pools.html"},
		{name: "by the other name", path: "/debug/pools.json", accept: "text/html", wantType: "application/json", wantBody: "testdata/pools.json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := get(t, newPage(t), tt.path, tt.accept)
			assert.Equal(t, tt.wantType, w.Header().Get("Content-Type"))
			golden.File(t, tt.wantBody, w.Body.Bytes())
		})
	}
}

func TestWhatClientsSayIsText(t *testing.T) {
	t.Parallel()
	w := get(t, newPage(t), "/debug/pools.html", "")
	assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	body := w.Body.String()
	assert.NotContains(t, body, "<script>")
	assert.Contains(t, body, "&lt;b&gt;r-1&lt;/b&gt;")
}

func TestPageWithoutPool(t *testing.T) {
	t.Parallel()
	snapshot := func() *pool.Snapshot { return &pool.Snapshot{Err: pool.ErrNoPool} }
	p := &Page{
		Log: zap.NewNop(), Clock: clocktesting.NewFakePassiveClock(noon),
		Pools: func() []Pool {
			return []Pool{{Title: "ns/chat", Snapshot: snapshot, Estimator: estimate.New(prefixindex.NewMemoryBudget(1 << 20)), Picks: NewPicks(0)}}
		},
	}
	assert.Contains(t, get(t, p, "/debug/pools", "").Body.String(), `"problem": "the InferencePool does not exist"`)
	assert.Contains(t, get(t, p, "/debug/pools.html", "").Body.String(), `<p class="problem bad">the InferencePool does not exist</p>`)
}

func TestEmptyTablesSayWhy(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		picks     int
		wantPicks string
	}{
		{name: "picks are not kept", wantPicks: "None are kept. To keep the last 64, set <code>--debug-picks=64</code>"},
		{name: "no pick yet", picks: 1, wantPicks: "No request yet."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			snapshot := func() *pool.Snapshot { return &pool.Snapshot{} }
			p := &Page{
				Log: zap.NewNop(), KeepsPicks: tt.picks > 0, Clock: clocktesting.NewFakePassiveClock(noon),
				Pools: func() []Pool {
					return []Pool{{
						Title: "ns/chat", Snapshot: snapshot, Estimator: estimate.New(prefixindex.NewMemoryBudget(1 << 20)), Picks: NewPicks(tt.picks),
					}}
				},
			}
			body := get(t, p, "/debug/pools.html", "").Body.String()
			assert.Contains(t, body, "No endpoints.")
			assert.Contains(t, body, tt.wantPicks)
		})
	}
}

func TestPicksAreTheLastOnes(t *testing.T) {
	t.Parallel()
	p := NewPicks(3)
	assert.Empty(t, p.lastPicks())
	for i := range 5 {
		p.ObserveRequest(&request.Record{Outcome: request.Refused, Status: i})
	}
	var got []int
	for _, r := range p.lastPicks() {
		got = append(got, r.Status)
	}
	assert.Equal(t, []int{4, 3, 2}, got)
}

func TestPicksThatNobodyWantsCostNothing(t *testing.T) {
	p, r := NewPicks(0), &request.Record{PickRecord: request.PickRecord{Scores: make([]request.Score, 10)}, Outcome: request.Refused}
	assert.False(t, p.IsEnabled())
	assert.Zero(t, testing.AllocsPerRun(100, func() { p.ObserveRequest(r) }))
	assert.Empty(t, p.lastPicks())
}

func TestPicksAreCopies(t *testing.T) {
	t.Parallel()
	p := NewPicks(1)
	r := &request.Record{PickRecord: request.PickRecord{Scores: []request.Score{{Total: 1}}, Model: strings.Repeat("x", 999)}, Outcome: request.Refused}
	p.ObserveRequest(r)
	r.Scores[0].Total = 2
	assert.Equal(t, 1.0, p.lastPicks()[0].Scores[0].Total)
	assert.Len(t, p.lastPicks()[0].Model, maxLength)
}

func TestPicksOfManyAtOnce(t *testing.T) {
	t.Parallel()
	p := NewPicks(8)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 500 {
				p.ObserveRequest(&request.Record{Outcome: request.Refused, Status: i})
				assert.LessOrEqual(t, len(p.lastPicks()), 8)
			}
		})
	}
	group.Wait()
	assert.Len(t, p.lastPicks(), 8)
}
