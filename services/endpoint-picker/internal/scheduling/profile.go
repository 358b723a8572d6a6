package scheduling

// A WeightedScorer is a Scorer and how much it counts beside the others.
type WeightedScorer struct {
	Name   string // for those who read its scores
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
// is ready; it must not be shared by calls that overlap. What it returns is that of the last call, and gone with the next.
type Scratch struct {
	candidates []Candidate
	scores     []float64 // of one scorer after the other
	totals     []float64
	places     []int
}

// Candidates returns those that the filters left.
func (s *Scratch) Candidates() []Candidate { return s.candidates }

// Places returns where the chosen ones are among the candidates: first the choice, then those to try when it fails.
func (s *Scratch) Places() []int { return s.places }

// Totals returns the weighted sums of the candidates' scores.
func (s *Scratch) Totals() []float64 { return s.totals }

// Scores returns the candidates' scores by the profile's i-th scorer, before they were weighted.
func (s *Scratch) Scores(i int) []float64 {
	n := len(s.candidates)
	return s.scores[i*n : (i+1)*n]
}

// SoonestFirst returns the profile that sends each request to the endpoint that is expected to begin its answer first, of
// those that the staleness filter prefers.
func SoonestFirst(staleness StalenessFilter) *Profile {
	return &Profile{
		Filters: []Filter{staleness},
		Scorers: []WeightedScorer{{Name: "predicted-wait-scorer", Scorer: PredictedWaitScorer{}, Weight: 1}},
		Picker:  MaxScorePicker{},
	}
}

// Schedule returns the candidate that the profile chooses. The list of candidates is used up: filters may reorder it.
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

// emptied is why a filter has left nothing: it may help to come again when it goes by load.
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

// take makes room for the figures of these candidates, all zero.
func (s *Scratch) take(candidates []Candidate, scorers int) {
	n := len(candidates)
	s.candidates, s.places = candidates, s.places[:0]
	s.scores = zeros(s.scores, n*scorers)
	s.totals = zeros(s.totals, n)
}

// zeros returns a slice of n zeros, in the memory of the given one if that is enough.
func zeros(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// clamp keeps one scorer from outvoting the others by leaving the scale.
func clamp(score float64) float64 {
	switch {
	case score >= 0 && score <= 1:
		return score
	case score > 1:
		return 1
	default: // or no number
		return 0
	}
}
