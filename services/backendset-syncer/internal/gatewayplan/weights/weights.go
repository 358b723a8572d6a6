// Package weights turns the weights of several backendRefs into weights of the backends of one backend set.
//
// A rule of a routing policy has one backend set, so a rule with several backendRefs gets a set with the endpoints of all of them. OCI
// sends a backend of weight 3 three times the requests of a backend of weight 1. A backendRef of weight w with n endpoints should
// have the share w / Σw of the requests, so each of its backends should have a weight in proportion to w / n. OCI takes whole numbers
// from 1 to 100. Scale tries every scale, from that which gives the largest backend weight 1 to that which gives it 100, and takes the
// one with the smallest error: the largest deviation of a share, relative to the share. Of scales with the same error, the smallest
// wins.
//
// The error has a bound. Let q be the largest w / n divided by the smallest, and top the largest weight, 100. For q <= top, rounding
// changes each weight by at most the factor 1 ± d, d = q / (2 top), and the error is at most 2d / (1 - d):
//
//	q      1    2     4     10      20      50     100
//	error  0    2 %   4.1 % 10.5 %  22.2 %  67 %   200 %
//
// Beyond that, backends of the smallest weight get 1, and so more than their share. Result.Error tells the caller.
//
// An endpoint of several backendRefs gets the sum of its weights. To keep the sum within 100, top is 100 divided by the largest number
// of backendRefs that share an endpoint. A backendRef without endpoints has no share: the others divide it among them, where
// the Gateway API asks for errors. Session persistence and the policy IP_HASH distort all shares.
package weights

import (
	"math/bits"
	"net/netip"
	"slices"
)

// Maximum is the largest weight of a backend that OCI accepts.
const Maximum = 100

// tolerance is by how much the error of the previous weights may exceed the smallest possible error before all weights change: an
// endpoint that comes or goes changes w / n, and each change of weights rewrites the set.
const tolerance = 0.1

// Group is the endpoints of a backendRef.
type Group struct {
	Weight    int32            // 0 to 1000000
	Addresses []netip.AddrPort // each once
}

// Choice is what the next call of Scale needs to keep weights as they are.
type Choice struct {
	Wanted []int32 // of each group
	Chosen []int   // of each backend of a group; 0: the group has no share
}

// Result is the weights of a set.
type Result struct {
	Backends map[netip.AddrPort]int
	Choice   Choice
	// Error is the largest deviation of the share of a group, relative to its share: with 0.5, a group that should get 10 % of the
	// requests gets 5 % or 15 %.
	Error float64
}

// Scale returns the weights of the backends of a set. Groups with weight 0 have no backends. The previous weights stay if the groups
// still want the same, and their error is at most tolerance above the smallest possible error.
func Scale(groups []Group, previous Choice) Result {
	s := newScaler(groups)
	chosen, smallest := s.findBest()
	if kept, deviation, ok := s.reusePrevious(previous); ok && deviation.asFloat()-smallest.asFloat() <= tolerance {
		chosen, smallest = kept, deviation
	}
	r := Result{Backends: map[netip.AddrPort]int{}, Choice: Choice{Wanted: s.wanted, Chosen: chosen}, Error: smallest.asFloat()}
	for i, g := range groups {
		if chosen[i] == 0 {
			continue
		}
		for _, address := range g.Addresses {
			r.Backends[address] = min(r.Backends[address]+chosen[i], Maximum)
		}
	}
	return r
}

// scaler has the groups as numbers.
type scaler struct {
	wanted  []int32
	weights []uint64 // 0: no share
	counts  []uint64
	largest int // the group with the largest weight of a backend; -1: no group has a share
	top     int
}

func newScaler(groups []Group) *scaler {
	s := &scaler{largest: -1, top: Maximum}
	sharing := map[netip.AddrPort]int{}
	for i, g := range groups {
		weight, count := uint64(max(g.Weight, 0)), uint64(len(g.Addresses))
		if count == 0 {
			weight = 0
		}
		s.wanted, s.weights, s.counts = append(s.wanted, g.Weight), append(s.weights, weight), append(s.counts, count)
		if weight == 0 {
			continue
		}
		if s.largest < 0 || weight*s.counts[s.largest] > s.weights[s.largest]*count {
			s.largest = i
		}
		for _, address := range g.Addresses {
			sharing[address]++
			s.top = min(s.top, Maximum/min(sharing[address], Maximum))
		}
	}
	return s
}

// findBest returns the weights with the smallest error.
func (s *scaler) findBest() ([]int, fraction) {
	chosen := make([]int, len(s.weights))
	if s.largest < 0 {
		return chosen, fraction{0, 1}
	}
	smallest := fraction{1, 0}
	for scale := 1; scale <= s.top; scale++ {
		candidate := s.weightsAt(scale)
		if deviation := s.maxDeviation(candidate); deviation.isLessThan(smallest) {
			chosen, smallest = candidate, deviation
		}
	}
	return chosen, smallest
}

// weightsAt returns the weights for which the largest one is scale.
func (s *scaler) weightsAt(scale int) []int {
	chosen := make([]int, len(s.weights))
	for i, weight := range s.weights {
		if weight == 0 {
			continue
		}
		above := weight * s.counts[s.largest] * uint64(scale)
		below := s.weights[s.largest] * s.counts[i]
		chosen[i] = max(1, int((2*above+below)/(2*below)))
	}
	return chosen
}

// reusePrevious returns the previous weights and their error, and false if they cannot stay.
func (s *scaler) reusePrevious(previous Choice) ([]int, fraction, bool) {
	if s.largest < 0 || !slices.Equal(previous.Wanted, s.wanted) || len(previous.Chosen) != len(s.weights) {
		return nil, fraction{}, false
	}
	for i, weight := range s.weights {
		if chosen := previous.Chosen[i]; chosen > s.top || weight > 0 && chosen < 1 {
			return nil, fraction{}, false
		}
	}
	return slices.Clone(previous.Chosen), s.maxDeviation(previous.Chosen), true
}

// maxDeviation returns the error of weights.
func (s *scaler) maxDeviation(chosen []int) fraction {
	var wantedTotal, total uint64 // weights of the groups, and of their backends
	for i, weight := range s.weights {
		if weight > 0 {
			wantedTotal += weight
			total += uint64(chosen[i]) * s.counts[i]
		}
	}
	largest := fraction{0, 1}
	for i, weight := range s.weights {
		if weight == 0 {
			continue
		}
		got, want := uint64(chosen[i])*s.counts[i]*wantedTotal, weight*total
		if f := (fraction{max(got, want) - min(got, want), want}); largest.isLessThan(f) {
			largest = f
		}
	}
	return largest
}

// fraction is a number that compares exactly, so that replicas on different processors agree.
type fraction struct{ above, below uint64 }

func (f fraction) isLessThan(other fraction) bool {
	high, low := bits.Mul64(f.above, other.below)
	otherHigh, otherLow := bits.Mul64(other.above, f.below)
	return high < otherHigh || high == otherHigh && low < otherLow
}

func (f fraction) asFloat() float64 { return float64(f.above) / float64(f.below) }
