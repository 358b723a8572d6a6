// Package scheduling decides which of several endpoints takes a request.
//
// Input is a Request and a list of Candidates, plain values both; output is one of the candidates or an error
// that says why none can be had. A Profile runs its Filters, then its Scorers, then its Picker.
//
// The package is pure: time and randomness arrive in the Request, nothing is kept between two calls, and the same
// input gives the same choice. So every stage is an ordinary function of values that a table can test, and one
// profile serves any number of goroutines.
package scheduling

import (
	"errors"
	"net/netip"
	"time"
)

// Reasons for which no endpoint can be picked.
var (
	// ErrNoEndpoints means that the pool has no ready endpoint at all.
	ErrNoEndpoints = errors.New("no ready endpoints in the pool")
	// ErrNoneInSubset means that the gateway allows only endpoints that are not ready in this pool.
	ErrNoneInSubset = errors.New("no ready endpoint in the subset that the gateway allows")
	// ErrFiltered means that a filter left no candidate.
	ErrFiltered = errors.New("no endpoint fits the request")
)

// A Request is what is known of the request when its endpoint is picked.
type Request struct {
	Now    time.Time
	Random uint64  // decides between equals
	Subset *Subset // what the gateway allows; nil allows everything
}

// A Candidate is one endpoint that may be picked.
type Candidate struct {
	Index   int // the caller's own, untouched
	Address netip.AddrPort
	Load    Load
}

// Load is how busy an endpoint is.
type Load struct {
	Requests float64   // that it has now: the last sample, corrected by what was picked and finished since
	Waiting  float64   // of them in its queue, as last sampled
	KVUsage  float64   // part of its KV cache that is taken, 0 to 1, as last sampled
	Wait     float64   // seconds to the first token of the request, if it came here; at least a little
	Sampled  time.Time // the last sample, or the endpoint's arrival if there was none yet
}

// A Filter leaves out candidates. It keeps the order of those it leaves in, may reuse the slice it was given, and
// returns that slice as it was when it has nothing to say.
type Filter interface {
	Filter(r *Request, candidates []Candidate) []Candidate
}

// A Scorer rates candidates: it sets scores[i] for candidates[i], 1 for the best that can be and 0 for the worst.
type Scorer interface {
	Score(r *Request, candidates []Candidate, scores []float64)
}

// A Picker chooses one of the rated candidates, of which there is at least one, and returns its place in the list.
type Picker interface {
	Pick(r *Request, candidates []Candidate, scores []float64) int
}
