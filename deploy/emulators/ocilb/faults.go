package ocilb

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// Kinds of faults.
const (
	FaultStatus    = "status"    // answers with Status and Code, and does nothing
	FaultReset     = "reset"     // closes the connection, and does nothing
	FaultLost      = "lost"      // does what is asked, and closes the connection without an answer
	FaultHang      = "hang"      // does nothing until the client gives up
	FaultLostHang  = "lost-hang" // does what is asked, and gives no answer until the client gives up
	FaultDelay     = "delay"     // answers after Delay
	FaultMalformed = "malformed" // answers with half a JSON object
)

// Fault is a fault of requests.
type Fault struct {
	Operations []string `json:"operations,omitempty"` // empty: all
	Kind       string   `json:"kind"`
	Status     int      `json:"status,omitempty"`
	Code       string   `json:"code,omitempty"`
	RetryAfter string   `json:"retryAfter,omitempty"` // header of the answer
	Delay      Duration `json:"delay,omitempty"`
	Rate       float64  `json:"rate,omitempty"`  // share of the requests; 0: all
	Count      int      `json:"count,omitempty"` // number of requests after which the fault ends; 0: it stays
}

// validate checks a fault of a request.
func (f *Fault) validate() *lbapi.Error {
	kinds := []string{FaultStatus, FaultReset, FaultLost, FaultHang, FaultLostHang, FaultDelay, FaultMalformed}
	switch {
	case !slices.Contains(kinds, f.Kind):
		return lbapi.Errorf(http.StatusBadRequest, lbapi.CodeInvalidParameter, "kind is %.60q: give one of %q", f.Kind, kinds)
	case f.Kind == FaultStatus && (f.Status < http.StatusBadRequest || f.Status > maxStatus):
		return lbapi.Errorf(http.StatusBadRequest, lbapi.CodeInvalidParameter, "status is %d: give the status of an error, %d to %d", f.Status, http.StatusBadRequest, maxStatus)
	}
	return nil
}

// maxStatus is the largest status of an error.
const maxStatus = 599

// Throttle is a token bucket for all requests.
type Throttle struct {
	PerSecond  float64 `json:"perSecond"` // 0: no limit
	Burst      int     `json:"burst"`
	RetryAfter string  `json:"retryAfter,omitempty"` // header of refusals; empty: none, as it is usual
}

// faults decides which requests fail.
type faults struct {
	mu       sync.Mutex
	random   *rand.Rand
	list     []Fault
	throttle Throttle
	tokens   float64
	filled   time.Time
}

func newFaults(seed uint64) *faults {
	return &faults{random: rand.New(rand.NewPCG(seed, 2))}
}

// SetFaults replaces the faults. A request has the first fault of the list that applies to it; so several faults of an operation
// with counts are a sequence.
func (e *Emulator) SetFaults(list ...Fault) {
	e.faults.mu.Lock()
	defer e.faults.mu.Unlock()
	e.faults.list = slices.Clone(list)
}

// SetThrottle replaces the limit of requests.
func (e *Emulator) SetThrottle(t Throttle) {
	e.faults.mu.Lock()
	defer e.faults.mu.Unlock()
	e.faults.throttle, e.faults.tokens, e.faults.filled = t, float64(t.Burst), time.Now()
}

// next returns the fault of a request, or nil.
func (f *faults) next(operation string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.throttle; t.PerSecond > 0 {
		now := time.Now()
		f.tokens = min(float64(t.Burst), f.tokens+now.Sub(f.filled).Seconds()*t.PerSecond)
		f.filled = now
		if f.tokens < 1 {
			return &Fault{Kind: FaultStatus, Status: 429, Code: "TooManyRequests", RetryAfter: t.RetryAfter}
		}
		f.tokens--
	}
	for i := range f.list {
		fault := &f.list[i]
		if len(fault.Operations) > 0 && !slices.Contains(fault.Operations, operation) ||
			fault.Rate > 0 && f.random.Float64() >= fault.Rate {
			continue
		}
		found := *fault
		if fault.Count > 0 {
			if fault.Count--; fault.Count == 0 {
				f.list = slices.Delete(f.list, i, i+1)
			}
		}
		return &found
	}
	return nil
}
