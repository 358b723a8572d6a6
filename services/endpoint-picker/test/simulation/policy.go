package simulation

import "math/rand/v2"

// A Policy is a way to choose servers.
type Policy struct {
	Name  string
	start func(f *fleet) chooser
}

// chooser is an active policy.
type chooser interface {
	// choose returns a server for a request, or false.
	choose(a *arrival) (placement, bool)
	// join and leave announce that a server was added to the list, or removed.
	join(s *server)
	leave(s *server)
}

// placement is the choice for one request. It receives the events that a gateway sees, in this order; lost replaces the
// remaining ones if the answer breaks off.
type placement interface {
	server() *server
	responded(status int)
	piece()
	ended(a *arrival)
	lost()
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

// choose returns the living server with the lowest cost.
func (r *reference) choose(a *arrival) (placement, bool) {
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
	return chosen{best}, best != nil
}

func (*reference) join(*server)  {}
func (*reference) leave(*server) {}

// chosen is a placement without feedback.
type chosen struct{ on *server }

func (c chosen) server() *server { return c.on }
func (chosen) responded(int)     {}
func (chosen) piece()            {}
func (chosen) ended(*arrival)    {}
func (chosen) lost()             {}

// Greedy chooses the earliest first token, with knowledge of the future. It is a strong reference, but not optimal: it
// ignores later requests.
func Greedy() Policy {
	const perRequest = 1e-6 // seconds: prefers fewer requests between equal servers
	return newReference("greedy", func(*fleet) func(*server, *arrival) float64 {
		return func(s *server, a *arrival) float64 {
			return s.forecast(a).Seconds() + perRequest*float64(s.requests())
		}
	})
}

// LeastLoad chooses the server with the fewest requests.
func LeastLoad() Policy {
	return newReference("leastload", func(*fleet) func(*server, *arrival) float64 {
		return func(s *server, _ *arrival) float64 { return float64(s.requests()) }
	})
}

// Random chooses any server.
func Random() Policy {
	return newReference("random", func(*fleet) func(*server, *arrival) float64 {
		return func(*server, *arrival) float64 { return 0 }
	})
}

// Pin chooses the same server for all requests of a group, while it lives.
func Pin() Policy {
	return newReference("pin", func(f *fleet) func(*server, *arrival) float64 {
		return func(s *server, a *arrival) float64 {
			n := len(f.servers)
			return float64((s.number + n - a.group%n) % n)
		}
	})
}
