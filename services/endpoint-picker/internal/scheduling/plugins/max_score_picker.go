package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// streamPick is the random stream of pickers.
const streamPick = 2

// pickCount is the parameter of all pickers.
type pickCount struct {
	MaxNumOfEndpoints int `yaml:"maxNumOfEndpoints"` // in the answer: the choice and its fallbacks
}

func onePick() pickCount { return pickCount{MaxNumOfEndpoints: 1} }

// Validate checks the parameter.
func (p *pickCount) Validate(c *Check) {
	c.Positive("maxNumOfEndpoints", float64(p.MaxNumOfEndpoints))
}

// drawPlaces appends as many of n indexes as the picker answers. draw returns the place of the i-th one among the rest.
func (p *pickCount) drawPlaces(n int, places []int, draw func(i int, rest []int) int) []int {
	for i := range n {
		places = append(places, i)
	}
	most := max(min(p.MaxNumOfEndpoints, n), 1)
	for i := range most {
		rest := places[i:]
		j := draw(i, rest)
		rest[0], rest[j] = rest[j], rest[0]
	}
	return places[:most]
}

// maxScorePicker picks the best candidates; the request's random number decides between equal ones.
type maxScorePicker struct{ pickCount }

// Pick appends the indexes of the highest scores.
func (p *maxScorePicker) Pick(r *scheduling.Request, scores []float64, places []int) []int {
	if p.MaxNumOfEndpoints <= 1 {
		return append(places, highestIndex(scores, r.Random))
	}
	return p.drawPlaces(len(scores), places, func(i int, rest []int) int {
		best, equals := 0, uint64(1)
		for j := 1; j < len(rest); j++ {
			switch score := scores[rest[j]]; {
			case score > scores[rest[best]]:
				best, equals = j, 1
			case score == scores[rest[best]]:
				// Each of k equal candidates must win with probability 1/k.
				if equals++; r.DrawRandom(streamPick, i*len(scores)+j)%equals == 0 {
					best = j
				}
			}
		}
		return best
	})
}

// highestIndex returns the index of the highest score. The random number decides between equal ones.
func highestIndex(scores []float64, random uint64) int {
	best, equals := scores[0], uint64(0)
	for _, score := range scores {
		switch {
		case score > best:
			best, equals = score, 1
		case score == best:
			equals++
		}
	}
	skip := random % equals
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
