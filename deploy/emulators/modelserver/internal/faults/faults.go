// Package faults decides which requests fail, and how.
//
// An operator posts a Set, which affects all requests until the operator replaces or clears it. A request can name additional
// faults in a header. If a fault has a rate, only the seed and n determine whether it affects the n-th request after the post, so
// a sequential test sees the same failures in every run.
package faults

import (
	"fmt"
	"math/rand/v2"
	"sync"
)

// Set is the set of a server's faults. The zero value is a healthy server.
type Set struct {
	Slow         float64 `json:"slow,omitempty"`         // factor of the step time; 0: 1
	Answer       Fault   `json:"answer,omitzero"`        // of answers
	NotReady     bool    `json:"notReady,omitempty"`     // /ready answers 503
	StaleMetrics bool    `json:"staleMetrics,omitempty"` // the metrics page does not change
	MetricsHang  bool    `json:"metricsHang,omitempty"`  // the server never answers the metrics page
}

// Verdict is the set of faults that affect one request.
type Verdict struct {
	Fault   Fault   // of its answer
	Stretch float64 // factor of the time in which the tokens arrive; at least 1
}

// Validate returns an error if a value is invalid.
func (s Set) Validate() error {
	if s.Slow < 0 {
		return fmt.Errorf("slow must not be negative, got %v", s.Slow)
	}
	return nil
}

// Slowdown returns the factor of the step time.
func (s Set) Slowdown() float64 {
	if s.Slow == 0 {
		return 1
	}
	return s.Slow
}

// Register holds the Set in force. It is safe for concurrent use.
type Register struct {
	seed uint64

	mu  sync.Mutex
	set Set
	rng *rand.Rand
}

// NewRegister returns a Register with the faults of the start.
func NewRegister(seed uint64, s Set) *Register {
	r := &Register{seed: seed}
	r.Put(s)
	return r
}

// Put replaces the faults in force, and restarts the count of requests.
func (r *Register) Put(s Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set = s
	r.rng = rand.New(rand.NewPCG(r.seed, 6))
}

// Current returns the faults in force.
func (r *Register) Current() Set {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set
}

// Judge decides which faults affect the next request.
func (r *Register) Judge() Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := Verdict{Stretch: 1}
	if r.rng.Float64() < r.set.Answer.Rate {
		v.Fault = r.set.Answer
	}
	return v
}
