package scheduling

import "time"

// A Detector returns the saturation of a pool: 0 when it is idle, 1 when it should take only urgent requests. A pool without
// endpoints is full.
type Detector interface {
	Saturation(r *Request, candidates []Candidate) float64
}

// staleCapacity is the assumed capacity, in requests, of an endpoint without current metrics.
const staleCapacity = 100

// UtilizationDetector uses the metrics of endpoints: the queue or the KV cache, whichever is fuller. For an endpoint with a
// stale sample it uses this picker's requests: a late page is no reason to refuse requests.
type UtilizationDetector struct {
	QueueDepth float64 // queue length of a full endpoint
	KVUsage    float64 // of a full endpoint
	StaleAfter time.Duration
	Headroom   float64 // how much fuller an endpoint may be before the filter removes it: 0.2 is a fifth
}

// Saturation returns the mean over the endpoints.
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

// ConcurrencyDetector uses the load of endpoints, from samples and from this picker's requests. A capacity of 0 is ignored.
type ConcurrencyDetector struct {
	Requests float64 // of a full endpoint
	Tokens   float64 // uncomputed prompt tokens of a full endpoint
	Headroom float64 // as in the UtilizationDetector
}

// Saturation returns the load divided by the capacity of the pool. If requests and tokens count, it is the mean of each
// endpoint's higher value, so that one does not hide the other.
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
