package scheduling

import "slices"

// PrefixAffinityFilter keeps requests on the endpoints that have their prompt in the cache, as long as those are not much
// busier than others.
type PrefixAffinityFilter struct {
	Threshold   float64 // part of the prompt that must be in the cache
	Exploration float64 // part of the requests for which every endpoint is considered all the same
	MaxPenalty  float64 // seconds that a first token may come later for the cache's sake; 0 has no limit
	// TokensPerSecond is how fast an endpoint computes prompts. 0 takes the predicted wait instead of an estimate by it.
	TokensPerSecond float64
}

// Filter keeps the candidates that have enough of the prompt, or all if there is none or those are too busy.
func (f PrefixAffinityFilter) Filter(r *Request, candidates []Candidate) []Candidate {
	if r.Tokens <= 0 || f.Exploration > 0 && unit(r.draw(streamExplore, 0)) < f.Exploration {
		return candidates
	}
	if f.MaxPenalty > 0 && f.penalty(r, candidates) > f.MaxPenalty {
		return candidates
	}
	return prefer(candidates, func(c *Candidate) bool { return cached(r, c) >= f.Threshold })
}

// penalty is how much later the first token comes from the best endpoint that has the prompt than from the best one that
// has not. There is none if all have it, or none has.
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

// wait is the seconds to a first token.
func (f PrefixAffinityFilter) wait(c *Candidate) float64 {
	if f.TokensPerSecond <= 0 {
		return c.Load.Wait
	}
	return c.Load.Tokens / f.TokensPerSecond
}

// PrefixScorer rates an endpoint by how much of the prompt is in its cache.
type PrefixScorer struct {
	// LengthWeight is the part of the score that grows with the square of the length in the cache, up to Scale tokens; the
	// rest is the part of the prompt.
	LengthWeight float64
	Scale        float64
}

// Score sets the part of the prompt, or a mean of it and of the length.
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

// cached is the part of the prompt that a candidate has.
func cached(r *Request, c *Candidate) float64 {
	if r.Tokens <= 0 {
		return 0
	}
	return min(float64(c.Matched)/float64(r.Tokens), 1)
}

// SessionFilter keeps a session on its endpoint while that is among the candidates.
type SessionFilter struct{}

// Filter keeps the session's endpoint, or all if it has none here.
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

// Scores of an endpoint by what it would have to do for an adapter.
const (
	adapterLoaded = 1.0
	adapterFits   = 0.8
	adapterComing = 0.6
)

// AdapterScorer prefers endpoints that have the request's LoRA adapter loaded, then those that have room for it.
type AdapterScorer struct{}

// Score sets 1 where the adapter is in use, 0.8 where another one fits, 0.6 where it waits for room, else 0.
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
