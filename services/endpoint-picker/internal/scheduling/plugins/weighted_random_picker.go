package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// weightedRandomPicker picks candidates with probabilities proportional to their scores. Candidates with a score of 0 come
// last, in any order.
type weightedRandomPicker struct{ pickCount }

// Pick appends indexes, each drawn from the remaining ones.
func (p *weightedRandomPicker) Pick(r *scheduling.Request, scores []float64, places []int) []int {
	return p.drawPlaces(len(scores), places, func(i int, rest []int) int {
		return drawByScore(scores, rest, r.DrawRandom(streamPick, i))
	})
}

// drawByScore draws one of the indexes.
func drawByScore(scores []float64, places []int, random uint64) int {
	sum := 0.0
	for _, place := range places {
		sum += scores[place]
	}
	if sum <= 0 {
		return int(random % uint64(len(places)))
	}
	left, drawn := scheduling.Unit(random)*sum, 0
	for j, place := range places {
		if scores[place] <= 0 {
			continue
		}
		drawn = j // the last one, because of rounding
		if left -= scores[place]; left < 0 {
			break
		}
	}
	return drawn
}
