package scheduling

import "math"

// A WeightedScorer is a Scorer and how much it counts beside the others.
type WeightedScorer struct {
	Scorer Scorer
	Weight float64
}

// A Profile is a way to choose: filters in order, the weighted sum of the scorers, a picker.
type Profile struct {
	Filters []Filter
	Scorers []WeightedScorer
	Picker  Picker
}

// Scratch holds the intermediate figures of one call, so that the next call need not allocate them. The zero value
// is ready; it must not be shared by calls that overlap.
type Scratch struct {
	scores, totals []float64
}

// LeastLoaded returns the profile that sends each request to the endpoint with the least to do, of those that the
// staleness filter prefers.
func LeastLoaded(staleness StalenessFilter) *Profile {
	return &Profile{
		Filters: []Filter{staleness},
		Scorers: []WeightedScorer{{Scorer: LoadScorer{}, Weight: 1}},
		Picker:  MaxScorePicker{},
	}
}

// SoonestFirst returns the profile that sends each request to the endpoint that is expected to begin its answer first, of
// those that the staleness filter prefers.
func SoonestFirst(staleness StalenessFilter) *Profile {
	return &Profile{
		Filters: []Filter{staleness},
		Scorers: []WeightedScorer{{Scorer: PredictedWaitScorer{}, Weight: 1}},
		Picker:  MaxScorePicker{},
	}
}

// Schedule returns the candidate that the profile chooses. The list of candidates is used up: filters may reorder it.
func (p *Profile) Schedule(r *Request, candidates []Candidate, s *Scratch) (*Candidate, error) {
	if len(candidates) == 0 {
		return nil, ErrNoEndpoints
	}
	for _, f := range p.Filters {
		if candidates = f.Filter(r, candidates); len(candidates) == 0 {
			return nil, ErrFiltered
		}
	}
	scores, totals := s.take(len(candidates))
	for _, w := range p.Scorers {
		clear(scores)
		w.Scorer.Score(r, candidates, scores)
		for i, score := range scores {
			totals[i] += w.Weight * clamp(score)
		}
	}
	return &candidates[p.Picker.Pick(r, candidates, totals)], nil
}

// take returns two slices of n zeros.
func (s *Scratch) take(n int) (scores, totals []float64) {
	if cap(s.scores) < n {
		s.scores, s.totals = make([]float64, n), make([]float64, n)
	}
	scores, totals = s.scores[:n], s.totals[:n]
	clear(totals)
	return scores, totals
}

// clamp keeps one scorer from outvoting the others by leaving the scale.
func clamp(score float64) float64 {
	if math.IsNaN(score) {
		return 0
	}
	return min(max(score, 0), 1)
}
