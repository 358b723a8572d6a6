package scheduling

// PredictedWaitScorer rates an endpoint by its expected time to first token: 1 for the shortest, 0.5 for twice as long.
type PredictedWaitScorer struct{}

// Score sets shortest/wait.
func (PredictedWaitScorer) Score(_ *Request, candidates []Candidate, scores []float64) {
	least := candidates[0].Load.Wait
	for i := range candidates {
		least = min(least, candidates[i].Load.Wait)
	}
	for i := range candidates {
		scores[i] = least / candidates[i].Load.Wait
	}
}

// QueueScorer rates an endpoint by the length of its queue relative to the other candidates.
type QueueScorer struct{}

// Score sets 1 for the shortest queue and 0 for the longest; 1 for all if they are equal.
func (QueueScorer) Score(_ *Request, candidates []Candidate, scores []float64) {
	scoreFewest(WaitingRequests, candidates, scores)
}

// RunningScorer rates an endpoint by the size of its batch relative to the other candidates.
type RunningScorer struct{}

// Score sets 1 for the smallest batch and 0 for the largest; 1 for all if they are equal.
func (RunningScorer) Score(_ *Request, candidates []Candidate, scores []float64) {
	scoreFewest(RunningRequests, candidates, scores)
}

// scoreFewest sets 1 for the least value of the metric and 0 for the greatest; 1 for all if they are equal.
func scoreFewest(m Metric, candidates []Candidate, scores []float64) {
	least, most := m.of(&candidates[0].Load), m.of(&candidates[0].Load)
	for i := range candidates {
		value := m.of(&candidates[i].Load)
		least, most = min(least, value), max(most, value)
	}
	for i := range candidates {
		scores[i] = 1
		if most > least {
			scores[i] = (most - m.of(&candidates[i].Load)) / (most - least)
		}
	}
}

// KVCacheScorer rates an endpoint by the free part of its KV cache.
type KVCacheScorer struct{}

// Score sets the free share.
func (KVCacheScorer) Score(_ *Request, candidates []Candidate, scores []float64) {
	for i := range candidates {
		scores[i] = 1 - candidates[i].Load.KVUsage
	}
}

// TokenLoadScorer rates an endpoint by the number of prompt tokens that it has to compute.
type TokenLoadScorer struct {
	Threshold float64 // tokens at which the score is 0
}

// Score sets the remaining share below the threshold.
func (s TokenLoadScorer) Score(_ *Request, candidates []Candidate, scores []float64) {
	for i := range candidates {
		scores[i] = 1 - min(candidates[i].Load.Tokens/s.Threshold, 1)
	}
}

// QueueLimitScorer rates an endpoint by the distance of its queue from a limit. Its best score is one half, so it counts
// less than affinity scorers.
type QueueLimitScorer struct {
	Threshold float64 // requests in the queue at which the score is 0
}

// Score sets 0.5 for an empty queue, falling to 0 at the limit.
func (s QueueLimitScorer) Score(_ *Request, candidates []Candidate, scores []float64) {
	for i := range candidates {
		scores[i] = 0.5 * (1 - min(candidates[i].Load.Waiting/s.Threshold, 1))
	}
}

// ActiveScorer rates an endpoint by its current number of requests.
type ActiveScorer struct {
	Idle     float64 // maximum requests of an idle endpoint
	BusyBest float64 // the best score of a busy one
}

// Score sets 1 for idle endpoints. Others get less the closer they are to the busiest one.
func (s ActiveScorer) Score(_ *Request, candidates []Candidate, scores []float64) {
	most := 0.0
	for i := range candidates {
		most = max(most, candidates[i].Load.Requests)
	}
	for i := range candidates {
		scores[i] = 1
		if n := candidates[i].Load.Requests; n > s.Idle {
			scores[i] = (most - n) / most * s.BusyBest
		}
	}
}
