package simulation

import (
	"math/rand/v2"
	"time"
)

// A Policy is a way to choose servers.
type Policy struct {
	Name  string
	start func(f *fleet) chooser
}

// chooser is an active policy.
type chooser interface {
	// choosePlacement returns a server for a request, or false.
	choosePlacement(a *arrival) (placement, bool)
	// addServer and leave announce that a server was added to the list, or removed.
	addServer(s *server)
	removeServer(s *server)
}

// placement is the choice for one request. It receives the events that a gateway sees, in this order; lost replaces the
// remaining ones if the answer breaks off.
type placement interface {
	targetServer() *server
	travelTime() time.Duration // of the request to the server
	onStatus(status int)
	onFirstPiece()
	onMoreContent()
	onClientGone()
	onEnd(j *job) // nil: with an error
	onServerLost()
	onFailureStart(f *Failure) // the response begins
	onFailure(f *Failure)
}

// reference is a policy that knows the true state of the fleet, which no picker can.
type reference struct {
	fleet  *fleet
	random *rand.Rand
	cost   func(s *server, a *arrival) float64
}

func newReference(name string, cost func(f *fleet) func(s *server, a *arrival) float64) Policy {
	return Policy{Name: name, start: func(f *fleet) chooser {
		return &reference{fleet: f, random: rand.New(rand.NewPCG(f.seed, 1)), cost: cost(f)}
	}}
}

// choosePlacement returns the living server with the lowest cost.
func (r *reference) choosePlacement(a *arrival) (placement, bool) {
	var best *server
	low := 0.0
	for _, i := range r.random.Perm(len(r.fleet.servers)) {
		s := r.fleet.servers[i]
		if s.dead {
			continue
		}
		if cost := r.cost(s, a); best == nil || cost < low {
			best, low = s, cost
		}
	}
	return fixedPlacement{best}, best != nil
}

func (*reference) addServer(*server)    {}
func (*reference) removeServer(*server) {}

// fixedPlacement is a placement without feedback.
type fixedPlacement struct{ on *server }

func (c fixedPlacement) targetServer() *server { return c.on }

// travelTime implements placement. A reference knows the true state of servers, which includes what it has just sent to them.
func (fixedPlacement) travelTime() time.Duration { return 0 }

func (fixedPlacement) onStatus(int)            {}
func (fixedPlacement) onFirstPiece()           {}
func (fixedPlacement) onMoreContent()          {}
func (fixedPlacement) onClientGone()           {}
func (fixedPlacement) onEnd(*job)              {}
func (fixedPlacement) onServerLost()           {}
func (fixedPlacement) onFailureStart(*Failure) {}
func (fixedPlacement) onFailure(*Failure)      {}

// Greedy chooses the earliest first token, with knowledge of the future. It is a strong reference, but not optimal: it
// ignores later requests.
func Greedy() Policy {
	const perRequest = 1e-6 // seconds: prefers fewer requests between equal servers
	return newReference("greedy", func(*fleet) func(*server, *arrival) float64 {
		return func(s *server, a *arrival) float64 {
			return s.forecast(a).Seconds() + perRequest*float64(s.requestCount())
		}
	})
}

// LMetric chooses the smallest product of the prompt tokens that a server has to compute, and of its requests, both with this one
// (arXiv 2603.15202).
func LMetric() Policy {
	return newReference("lmetric", func(*fleet) func(*server, *arrival) float64 {
		return func(s *server, a *arrival) float64 {
			tokens := s.uncachedTokens(a)
			for _, j := range s.allJobs() {
				tokens += j.prompted
			}
			return float64(tokens) * float64(s.requestCount()+1)
		}
	})
}

// RoundRobin chooses one living server after the other.
func RoundRobin() Policy {
	return Policy{Name: "roundrobin", start: func(f *fleet) chooser { return &roundRobin{fleet: f} }}
}

type roundRobin struct {
	fleet *fleet
	next  int
}

func (r *roundRobin) choosePlacement(*arrival) (placement, bool) {
	for range r.fleet.servers {
		s := r.fleet.servers[r.next%len(r.fleet.servers)]
		r.next++
		if !s.dead {
			return fixedPlacement{s}, true
		}
	}
	return nil, false
}

func (*roundRobin) addServer(*server)    {}
func (*roundRobin) removeServer(*server) {}
