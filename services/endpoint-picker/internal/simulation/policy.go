package simulation

import "math/rand/v2"

// A Policy is a way to choose servers.
type Policy struct {
	Name  string
	start func(f *fleet) chooser
}

// chooser is a policy at work.
type chooser interface {
	// choose finds a server for a request, or reports that it cannot.
	choose(a *arrival) (placement, bool)
	// join and leave say that a server is listed from now on, or no longer.
	join(s *server)
	leave(s *server)
}

// placement is what was chosen for one request. It is told what a gateway sees of the answer, in this order; lost instead
// of the rest if the answer broke off.
type placement interface {
	server() *server
	responded(status int)
	piece()
	ended(a *arrival)
	lost()
}

// reference is a policy that sees the fleet as it is, which no picker can.
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

// choose takes the living server of the least cost, any of several.
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

// chosen is a placement that nobody learns from.
type chosen struct{ on *server }

func (c chosen) server() *server { return c.on }
func (chosen) responded(int)     {}
func (chosen) piece()            {}
func (chosen) ended(*arrival)    {}
func (chosen) lost()             {}

// Greedy takes the earliest first token, as the future will be. It is a strong reference, and not the best that can be:
// it gives no thought to those that come after.
func Greedy() Policy {
	const perRequest = 1e-6 // seconds: between equals, the one with fewer
	return newReference("greedy", func(*fleet) func(*server, *arrival) float64 {
		return func(s *server, a *arrival) float64 {
			return s.forecast(a).Seconds() + perRequest*float64(s.requests())
		}
	})
}

// LeastLoad takes the fewest requests.
func LeastLoad() Policy {
	return newReference("leastload", func(*fleet) func(*server, *arrival) float64 {
		return func(s *server, _ *arrival) float64 { return float64(s.requests()) }
	})
}

// Random takes any.
func Random() Policy {
	return newReference("random", func(*fleet) func(*server, *arrival) float64 {
		return func(*server, *arrival) float64 { return 0 }
	})
}

// Pin takes the same for all requests of a group, as long as it lives.
func Pin() Policy {
	return newReference("pin", func(f *fleet) func(*server, *arrival) float64 {
		return func(s *server, a *arrival) float64 {
			n := len(f.servers)
			return float64((s.number + n - a.group%n) % n)
		}
	})
}
