package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// randomPicker picks candidates at random.
type randomPicker struct{ pickCount }

// Pick appends indexes. All orders are equally likely.
func (p *randomPicker) Pick(r *scheduling.Request, scores []float64, places []int) []int {
	if p.MaxNumOfEndpoints <= 1 {
		return append(places, int(r.DrawRandom(streamPick, 0)%uint64(len(scores))))
	}
	return p.drawPlaces(len(scores), places, func(i int, rest []int) int {
		return int(r.DrawRandom(streamPick, i) % uint64(len(rest)))
	})
}
