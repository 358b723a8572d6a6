// Package faults decides which requests go wrong, and how.
//
// An operator posts a Set, which holds for all requests until it is replaced or cleared; a request may name faults of
// its own in a header. Where a rate is given, the n-th request after the Set was posted is decided by the seed and n
// alone, so a sequential test sees the same failures in every run.
package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
)

// Set is what is wrong with a server. The zero value is a healthy one.
type Set struct {
	Slow         float64 `json:"slow,omitempty"`         // steps take this many times as long
	Status       *Status `json:"status,omitempty"`       // requests are answered with an error
	Hang         *Hang   `json:"hang,omitempty"`         // requests are accepted and never answered
	Drop         *Drop   `json:"drop,omitempty"`         // connections are closed in the middle of the answer
	NotReady     bool    `json:"notReady,omitempty"`     // /ready says no
	StaleMetrics bool    `json:"staleMetrics,omitempty"` // the metrics page stays as it is now
	MetricsHang  bool    `json:"metricsHang,omitempty"`  // the metrics page never comes
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

// Verdict is what happens to one request.
type Verdict struct {
	Status    int // 0: none
	Hang      bool
	Drop      bool
	DropAfter int     // tokens, when Drop
	Stretch   float64 // its answer takes this many times as long to arrive; at least 1
}

// Validate says what is wrong with the faults themselves.
func (s Set) Validate() error {
	var errs []error
	if s.Slow < 0 {
		errs = append(errs, fmt.Errorf("slow must be positive, got %v", s.Slow))
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

// Slowdown is the factor of step times.
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

// NewRegister makes a register of a healthy server.
func NewRegister(seed uint64) *Register {
	r := &Register{seed: seed}
	r.Put(Set{})
	return r
}

// Put replaces the faults in force and starts counting requests anew.
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

// Judge decides about the next request.
func (r *Register) Judge() Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	// One draw for each kind, used or not: adding a fault does not change whom another one hits.
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
