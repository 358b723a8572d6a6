package scheduling

import "slices"

// PrefixAffinityFilter keeps requests on the endpoints with their prompt in the cache, unless those are much busier than
// others.
type PrefixAffinityFilter struct {
	Threshold   float64 // minimum share of the prompt in the cache
	Exploration float64 // share of the requests that may go to every endpoint
	MaxPenalty  float64 // maximum delay of the first token for the cache, in seconds; 0 for no limit
	// TokensPerSecond is the prefill speed of an endpoint for estimates of the wait. 0: use the predicted wait.
	TokensPerSecond float64
}

// Filter keeps the candidates with enough of the prompt, or all if there is none or those are too busy.
func (f PrefixAffinityFilter) Filter(r *Request, candidates []Candidate) []Candidate {
	if r.Tokens <= 0 || f.Exploration > 0 && unit(r.draw(streamExplore, 0)) < f.Exploration {
		return candidates
	}
	if f.MaxPenalty > 0 && f.penalty(r, candidates) > f.MaxPenalty {
		return candidates
	}
	return prefer(candidates, func(c *Candidate) bool { return cached(r, c) >= f.Threshold })
}

// penalty returns the additional delay of the first token of the best endpoint with the prompt, compared with the best one
// without. It is 0 if all endpoints have the prompt, or none.
func (f PrefixAffinityFilter) penalty(r *Request, candidates []Candidate) float64 {
	var best [2]float64 // without and with the prompt
	var found [2]bool
	for i := range candidates {
		c, with := &candidates[i], 0
		if cached(r, c) >= f.Threshold {
			with = 1
		}
		if wait := f.wait(c); !found[with] || wait < best[with] {
			best[with], found[with] = wait, true
		}
	}
	if !found[0] || !found[1] {
		return 0
	}
	return best[1] - best[0]
}

// wait returns the expected seconds to the first token.
func (f PrefixAffinityFilter) wait(c *Candidate) float64 {
	if f.TokensPerSecond <= 0 {
		return c.Load.Wait
	}
	return c.Load.Tokens / f.TokensPerSecond
}

// PrefixScorer rates an endpoint by the part of the prompt in its cache.
type PrefixScorer struct {
	// LengthWeight is the weight of the score that grows with the square of the cached length, up to Scale tokens. The rest
	// is the weight of the cached share of the prompt.
	LengthWeight float64
	Scale        float64
}

// Score sets the cached share of the prompt, or a weighted mean of it and of the length.
func (s PrefixScorer) Score(r *Request, candidates []Candidate, scores []float64) {
	for i := range candidates {
		c := &candidates[i]
		scores[i] = (1 - s.LengthWeight) * cached(r, c)
		if s.LengthWeight > 0 {
			length := min(float64(c.Matched)/s.Scale, 1)
			scores[i] += s.LengthWeight * length * length
		}
	}
}

// cached returns the share of the prompt that a candidate has.
func cached(r *Request, c *Candidate) float64 {
	if r.Tokens <= 0 {
		return 0
	}
	return min(float64(c.Matched)/float64(r.Tokens), 1)
}

// SessionFilter keeps a session on its endpoint while that is a candidate.
type SessionFilter struct{}

// Filter keeps the session's endpoint, or all if it is not a candidate.
func (SessionFilter) Filter(r *Request, candidates []Candidate) []Candidate {
	if r.Session == "" {
		return candidates
	}
	return prefer(candidates, func(c *Candidate) bool { return c.Server.Name == r.Session })
}

// SessionScorer prefers the endpoint of the request's session.
type SessionScorer struct{}

// Score sets 1 for the session's endpoint.
func (SessionScorer) Score(r *Request, candidates []Candidate, scores []float64) {
	if r.Session == "" {
		return
	}
	for i := range candidates {
		if candidates[i].Server.Name == r.Session {
			scores[i] = 1
		}
	}
}

// Scores of an endpoint by the work to serve an adapter.
const (
	adapterLoaded = 1.0
	adapterFits   = 0.8
	adapterComing = 0.6
)

// AdapterScorer prefers endpoints that have the request's LoRA adapter loaded, then those with room for it.
type AdapterScorer struct{}

// Score sets 1 if the adapter is running, 0.8 if another one fits, 0.6 if the adapter waits for room, else 0.
func (AdapterScorer) Score(r *Request, candidates []Candidate, scores []float64) {
	for i := range candidates {
		page := candidates[i].Load.Page
		if page == nil || page.Adapters == nil {
			continue
		}
		a := page.Adapters
		switch {
		case slices.Contains(a.Running, r.Model):
			scores[i] = adapterLoaded
		case len(a.Running)+len(a.Waiting) < a.Max:
			scores[i] = adapterFits
		case slices.Contains(a.Waiting, r.Model):
			scores[i] = adapterComing
		}
	}
}
