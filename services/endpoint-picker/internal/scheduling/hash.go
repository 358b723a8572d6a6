package scheduling

import (
	"math"

	"github.com/cespare/xxhash/v2"
)

// rankedPlaces is how many endpoints of a prompt's order are told apart. The load bound rules out the first ones only under
// load, and after so many of them it matters little who has the prompt.
const rankedPlaces = 8

// ConsistentHashScorer sends requests with one beginning to one endpoint, and on to the next when that has too much to do.
//
// Each beginning has an order of endpoints of its own: that of a hash of both, so an endpoint that comes or goes moves only
// the requests that it takes or had (rendezvous hashing). Nothing is remembered: pickers that see the same endpoints agree,
// also after a restart. An endpoint has too much when it would have more than Bound times the mean; so a beginning that
// everybody sends spreads over as many endpoints as it needs.
type ConsistentHashScorer struct {
	Bound float64 // 1 or more
}

// Score sets 1 for the first in the prompt's order that has room, 1/2 for the next, 1/3 and so on for some more.
func (s ConsistentHashScorer) Score(r *Request, candidates []Candidate, scores []float64) {
	if r.Prefix == 0 {
		return
	}
	limit := s.limit(candidates)
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
		hash, at := rendezvous(r.Prefix, c.Server), min(ranked, rankedPlaces-1)
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

// limit is the most requests that an endpoint may have, this one among them. The least busy one is always below.
func (s ConsistentHashScorer) limit(candidates []Candidate) float64 {
	requests := 1.0
	for i := range candidates {
		requests += candidates[i].Load.Requests
	}
	return math.Ceil(s.Bound * requests / float64(len(candidates)))
}

// Hash stands for the endpoint. The port tells the endpoints of one pod apart; the address does not count, as a pod that
// comes back under its name has another.
func (s *Server) Hash() uint64 { return mix(xxhash.Sum64String(s.Name) + uint64(s.Address.Port())) }

// rendezvous is the endpoint's place in the order of a prompt's beginning: the highest is the first.
func rendezvous(beginning uint64, server *Server) uint64 { return Rendezvous(beginning, server.Hash()) }

// Rendezvous is the place of a server, by its hash, in the order of servers that a prompt has, by a hash of it: the
// highest is the first. Pickers that see the same servers agree on it.
func Rendezvous(prompt, server uint64) uint64 { return mix(server ^ mix(prompt)) }
