package scheduling

import "time"

// A Detector says how full a pool is: 0 when it is idle, 1 when it should take no more than it must. A pool without
// endpoints is full.
type Detector interface {
	Saturation(r *Request, candidates []Candidate) float64
}

// staleCapacity is how many requests an endpoint is taken for that says nothing of itself.
const staleCapacity = 100

// UtilizationDetector goes by what endpoints say: the queue or the KV cache, whichever is fuller. One whose sample is stale
// counts by what this picker has on it: a page that is late is no reason to refuse requests.
type UtilizationDetector struct {
	QueueDepth float64 // requests in the queue of an endpoint that is full
	KVUsage    float64 // of an endpoint that is full
	StaleAfter time.Duration
	Headroom   float64 // how much fuller an endpoint may be before the filter leaves it out: 0.2 is a fifth
}

// Saturation returns the mean of the endpoints.
func (d UtilizationDetector) Saturation(r *Request, candidates []Candidate) float64 {
	if len(candidates) == 0 {
		return 1
	}
	sum := 0.0
	for i := range candidates {
		sum += d.of(&candidates[i].Load, r.Now)
	}
	return sum / float64(len(candidates))
}

// Filter prefers the endpoints that are not full.
func (d UtilizationDetector) Filter(r *Request, candidates []Candidate) []Candidate {
	return prefer(candidates, func(c *Candidate) bool { return d.of(&c.Load, r.Now) < 1+d.Headroom })
}

func (d UtilizationDetector) of(l *Load, now time.Time) float64 {
	if l.Stale(now, d.StaleAfter) {
		return l.Open / staleCapacity
	}
	return max(l.Waiting/d.QueueDepth, l.KVUsage/d.KVUsage)
}

// ConcurrencyDetector goes by what endpoints have to do, sampled or placed by this picker. A capacity of 0 does not count.
type ConcurrencyDetector struct {
	Requests float64 // of an endpoint that is full
	Tokens   float64 // likewise, of prompts that are not computed yet
	Headroom float64 // as that of the UtilizationDetector
}

// Saturation returns the load over the capacity of the pool; where requests and tokens count, the mean of the endpoints by
// that of which they have more, so that one does not hide the other.
func (d ConcurrencyDetector) Saturation(_ *Request, candidates []Candidate) float64 {
	if len(candidates) == 0 {
		return 1
	}
	sum := 0.0
	for i := range candidates {
		sum += d.of(&candidates[i].Load)
	}
	return sum / float64(len(candidates))
}

// Filter keeps the endpoints that are not full.
func (d ConcurrencyDetector) Filter(_ *Request, candidates []Candidate) []Candidate {
	return keep(candidates, func(c *Candidate) bool { return d.of(&c.Load) < 1+d.Headroom })
}

func (d ConcurrencyDetector) of(l *Load) float64 {
	full := 0.0
	if d.Requests > 0 {
		full = l.Requests / d.Requests
	}
	if d.Tokens > 0 {
		full = max(full, l.Tokens/d.Tokens)
	}
	return full
}
