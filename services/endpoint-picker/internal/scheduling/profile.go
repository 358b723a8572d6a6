package scheduling

// A WeightedScorer is a Scorer and its weight.
type WeightedScorer struct {
	Name   string // for readers of its scores
	Scorer Scorer
	Weight float64
}

// A Profile chooses an endpoint: filters in order, the weighted sum of the scorers, a picker.
type Profile struct {
	Filters []Filter
	Scorers []WeightedScorer
	Picker  Picker

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

// Scores returns the unweighted scores of the profile's i-th scorer.
func (s *Scratch) Scores(i int) []float64 {
	n := len(s.candidates)
	return s.scores[i*n : (i+1)*n]
}

// SoonestFirst returns the profile that sends each request to the endpoint with the earliest expected first token, among
// those that the staleness filter prefers.
func SoonestFirst(staleness StalenessFilter) *Profile {
	return &Profile{
		Filters: []Filter{staleness},
		Scorers: []WeightedScorer{{Name: "predicted-wait-scorer", Scorer: PredictedWaitScorer{}, Weight: 1}},
		Picker:  MaxScorePicker{},
	}
}

// Schedule returns the candidate that the profile chooses. It may reorder the list of candidates.
func (p *Profile) Schedule(r *Request, candidates []Candidate, s *Scratch) (*Candidate, error) {
	s.take(nil, 0)
	if len(candidates) == 0 {
		return nil, ErrNoEndpoints
	}
	for _, f := range p.Filters {
		if candidates = f.Filter(r, candidates); len(candidates) == 0 {
			return nil, emptied(f)
		}
	}
	s.take(candidates, len(p.Scorers))
	for k := range p.Scorers {
		w, scores := &p.Scorers[k], s.Scores(k)
		w.Scorer.Score(r, candidates, scores)
		w.add(scores, s.totals)
	}
	s.places = p.Picker.Pick(r, s.totals, s.places)
	return &candidates[s.places[0]], nil
}

// emptied returns the error for a filter that kept no candidate: a retry may help if the filter depends on load.
func emptied(f Filter) error {
	switch f.(type) {
	case UtilizationFilter, ConcurrencyDetector:
		return ErrNoCapacity
	}
	return ErrFiltered
}

// add adds the weighted scores to the totals.
func (w *WeightedScorer) add(scores, totals []float64) {
	totals = totals[:len(scores)]
	for i, score := range scores {
		score = clamp(score)
		scores[i] = score
		totals[i] += w.Weight * score
	}
}

// take allocates zeros for the values of these candidates.
func (s *Scratch) take(candidates []Candidate, scorers int) {
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
