// Package debugpage shows the current state of the picker, as JSON and as a page: the pool, its endpoints with their load,
// the index of prefixes, the learned speeds, and the last picks with the scores of all candidates. It contains no text of
// prompts and answers.
package debugpage

import (
	"cmp"
	_ "embed"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/debugpage"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// maxLength limits strings that clients choose.
const maxLength = 256

//go:embed page.html
var pageText string

var pageTemplate = debugpage.ParseTemplate(pageText)

// A Pool provides the state of one pool.
type Pool struct {
	Title     string // namespace/name, the selector of the endpoints, or "servers"
	Snapshot  func() *pool.Snapshot
	Estimator *estimate.Estimator
	Picks     *Picks
}

// Page shows the pools.
type Page struct {
	Log        *zap.Logger
	Version    string
	Pools      func() []Pool
	StaleAfter time.Duration // duration of scrape failures after which an endpoint's values are stale
	KeepsPicks bool          // Picks are enabled
	Clock      clock.PassiveClock
}

// Handlers returns the handlers by pattern of http.ServeMux.
func (p *Page) Handlers() map[string]http.Handler {
	page := debugpage.Page{Log: p.Log, Path: "/debug/pools", Template: pageTemplate, Indent: "  ",
		State: func() any { return p.pageState() }}
	return page.Handlers()
}

// state is the content of the page.
type state struct {
	Now     time.Time  `json:"now"`
	Version string     `json:"version"`
	Pools   []poolPage `json:"pools"`

	KeepsPicks bool `json:"-"` // for the page, if no pick is shown
}

type poolPage struct {
	Name      string            `json:"name"`
	Problem   string            `json:"problem,omitempty"` // why requests cannot be placed
	Costs     *estimate.Costs   `json:"speed"`
	Prefixes  prefixindex.Stats `json:"prefixIndex"`
	Endpoints []endpointLine    `json:"endpoints"` // ready endpoints, including ejected ones
	Picks     []pickLine        `json:"lastPicks,omitempty"`
	Totals    totals            `json:"-"`
}

// totals are the sums over all endpoints, for the page.
type totals struct {
	Ready            int // neither stale nor ejected
	Running, Waiting float64
	InFlight, Picks  int64
	KVUsage          float64 // mean
}

type endpointLine struct {
	Address  string                `json:"address"`
	Pod      string                `json:"pod"`
	Rank     int                   `json:"rank"`
	Labels   map[string]string     `json:"labels,omitempty"`
	Stale    bool                  `json:"stale,omitempty"` // its values are too old to use
	Ejected  bool                  `json:"ejected,omitempty"`
	Breaker  breaker               `json:"breaker"`
	Age      float64               `json:"sampleAgeSeconds"`
	Failures int64                 `json:"scrapeFailures"`
	Waiting  float64               `json:"waiting"`
	Running  float64               `json:"running"`
	KVUsage  float64               `json:"kvCacheUsage"`
	InFlight int64                 `json:"requestsInFlight"` // of this picker
	Tokens   int64                 `json:"promptTokensOwed"`
	Picks    int64                 `json:"picks"`
	Factor   float64               `json:"waitFactor"`
	Blocks   int                   `json:"cacheBlocksHeld"` // estimate of the index
	Capacity int                   `json:"cacheBlocks"`     // on its page, or less if it has shown to keep less
	Prefix   endpoint.PrefixTokens `json:"prefixTokens"`
}

// A breaker is the ejection of an endpoint as the state of a circuit breaker: closed while it gets requests, open while it gets none, and
// half-open while one request at a time probes it.
type breaker struct {
	State  string     `json:"state"`
	Until  *time.Time `json:"until,omitempty"` // of an open one: when it gets a probe
	Cause  string     `json:"cause,omitempty"` // as in metrics
	Reason string     `json:"reason,omitempty"`
}

func breakerOf(h *endpoint.Health, now time.Time) breaker {
	if !h.IsEjected() {
		return breaker{State: "closed"}
	}
	b := breaker{State: "half-open"}
	b.Cause, b.Reason = h.LastEjection()
	if until := h.EjectedUntil(); now.Before(until) {
		b.State, b.Until = "open", &until
	}
	return b
}

type pickLine struct {
	Time      time.Time   `json:"time"`
	RequestID string      `json:"requestID,omitempty"`
	Model     string      `json:"model,omitempty"`
	Target    string      `json:"target,omitempty"`
	Fairness  string      `json:"fairness,omitempty"`
	Priority  int         `json:"priority,omitempty"`
	Endpoint  string      `json:"endpoint,omitempty"`
	Pod       string      `json:"pod,omitempty"`
	Served    string      `json:"served,omitempty"`
	Outcome   string      `json:"outcome"`
	Status    int         `json:"status,omitempty"`
	Reason    string      `json:"reason,omitempty"`
	Prompt    int         `json:"promptTokens,omitempty"`
	Matched   int         `json:"matchedTokens,omitempty"`
	Pick      float64     `json:"pickSeconds"`
	First     float64     `json:"firstTokenSeconds,omitempty"`
	Duration  float64     `json:"durationSeconds"`
	Scores    []scoreLine `json:"scores,omitempty"`
}

type scoreLine struct {
	Endpoint string  `json:"endpoint"`
	Pod      string  `json:"pod"`
	Total    float64 `json:"score"`
	Wait     float64 `json:"waitSeconds"`
	Matched  int     `json:"matchedTokens"`
	Picked   bool    `json:"picked,omitempty"`
}

// InUse reports whether the endpoint is neither stale nor ejected.
func (e endpointLine) InUse() bool { return !e.Stale && !e.Ejected }

func sumEndpoints(endpoints []endpointLine) totals {
	var t totals
	for _, e := range endpoints {
		if e.InUse() {
			t.Ready++
		}
		t.Running += e.Running
		t.Waiting += e.Waiting
		t.InFlight += e.InFlight
		t.Picks += e.Picks
		t.KVUsage += e.KVUsage / float64(len(endpoints))
	}
	return t
}

func (p *Page) pageState() state {
	shown := state{Now: p.Clock.Now(), Version: p.Version, Pools: []poolPage{}, KeepsPicks: p.KeepsPicks}
	for _, member := range p.Pools() {
		shown.Pools = append(shown.Pools, p.poolState(member, shown.Now))
	}
	return shown
}

func (p *Page) poolState(member Pool, now time.Time) poolPage {
	snapshot := member.Snapshot()
	shown := poolPage{
		Name:      member.Title,
		Costs:     member.Estimator.Costs(),
		Prefixes:  member.Estimator.IndexStats(),
		Endpoints: make([]endpointLine, 0, len(snapshot.Endpoints)),
	}
	if snapshot.Err != nil {
		shown.Problem = snapshot.Err.Error()
	}
	for _, e := range snapshot.Endpoints {
		shown.Endpoints = append(shown.Endpoints, p.endpointState(e, member.Estimator, now))
	}
	slices.SortFunc(shown.Endpoints, func(a, b endpointLine) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Address, b.Address))
	})
	for _, r := range member.Picks.lastPicks() {
		shown.Picks = append(shown.Picks, toPickLine(r))
	}
	shown.Totals = sumEndpoints(shown.Endpoints)
	return shown
}

func (p *Page) endpointState(e *endpoint.Endpoint, x *estimate.Estimator, now time.Time) endpointLine {
	stats, described := e.StatsAt(now), e.Description()
	blocks, capacity := x.CacheSize(e)
	return endpointLine{
		Address: stats.Address, Pod: e.Identity().PodName(), Rank: described.Rank, Labels: described.Labels,
		Stale: stats.Stale(p.StaleAfter), Ejected: stats.Ejected, Breaker: breakerOf(e.Health(), now),
		Age: stats.SampleAge.Seconds(), Failures: stats.ScrapeFailures,
		Waiting: stats.Gauges.Waiting, Running: stats.Gauges.Running, KVUsage: stats.Gauges.KVUsage,
		InFlight: stats.InFlight, Tokens: stats.Backlog, Picks: stats.Picks, Factor: stats.Slowdown,
		Blocks: blocks, Capacity: capacity, Prefix: stats.Prefix,
	}
}

func toPickLine(r *request.Record) pickLine {
	l := pickLine{
		Time: r.StartTime, RequestID: r.RequestID, Model: r.Model, Target: r.Target, Fairness: r.Fairness, Priority: r.Priority,
		Outcome: string(r.Outcome), Status: r.Status, Reason: r.Reason, Prompt: r.PromptTokens, Matched: r.MatchedTokens,
		Pick: r.PickDuration.Seconds(), Duration: r.EndTime.Sub(r.StartTime).Seconds(),
	}
	if r.Endpoint != nil {
		l.Endpoint, l.Pod = r.Endpoint.Address(), r.Endpoint.Identity().PodName()
	}
	if r.HasMoved() {
		l.Served = r.Served
	}
	if !r.FirstContent.IsZero() {
		l.First = r.FirstContent.Sub(r.StartTime).Seconds()
	}
	for _, s := range r.Scores {
		l.Scores = append(l.Scores, scoreLine{
			Endpoint: s.Endpoint.Address(), Pod: s.Endpoint.Identity().PodName(), Total: s.Total, Wait: s.Wait, Matched: s.Matched,
			Picked: s.Endpoint == r.Endpoint,
		})
	}
	return l
}
