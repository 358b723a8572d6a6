// Package faults decides which requests fail, and how.
//
// An operator posts a Set, which affects all requests until the operator replaces or clears it. A request can name additional
// faults in a header. If a fault has a rate, only the seed and n determine whether it affects the n-th request after the post, so
// a sequential test sees the same failures in every run.
package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
)

// Set is the set of a server's faults. The zero value is a healthy server.
type Set struct {
	Slow         float64 `json:"slow,omitempty"`         // factor of the step time; 0: 1
	Status       *Status `json:"status,omitempty"`       // the server answers with an error
	Hang         *Hang   `json:"hang,omitempty"`         // the server accepts requests and never answers
	Drop         *Drop   `json:"drop,omitempty"`         // the server closes connections in the middle of the answer
	NotReady     bool    `json:"notReady,omitempty"`     // /ready answers 503
	StaleMetrics bool    `json:"staleMetrics,omitempty"` // the metrics page does not change
	MetricsHang  bool    `json:"metricsHang,omitempty"`  // the server never answers the metrics page
}

// Status answers a share of the requests with an HTTP status.
type Status struct {
	Code int      `json:"code"`
	Rate *float64 `json:"rate,omitempty"` // nil: all
}

// Hang leaves a share of the requests without an answer.
type Hang struct {
	Rate *float64 `json:"rate,omitempty"` // nil: all
}

// Drop closes the connection of a share of the requests.
type Drop struct {
	AfterTokens int      `json:"afterTokens"`
	Rate        *float64 `json:"rate,omitempty"` // nil: all
}

// Verdict is the set of faults that affect one request.
type Verdict struct {
	Status    int // 0: no fault
	Hang      bool
	Drop      bool
	DropAfter int     // tokens, if Drop is set
	Stretch   float64 // factor of the time in which the tokens arrive; at least 1
}

// Validate returns an error with all invalid values.
func (s Set) Validate() error {
	var errs []error
	if s.Slow < 0 {
		errs = append(errs, fmt.Errorf("slow must not be negative, got %v", s.Slow))
	}
	checkRate := func(name string, rate *float64) {
		if rate != nil && (*rate < 0 || *rate > 1) {
			errs = append(errs, fmt.Errorf("%s.rate must be between 0 and 1, got %v", name, *rate))
		}
	}
	if s.Status != nil {
		errs = append(errs, checkStatus(s.Status.Code))
		checkRate("status", s.Status.Rate)
	}
	if s.Hang != nil {
		checkRate("hang", s.Hang.Rate)
	}
	if s.Drop != nil {
		checkRate("drop", s.Drop.Rate)
		if s.Drop.AfterTokens < 0 {
			errs = append(errs, fmt.Errorf("drop.afterTokens must not be negative, got %d", s.Drop.AfterTokens))
		}
	}
	return errors.Join(errs...)
}

// Slowdown returns the factor of the step time.
func (s Set) Slowdown() float64 {
	if s.Slow == 0 {
		return 1
	}
	return s.Slow
}

func checkStatus(code int) error {
	if code < 400 || code > 599 {
		return fmt.Errorf("status must be between 400 and 599, got %d", code)
	}
	return nil
}

// Register holds the Set in force. It is safe for concurrent use.
type Register struct {
	seed uint64

	mu  sync.Mutex
	set Set
	rng *rand.Rand
}

// NewRegister returns the Register of a healthy server.
func NewRegister(seed uint64) *Register {
	r := &Register{seed: seed}
	r.Put(Set{})
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
	// One draw for each kind, used or not, so that an additional fault does not change which requests another fault affects.
	status, hang, drop := r.rng.Float64(), r.rng.Float64(), r.rng.Float64()
	v := Verdict{Stretch: 1}
	if s := r.set.Status; s != nil && hits(status, s.Rate) {
		v.Status = s.Code
	}
	if h := r.set.Hang; h != nil && hits(hang, h.Rate) {
		v.Hang = true
	}
	if d := r.set.Drop; d != nil && hits(drop, d.Rate) {
		v.Drop, v.DropAfter = true, d.AfterTokens
	}
	return v
}

func hits(draw float64, rate *float64) bool { return rate == nil || draw < *rate }
