package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// randomPicker picks candidates at random.
type randomPicker struct{ pickCount }

// Pick appends indexes. All orders are equally likely.
func (p *randomPicker) Pick(r *scheduling.Request, scores []float64, places []int) []int {
	if p.MaxNumOfEndpoints <= 1 {
		return append(places, int(r.DrawRandom(streamPick, 0)%uint64(len(scores))))
	}
	places = allPlaces(len(scores), places)
	most := min(p.MaxNumOfEndpoints, len(places))
	for i := range most {
		rest := places[i:]
		j := r.DrawRandom(streamPick, i) % uint64(len(rest))
		rest[0], rest[j] = rest[j], rest[0]
	}
	return places[:most]
}
