package plugins

import (
	"time"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Modes of the detector.
const (
	concurrencyRequests = "requests"
	concurrencyTokens   = "tokens"
	concurrencyHybrid   = "hybrid"
)

// concurrencyDetector uses the load of endpoints, from samples and from this picker's requests.
type concurrencyDetector struct {
	ConcurrencyMode          string  `yaml:"concurrencyMode"`
	MaxConcurrency           int     `yaml:"maxConcurrency"`      // requests of a full endpoint
	MaxTokenConcurrency      int     `yaml:"maxTokenConcurrency"` // uncomputed prompt tokens of a full endpoint
	Headroom                 float64 `yaml:"headroom"`            // as in the utilizationDetector
	InFlightLoadProducerName string  `yaml:"inFlightLoadProducerName,omitempty"`

	requests, tokens float64 // capacity of an endpoint; 0 is ignored
}

// Validate checks the parameters and derives the capacities.
func (d *concurrencyDetector) Validate(c *Check) {
	c.OneOf("concurrencyMode", d.ConcurrencyMode, concurrencyRequests, concurrencyTokens, concurrencyHybrid)
	c.Positive("maxConcurrency", float64(d.MaxConcurrency))
	c.Positive("maxTokenConcurrency", float64(d.MaxTokenConcurrency))
	c.NotNegative("headroom", d.Headroom)
	c.requireProducer("inFlightLoadProducerName", d.InFlightLoadProducerName, typeInflightLoadProducer)
	d.requests, d.tokens = float64(d.MaxConcurrency), float64(d.MaxTokenConcurrency)
	switch d.ConcurrencyMode {
	case concurrencyRequests:
		d.tokens = 0
		c.noEffect("maxTokenConcurrency", "concurrencyMode is "+concurrencyRequests)
	case concurrencyTokens:
		d.requests = 0
		c.noEffect("maxConcurrency", "concurrencyMode is "+concurrencyTokens)
	}
}

// Saturation returns the load divided by the capacity of the pool. If requests and tokens count, it is the mean of each
// endpoint's higher value, so that one does not hide the other.
func (d *concurrencyDetector) Saturation(_ time.Time, pool []scheduling.Candidate) float64 {
	return meanFullness(pool, d.fullness)
}

// meanFullness returns the mean of a value over the endpoints of a pool. A pool without endpoints is full.
func meanFullness(pool []scheduling.Candidate, fullness metric) float64 {
	if len(pool) == 0 {
		return 1
	}
	sum := 0.0
	for i := range pool {
		sum += fullness(&pool[i].Load)
	}
	return sum / float64(len(pool))
}

// ErrEmpty returns ErrNoCapacity.
func (*concurrencyDetector) ErrEmpty() error { return scheduling.ErrNoCapacity }

// Filter keeps the endpoints that are not full.
func (d *concurrencyDetector) Filter(_ *scheduling.Request, candidates []scheduling.Candidate) []scheduling.Candidate {
	return scheduling.KeepAccepted(candidates, func(c *scheduling.Candidate) bool { return d.fullness(&c.Load) < 1+d.Headroom })
}

// fullness returns the load of an endpoint divided by its capacity. Failed requests take none of it: a client whose requests all servers
// refuse must not fill them.
func (d *concurrencyDetector) fullness(l *scheduling.Load) float64 {
	full := 0.0
	if d.requests > 0 {
		full = (l.Requests - l.Failed) / d.requests
	}
	if d.tokens > 0 {
		full = max(full, l.Tokens/d.tokens)
	}
	return full
}

// ReadsEstimates reports whether the detector reads Load.Tokens.
func (d *concurrencyDetector) ReadsEstimates() bool { return d.tokens > 0 }
