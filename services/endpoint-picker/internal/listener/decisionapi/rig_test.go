package decisionapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePool places requests on its endpoints in turns, and records what it sees. Its leases are real.
type fakePool struct {
	endpoints []*endpoint.Endpoint
	refuse    *request.Refusal // for all requests
	change    func(r *request.PickResult)
	admit     func(ctx context.Context) *request.Refusal

	mu       sync.Mutex
	next     int
	incoming []api.Incoming
	records  []request.Record // of finished requests
	late     []bool
	signals  []request.HealthSignal
}

func newFakePool() *fakePool {
	p := &fakePool{change: func(*request.PickResult) {}, admit: func(context.Context) *request.Refusal { return nil }}
	for _, address := range []string{"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.4:8000"} {
		id := endpoint.Identity{Namespace: "ns", Pod: "model", Address: netip.MustParseAddrPort(address)}
		p.endpoints = append(p.endpoints, endpoint.New(endpoint.Description{Identity: id}, time.Now(), nil))
	}
	return p
}

func (*fakePool) OnRequestStart() {}

func (p *fakePool) PlaceRequest(ctx context.Context, in *request.PickInput) (request.PickResult, *request.Refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen, result := in.Incoming, request.PickResult{}
	seen.Body = []byte(string(seen.Body))
	p.incoming, p.late = append(p.incoming, seen), append(p.late, in.LateFirst)
	result.PromptTokens = len(seen.Body) / 4
	if p.refuse != nil {
		return result, p.refuse
	}
	if refusal := p.admitUnlocked(ctx); refusal != nil {
		return result, refusal
	}
	all, first := p.endpoints, p.next%len(p.endpoints)
	p.next++
	result.Endpoint = all[first]
	lease := result.Endpoint.Acquire()
	result.Placements[request.Decode], result.Pending = lease, &fakePick{pool: p, lease: lease}
	for i := range min(len(all), in.RankingSize) {
		score := request.Score{Endpoint: all[(first+i)%len(all)], Total: float64(-i), Wait: 0.5, Matched: 16}
		result.Ranking = append(result.Ranking, score)
	}
	p.change(&result)
	return result, nil
}

// admitUnlocked waits as the test wants, without the lock.
func (p *fakePool) admitUnlocked(ctx context.Context) *request.Refusal {
	p.mu.Unlock()
	defer p.mu.Lock()
	return p.admit(ctx)
}

func (p *fakePool) OnRequestEnd(r *request.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = append(p.records, *r)
}

// inFlight returns the requests on all endpoints.
func (p *fakePool) inFlight() int64 {
	total := int64(0)
	for _, e := range p.endpoints {
		total += e.StatsAt(time.Now()).InFlight
	}
	return total
}

// last returns the record of the request that finished last.
func (p *fakePool) last() request.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.records[len(p.records)-1]
}

// FindTitle knows the pool as ns/pool.
func (p *fakePool) FindTitle(title string) request.Pool {
	if title == "ns/pool" {
		return p
	}
	return nil
}

func (p *fakePool) FindHost(string) request.Pool { return p }

// fakePick is the pick of one request.
type fakePick struct {
	pool   *fakePool
	lease  *endpoint.Lease
	record *request.Record
}

func (p *fakePick) CommitPick(r *request.Record) request.ResponseObserver {
	p.record = r
	return p
}

func (*fakePick) DiscardPick()                       {}
func (*fakePick) ObserveAnswer()                     {}
func (*fakePick) ObserveContent()                    {}
func (*fakePick) ObserveAttempt(string, int, string) {}

func (p *fakePick) ObserveHealth(h request.HealthReport) time.Time {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	p.pool.signals = append(p.pool.signals, h.Signal)
	return time.Time{}
}

func (p *fakePick) ObserveResponder() {
	for _, e := range p.pool.endpoints {
		if p.record.HasMoved() && e.Address() == p.record.Served {
			p.lease.MoveTo(e, time.Now())
		}
	}
}

// results counts what becomes of picks.
type results struct {
	mu     sync.Mutex
	counts map[string]int
}

func (r *results) ObserveDecision(result string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[result]++
}

func (r *results) of(result string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[result]
}

// rig is a decision API in front of a pool.
type rig struct {
	*Server

	t       testing.TB
	pool    *fakePool
	ledger  *limits.Ledger
	results *results
}

func newRig(t testing.TB, changes ...func(o *Options)) *rig {
	t.Helper()
	return newLimitedRig(t, limits.Limits{Streams: 100, Bytes: 16 << 20}, changes...)
}

// newLimitedRig is newRig with limits for all clients.
func newLimitedRig(t testing.TB, l limits.Limits, changes ...func(o *Options)) *rig {
	t.Helper()
	o := Options{
		Options: request.Options{Now: time.Now, Wanted: &request.WantedHeaders{}}, Flag: "flag", MaxBody: 1 << 20, Timeout: time.Minute, BodyTimeout: 10 * time.Second,
	}
	for _, change := range changes {
		change(&o)
	}
	r := &rig{t: t, pool: newFakePool(), ledger: limits.NewLedger(l), results: &results{counts: map[string]int{}}}
	r.Server = New(Params{Options: o, Log: zap.NewNop(), Pools: r.pool, Ledger: r.ledger, Observer: r.results})
	t.Cleanup(func() {
		r.Server.Close()
		r.assertNothingHeld()
	})
	return r
}

// assertNothingHeld expects that nothing counts for any client, and that the clients of the tests have no account.
func (r *rig) assertNothingHeld() {
	r.t.Helper()
	assert.Zero(r.t, r.Server.PickStats().Open)
	for _, resource := range []limits.Resource{limits.Streams, limits.Bytes, limits.Parked} {
		assert.Zero(r.t, r.ledger.TotalUse(resource))
	}
	for _, client := range []string{"192.0.2.1", "192.0.2.2", "127.0.0.1"} {
		first := r.ledger.OpenAccount(netip.MustParseAddr(client))
		first.Close()
		second := r.ledger.OpenAccount(netip.MustParseAddr(client))
		second.Close()
		assert.NotSame(r.t, first, second, "somebody has the account of %s", client)
	}
}

// call makes a call, and returns the status and the body of the answer.
func (r *rig) call(path, body string, headers ...string) (status int, answer string) {
	q := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	return r.serve(q)
}

func (r *rig) serve(q *http.Request) (status int, answer string) {
	w := httptest.NewRecorder()
	r.ServeHTTP(w, q)
	text, err := io.ReadAll(w.Body)
	require.NoError(r.t, err)
	return w.Code, string(text)
}

// pick picks, and returns the answer.
func (r *rig) pick(query, body string, headers ...string) Answer {
	r.t.Helper()
	status, text := r.call(PathPick+query, body, headers...)
	require.Equal(r.t, http.StatusOK, status, text)
	var a Answer
	require.NoError(r.t, json.Unmarshal([]byte(text), &a))
	return a
}

// report reports an outcome, with further fields, and returns the status.
func (r *rig) report(id, event, fields string) int {
	status, _ := r.call(PathOutcome, `{"id":"`+id+`","event":"`+event+`"`+fields+`}`)
	return status
}

// reportAll reports outcomes, each with further fields.
func (r *rig) reportAll(id string, reports [][2]string) {
	r.t.Helper()
	for _, one := range reports {
		require.Equal(r.t, http.StatusNoContent, r.report(id, one[0], one[1]))
	}
}

// wrongOf returns the field and the message of an error.
func wrongOf(t testing.TB, answer string) (field, message string) {
	t.Helper()
	var e struct{ Error errorObject }
	require.NoError(t, json.Unmarshal([]byte(answer), &e), answer)
	return e.Error.Field, e.Error.Message
}
