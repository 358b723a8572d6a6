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

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// Reasons for which no endpoint can be picked.
var (
	// ErrNoEndpoints means that the pool has no ready endpoint at all.
	ErrNoEndpoints = errors.New("no ready endpoints in the pool")
	// ErrNoneInSubset means that the gateway allows only endpoints that are not ready in this pool.
	ErrNoneInSubset = errors.New("no ready endpoint in the subset that the gateway allows")
	// ErrFiltered means that a filter left no candidate.
	ErrFiltered = errors.New("no endpoint fits the request")
	// ErrNoCapacity means that a filter that goes by load left no candidate.
	ErrNoCapacity = errors.New("no endpoint has room for the request")
)

// A Request is what is known of the request when its endpoint is picked.
type Request struct {
	Now     time.Time
	Random  uint64          // decides between equals
	Subset  *Subset         // what the gateway allows; nil allows everything
	Model   string          // that the server is asked for, which may be an adapter; empty if it is not known
	Tokens  int             // of the prompt, about
	Prefix  uint64          // stands for the prompt's beginning; 0 if there is no prompt
	Session string          // name of the server that the request's session is bound to; empty if it is not
	Headers request.Headers // those that plugins have asked for
}

// A Server is what is known of an endpoint apart from how busy it is. It is never changed.
type Server struct {
	Name    string // "namespace/pod"
	Address netip.AddrPort
	Labels  map[string]string // of its pod
}

// A Candidate is one endpoint that may be picked.
type Candidate struct {
	Index   int // the caller's own, untouched
	Server  *Server
	Load    Load
	Matched int // tokens of the prompt that are in its cache, from the first on
}

// Load is how busy an endpoint is.
type Load struct {
	Requests float64   // that it has now: the last sample, corrected by what was picked and finished since
	Open     float64   // of them placed by this picker
	Tokens   float64   // of their prompts that this picker has placed and that are not computed yet, but for cached ones
	Waiting  float64   // requests in its queue, as last sampled
	Running  float64   // requests in its batch, as last sampled
	KVUsage  float64   // part of its KV cache that is taken, 0 to 1, as last sampled
	Wait     float64   // seconds to the first token of the request, if it came here; at least a little
	Sampled  time.Time // the last sample, or the endpoint's arrival if there was none yet
	Failing  time.Time // the first scrape that failed since then, zero if none has
	Page     *Page     // what else was sampled, nil if there was nothing
}

// Stale reports whether samples have been missing for longer than that. The age of the last one says nothing: where
// nothing happens, samples are taken seldom, and they hold.
func (l *Load) Stale(now time.Time, after time.Duration) bool {
	return !l.Failing.IsZero() && now.Sub(l.Failing) > after
}

// A Page is what not every metrics page has. It is never changed.
type Page struct {
	Adapters   *Adapters          // nil if the server does not say
	Attributes map[string]float64 // figures that the configuration asks for, by its names
}

// Adapters are the LoRA adapters of a server.
type Adapters struct {
	Max     int      // that fit at once
	Running []string // with requests in the batch
	Waiting []string // with requests in the queue only
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

// A Picker chooses among rated candidates, of which there is at least one. It appends the places of those it chooses to
// the empty list it is given, the best first, and at least one.
type Picker interface {
	Pick(r *Request, scores []float64, places []int) []int
}
