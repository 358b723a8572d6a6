package plan

import (
	"cmp"
	"net/netip"
	"slices"
)

// Limits are the limits of a load balancer.
type Limits struct {
	PerSet int // backends of one set
	Total  int // backends of all sets
	// Reserved is the number of backends that draining ones leave free for new ones, of PerSet and of Total. Without it, new pods of
	// one set wait until a work request has removed draining backends of another.
	Reserved int
}

// Demand is the target of one set, and the limit of its owner.
type Demand struct {
	*Target

	Maximum int // active backends; 0: no limit but that of the set
}

// FitLimits shortens targets to the limits of their load balancer, of which other sets take some backends. Ready endpoints come first:
// if all of them do not fit, each set gets an equal share, and a set that needs less than its share leaves the rest to others. In a
// set, endpoints that are backends already stay. Draining backends get what is left; those that began last stay.
func FitLimits(sets []Demand, limits Limits, others int) {
	wants := make([]int, len(sets))
	for i, s := range sets {
		wants[i] = min(len(s.Active), limits.PerSet)
		if s.Maximum > 0 {
			wants[i] = min(wants[i], s.Maximum)
		}
	}
	shares := divideShares(wants, max(limits.Total-others, 0))
	left := limits.Total - others - limits.Reserved
	for i, s := range sets {
		s.shortenActive(shares[i])
		left -= len(s.Active)
	}
	var draining []drainingBackend
	for i, s := range sets {
		room := max(limits.PerSet-len(s.Active)-limits.Reserved, 0)
		for n, l := range s.Draining {
			draining = append(draining, drainingBackend{Leaving: l, set: i, fits: n < room})
		}
		s.Draining = nil
	}
	slices.SortStableFunc(draining, func(a, b drainingBackend) int { return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(a.set, b.set)) })
	for _, d := range draining {
		s := sets[d.set].Target
		if !d.fits || left <= 0 {
			s.Early = append(s.Early, d.Address)
			continue
		}
		left--
		s.Draining = append(s.Draining, d.Leaving)
	}
}

// drainingBackend is a draining backend of a set.
type drainingBackend struct {
	Leaving

	set  int
	fits bool // in the set
}

// divideShares divides n among wants: each gets what it wants, or an equal share if that is less.
func divideShares(wants []int, n int) []int {
	order := make([]int, len(wants))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(wants[a], wants[b]) })
	shares := make([]int, len(wants))
	for done, i := range order {
		shares[i] = min(wants[i], n/(len(order)-done))
		n -= shares[i]
	}
	return shares
}

// shortenActive keeps n active backends, and prefers those that the set has already.
func (t *Target) shortenActive(n int) {
	if len(t.Active) <= n {
		return
	}
	slices.SortStableFunc(t.Active, func(a, b netip.AddrPort) int {
		switch {
		case t.current[a] == t.current[b]:
			return 0
		case t.current[a]:
			return -1
		}
		return 1
	})
	t.Excess = slices.Clone(t.Active[n:])
	t.Active = t.Active[:n:n]
	slices.SortFunc(t.Active, netip.AddrPort.Compare)
}
