package scheduling

import (
	"math"
	"slices"
)

// A WeightedScorer is a Scorer and its weight.
type WeightedScorer struct {
	Name   string // for readers of its scores
	Scorer Scorer
	Weight float64
}

// A Profile chooses an endpoint: filters in order, the weighted sum of the scorers, a picker.
type Profile struct {
	Servers []ServerFilter // come first, and callers apply them: see Eligible
	Filters []Filter
	Scorers []WeightedScorer
	Picker  Picker
	Binders []Binder // they learn the choices that take effect

	// WithoutEstimates says that no plugin reads Candidate.Matched, Load.Tokens or Load.Wait, so that callers need not compute
	// them.
	WithoutEstimates bool
}

// Scratch contains the intermediate values of one call, to avoid allocations in the next. The zero value is ready.
// Concurrent calls must not share it. Its methods return values of the last call, which the next call overwrites.
type Scratch struct {
	candidates []Candidate
	scores     []float64 // by scorer
	totals     []float64
	places     []int
}

// Candidates returns the candidates that the filters kept.
func (s *Scratch) Candidates() []Candidate { return s.candidates }

// Places returns the indexes of the chosen candidates: first the choice, then the fallbacks.
func (s *Scratch) Places() []int { return s.places }

// Totals returns the weighted sums of the candidates' scores.
func (s *Scratch) Totals() []float64 { return s.totals }

// scorerScores returns the unweighted scores of the profile's i-th scorer.
func (s *Scratch) scorerScores(i int) []float64 {
	n := len(s.candidates)
	return s.scores[i*n : (i+1)*n]
}

// Eligible reports whether the profile may choose a server. The result depends on the server alone, so that callers need to
// ask once for each server, not for each request: labels are compared with string maps, which costs more than all else that a
// pick does for a candidate.
func (p *Profile) Eligible(s *Server) bool {
	for _, f := range p.Servers {
		if !f.AcceptsServer(s) {
			return false
		}
	}
	return true
}

// Schedule returns the candidate that the profile chooses among candidates with eligible servers. It may reorder their list.
func (p *Profile) Schedule(r *Request, candidates []Candidate, s *Scratch) (*Candidate, error) {
	s.resetFor(nil, 0)
	if len(candidates) == 0 {
		return nil, ErrNoEndpoints
	}
	for _, f := range p.Filters {
		if candidates = f.Filter(r, candidates); len(candidates) == 0 {
			return nil, errEmpty(f)
		}
	}
	s.resetFor(candidates, len(p.Scorers))
	for k := range p.Scorers {
		w, scores := &p.Scorers[k], s.scorerScores(k)
		w.Scorer.Score(r, candidates, scores)
		w.addWeighted(scores, s.totals)
	}
	breakTies(candidates, s.totals)
	s.places = p.Picker.Pick(r, s.totals, s.places)
	return &candidates[s.places[0]], nil
}

// breakTies puts those of the best candidates that have more requests than others of them behind. Scorers that go by metrics pages, or by
// prompts, often rate all servers alike, also one that has stopped, whose requests only become more.
func breakTies(candidates []Candidate, totals []float64) {
	best, fewest := slices.Max(totals), math.Inf(1)
	for i, total := range totals {
		if total == best {
			fewest = min(fewest, candidates[i].Load.Requests)
		}
	}
	for i, total := range totals {
		if total == best && candidates[i].Load.Requests > fewest {
			totals[i] = math.Nextafter(total, math.Inf(-1))
		}
	}
}

// errEmpty returns the error for a filter that kept no candidate.
func errEmpty(f Filter) error {
	if own, ok := f.(EmptyResult); ok {
		return own.ErrEmpty()
	}
	return ErrFiltered
}

// addWeighted adds the weighted scores to the totals.
func (w *WeightedScorer) addWeighted(scores, totals []float64) {
	totals = totals[:len(scores)]
	for i, score := range scores {
		score = clamp(score)
		scores[i] = score
		totals[i] += w.Weight * score
	}
}

// resetFor allocates zeros for the values of these candidates.
func (s *Scratch) resetFor(candidates []Candidate, scorers int) {
	n := len(candidates)
	s.candidates, s.places = candidates, s.places[:0]
	s.scores = zeros(s.scores, n*scorers)
	s.totals = zeros(s.totals, n)
}

// zeros returns a slice of n zeros. It reuses the memory of s if possible.
func zeros(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// clamp limits a score to the scale, so that one scorer cannot dominate the others.
func clamp(score float64) float64 {
	switch {
	case score >= 0 && score <= 1:
		return score
	case score > 1:
		return 1
	default: // or NaN
		return 0
	}
}

// KeepAccepted keeps the candidates that are accepted.
func KeepAccepted(candidates []Candidate, accepts func(*Candidate) bool) []Candidate {
	same := 0 // at the start of the list, which need not be copied
	for same < len(candidates) && accepts(&candidates[same]) {
		same++
	}
	accepted := candidates[:same]
	for i := same + 1; i < len(candidates); i++ {
		if accepts(&candidates[i]) {
			accepted = append(accepted, candidates[i])
		}
	}
	return accepted
}

// PreferAccepted keeps the candidates that are accepted, or all if none is.
func PreferAccepted(candidates []Candidate, accepts func(*Candidate) bool) []Candidate {
	accepted := 0
	for i := range candidates {
		if accepts(&candidates[i]) {
			accepted++
		}
	}
	if accepted == 0 || accepted == len(candidates) {
		return candidates
	}
	return KeepAccepted(candidates, accepts)
}
