package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// Concurrency is how a load balancer treats a mutation while an earlier one is in progress. Documents disagree.
type Concurrency string

// Modes of concurrency.
const (
	Queue    Concurrency = "queue"    // all work requests of a load balancer are done one after the other
	Parallel Concurrency = "parallel" // those of different sub-resources are done at the same time
	Busy     Concurrency = "busy"     // a second mutation is refused: 409 IncorrectState
	Conflict Concurrency = "conflict" // the same, as network load balancers do it: 409 Conflict, and the state UPDATING
)

// EtagChange is when a mutation changes the ETag of its load balancer.
type EtagChange string

// Times at which the ETag changes.
const (
	AtCompletion EtagChange = "completion"
	AtAcceptance EtagChange = "acceptance"
	AtBoth       EtagChange = "both"
)

// Modes are the behaviors that cannot be known from documents, and the numbers that tenants can have raised. A client must work
// with all of them.
type Modes struct {
	Concurrency Concurrency `json:"concurrency"`
	EtagChange  EtagChange  `json:"etagChange"`
	// RefuseLate accepts a mutation of an object that does not exist, or that exists already; its work request fails.
	RefuseLate bool `json:"refuseLate"`
	// TokenConflict refuses a retry token that was used with another body: 409 InvalidatedRetryToken. Otherwise the answer is the
	// first work request.
	TokenConflict bool `json:"tokenConflict"`
	// TokenFirst looks for the retry token before it compares the ETag: the retry of a mutation that has changed the ETag succeeds.
	TokenFirst bool `json:"tokenFirst"`
	// NewestFirst is the order of lists of work requests.
	NewestFirst bool `json:"newestFirst"`
	// Stale is the age of what reads of a load balancer return.
	Stale Duration `json:"stale"`
	// Latency is the time that a work request takes, and LatencyTail that of one in twenty.
	Latency     Duration `json:"latency"`
	LatencyTail Duration `json:"latencyTail"`
	// FailEvery lets each n-th work request fail with INTERNAL_ERROR; 0: none. Partial lets it take effect nevertheless.
	FailEvery int  `json:"failEvery"`
	Partial   bool `json:"partial"`

	Limits lbapi.Limits `json:"limits"`
}

// Parse reads modes from JSON. Fields that are not in the text keep their values.
func (m *Modes) Parse(text []byte) error {
	parsed := *m
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&parsed); err != nil {
		return err
	}
	if !slices.Contains([]Concurrency{Queue, Parallel, Busy, Conflict}, parsed.Concurrency) {
		return fmt.Errorf("concurrency is %q: give queue, parallel, busy or conflict", parsed.Concurrency)
	}
	if !slices.Contains([]EtagChange{AtCompletion, AtAcceptance, AtBoth}, parsed.EtagChange) {
		return fmt.Errorf("etagChange is %q: give completion, acceptance or both", parsed.EtagChange)
	}
	*m = parsed
	return nil
}

// DefaultModes returns modes that are rather unpleasant than kind.
func DefaultModes() Modes {
	return Modes{
		Concurrency: Queue, EtagChange: AtBoth, RefuseLate: true, TokenConflict: true, NewestFirst: true, Stale: Duration(time.Second),
		Latency: Duration(3 * time.Second), LatencyTail: Duration(17 * time.Second), Limits: lbapi.DefaultLimits(),
	}
}

// tail is the share of work requests that take LatencyTail.
const tail = 0.05

// latency returns the time that the next work request takes.
func (m *Modes) latency(random *rand.Rand) time.Duration {
	if m.LatencyTail > m.Latency && random.Float64() < tail {
		return time.Duration(m.LatencyTail)
	}
	return time.Duration(m.Latency)
}

// Duration is a duration that JSON has as text, such as "3s".
type Duration time.Duration

// MarshalText formats the duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText parses a duration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}
