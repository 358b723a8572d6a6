package scheduling

import "time"

// StalenessFilter prefers endpoints whose scrapes have not been failing for longer than After: one whose metrics page
// fails again and again is likely to fail requests too, and nothing is known of its queue. When every endpoint is stale
// it keeps them all, so that a pool without metrics is still served, by what is in flight alone.
type StalenessFilter struct {
	After time.Duration
}

// Filter keeps the candidates that are not stale, or all if there is none.
func (f StalenessFilter) Filter(r *Request, candidates []Candidate) []Candidate {
	fresh := 0
	for i := range candidates {
		if !candidates[i].Load.Stale(r.Now, f.After) {
			fresh++
		}
	}
	if fresh == 0 || fresh == len(candidates) {
		return candidates
	}
	kept := candidates[:0]
	for i := range candidates {
		if !candidates[i].Load.Stale(r.Now, f.After) {
			kept = append(kept, candidates[i])
		}
	}
	return kept
}

// LoadScorer rates an endpoint by what it has to do: 1 when idle, falling towards 0. A request in the queue counts
// twice, as whatever comes next must wait for it; KV cache usage decides between equal counts.
type LoadScorer struct{}

// Score sets 1/(1+load).
func (LoadScorer) Score(_ *Request, candidates []Candidate, scores []float64) {
	for i := range candidates {
		l := &candidates[i].Load
		scores[i] = 1 / (1 + l.Requests + l.Waiting + l.KVUsage)
	}
}

// PredictedWaitScorer rates an endpoint by how soon the first token would come: 1 where it is soonest, a half where it takes
// twice as long.
type PredictedWaitScorer struct{}

// Score sets least/wait.
func (PredictedWaitScorer) Score(_ *Request, candidates []Candidate, scores []float64) {
	least := candidates[0].Load.Wait
	for i := range candidates {
		least = min(least, candidates[i].Load.Wait)
	}
	for i := range candidates {
		scores[i] = least / candidates[i].Load.Wait
	}
}

// MaxScorePicker takes the best candidate; between equals the request's random number decides.
type MaxScorePicker struct{}

// Pick returns the place of the highest score.
func (MaxScorePicker) Pick(r *Request, _ []Candidate, scores []float64) int {
	best, equals := scores[0], uint64(0)
	for _, score := range scores {
		switch {
		case score > best:
			best, equals = score, 1
		case score == best:
			equals++
		}
	}
	skip := r.Random % equals
	for i, score := range scores {
		if score != best {
			continue
		}
		if skip == 0 {
			return i
		}
		skip--
	}
	return 0
}
