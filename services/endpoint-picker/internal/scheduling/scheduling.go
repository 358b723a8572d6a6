// Package scheduling decides which of several endpoints takes a request.
//
// The input is a Request and a list of Candidates, both plain values. The output is one of the candidates, or an error with
// the reason why none is suitable. A Profile runs its Filters, then its Scorers, then its Picker. Package plugins has the
// implementations; this package knows none of them.
//
// The package is pure: time and randomness are in the Request, and the same input gives the same choice. Calls share no
// state, except for that of plugins with a memory (Binder). So every stage is an ordinary function that a table test can
// check, and any number of goroutines can share a profile.
package scheduling

import (
	"errors"
	"math"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// Reasons why no endpoint can be picked.
var (
	// ErrNoEndpoints means that the pool has no ready endpoint.
	ErrNoEndpoints = errors.New("no ready endpoints in the pool")
	// ErrNoneInSubset means that no endpoint that the gateway allows is ready in this pool.
	ErrNoneInSubset = errors.New("no ready endpoint in the subset that the gateway allows")
	// ErrFiltered means that a filter kept no candidate.
	ErrFiltered = errors.New("no endpoint fits the request")
	// ErrSaturated means that the pool is saturated and that the request has a negative priority.
	ErrSaturated = errors.New("the pool is saturated, and the request has a negative priority")
	// ErrNoCapacity means that a filter by load kept no candidate.
	ErrNoCapacity = errors.New("no endpoint has room for the request")
)

// A Request contains the properties of a request for the pick of its endpoint.
type Request struct {
	Now     time.Time
	Random  uint64      // decides between equal candidates
	Subset  *Subset     // what the gateway allows; nil allows everything
	Model   string      // requested from the server, possibly an adapter; empty if unknown
	Tokens  int         // of the prompt, approximately
	Prefix  uint64      // hash of the prompt's beginning; 0 without a prompt
	Headers api.Headers // those that plugins requested
}

// Inputs that belong to package endpoint: values that are never changed.
type (
	// A Server contains the properties of an endpoint other than its load.
	Server = endpoint.Server
	// A Page contains optional values of a metrics page.
	Page = endpoint.Page
	// Adapters are the LoRA adapters of a server.
	Adapters = endpoint.Adapters
)

// A Candidate is an endpoint to choose from.
type Candidate struct {
	Index   int // for the caller; unchanged
	Server  *Server
	Load    Load
	Matched int // tokens of the prompt in its cache, from the start
}

// Load is the load of an endpoint.
type Load struct {
	Requests float64            // current requests: the last sample, corrected by requests picked and finished since
	Open     float64            // the part of them that this picker placed
	Failed   float64            // the part of those that failed, and count for some time, so that a server that fails does not look idle
	Tokens   float64            // uncached, uncomputed tokens of prompts that this picker placed
	Waiting  float64            // requests in its queue, as of the last sample
	Running  float64            // requests in its batch, as of the last sample
	KVUsage  float64            // share of its KV cache in use, 0 to 1, as of the last sample
	Wait     float64            // expected seconds to the first token of the request on this endpoint; above 0
	Delay    float64            // seconds by which the request and those that are there delay each other's tokens, as far as they count
	Page     *Page              // other values of the metrics page, nil if the page has none of them
	Failing  endpoint.Monotonic // time of the first failed scrape since the last sample, unset if none
}

// Stale reports whether scrapes have failed for longer than the given time. The age of the last sample does not matter: idle
// endpoints are sampled rarely, and their samples stay valid.
func (l *Load) Stale(now time.Time, after time.Duration) bool {
	return l.Failing.IsSet() && endpoint.ToMonotonic(now).Sub(l.Failing) > after
}

// Attribute returns one of the custom metrics of the configuration.
func (l *Load) Attribute(name string) (value float64, ok bool) {
	if l.Page == nil {
		return 0, false
	}
	value, ok = l.Page.Attributes[name]
	return value, ok && !math.IsNaN(value)
}

// A Filter removes candidates. It keeps the order of the others, may reuse the given slice, and returns it unchanged if it
// does not apply. If it removes all candidates, the request fails with ErrFiltered, or with the error of an EmptyResult.
type Filter interface {
	Filter(r *Request, candidates []Candidate) []Candidate
}

// A ServerFilter is a Filter that keeps candidates by their servers alone, whatever the request and the load.
type ServerFilter interface {
	Filter
	// AcceptsServer reports whether the filter keeps candidates with a server.
	AcceptsServer(s *Server) bool
}

// EmptyResult is implemented by filters with their own reason for keeping no candidate.
type EmptyResult interface {
	ErrEmpty() error
}

// A Scorer rates candidates: it sets scores[i] for candidates[i], from 0 for the worst to 1 for the best possible.
type Scorer interface {
	Score(r *Request, candidates []Candidate, scores []float64)
}

// A Picker chooses among rated candidates; there is at least one. It appends the indexes of its choices, at least one, to
// the given empty list, best first.
type Picker interface {
	Pick(r *Request, scores []float64, places []int) []int
}

// A Detector returns the saturation of a pool: 0 when it is idle, 1 when it should take only urgent requests. A pool without
// endpoints is full.
type Detector interface {
	Saturation(now time.Time, pool []Candidate) float64
}

// A Binder remembers the choices of its profile, for later requests.
type Binder interface {
	// Bind records the choice for a request. It may return a header for the client's response; an empty name means none.
	Bind(r *Request, chosen *Server) (name, value string)
}
