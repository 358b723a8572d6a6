package plugins

import (
	"math"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// rankedPlaces is the number of ranked endpoints in a prompt's order. The load bound excludes the first ones only under
// load, and after this many endpoints the choice matters little: with half as many, a popular prompt spreads over fewer
// endpoints; twice as many take twice the time.
const rankedPlaces = 8

// consistentHashScorer sends requests with the same beginning to one endpoint, or to the next one if that has too much load.
//
// Each beginning has its own order of endpoints, by a hash of both, so a new or removed endpoint moves only its own requests
// (rendezvous hashing). No state is stored: pickers with the same endpoints agree, even after a restart. An endpoint has too
// much load if it would have more than LoadFactor times the mean, so a popular beginning spreads over as many endpoints as it
// needs.
type consistentHashScorer struct {
	LoadFactor float64 `yaml:"loadFactor"`
}

// Validate checks the parameters.
func (s *consistentHashScorer) Validate(c *Check) {
	c.Require(s.LoadFactor >= 1, "loadFactor", "%v is out of range: give a multiple of the mean load from 1 on, such as 1.25", s.LoadFactor)
}

// Score sets 1 for the first endpoint in the prompt's order with room, 1/2 for the next, 1/3 and so on for some more.
func (s *consistentHashScorer) Score(r *scheduling.Request, candidates []scheduling.Candidate, scores []float64) {
	if r.Prefix == 0 {
		return
	}
	limit := s.loadLimit(candidates)
	var best struct {
		places [rankedPlaces]int
		hashes [rankedPlaces]uint64
	}
	ranked := 0
	for i := range candidates {
		c := &candidates[i]
		if c.Load.Requests+1 > limit {
			continue
		}
		hash, at := endpoint.RankServer(r.Prefix, c.Server.NameHash()), min(ranked, rankedPlaces-1)
		if ranked == rankedPlaces && hash <= best.hashes[at] {
			continue
		}
		for ; at > 0 && best.hashes[at-1] < hash; at-- {
			best.places[at], best.hashes[at] = best.places[at-1], best.hashes[at-1]
		}
		best.places[at], best.hashes[at] = i, hash
		ranked = min(ranked+1, rankedPlaces)
	}
	for rank, i := range best.places[:ranked] {
		scores[i] = 1 / float64(rank+1)
	}
}

// loadLimit returns the maximum number of requests of an endpoint, including this one. The least loaded endpoint is always below
// it.
func (s *consistentHashScorer) loadLimit(candidates []scheduling.Candidate) float64 {
	requests := 1.0
	for i := range candidates {
		requests += candidates[i].Load.Requests
	}
	return math.Ceil(s.LoadFactor * requests / float64(len(candidates)))
}
