package optimizer

import (
	"cmp"
	"math"
	"slices"
)

// fitQuickly chooses one candidate of each list so that they take no more than there is, or returns nil if it finds no such choice: there
// may be one. It replaces one candidate after the other by the one that takes least at the present prices of the rooms, which rise steeply
// with what is taken. If no candidate takes a large part of a room, this fits nearly as much as is possible.
func fitQuickly(lists [][]option, rooms []int64, steps *int64) []int {
	f := &quickFit{lists: lists, rooms: rooms, picks: make([]int, len(lists)), taken: make([]float64, len(rooms)),
		prices: make([]float64, len(rooms))}
	candidates := int64(0)
	for _, list := range lists {
		if len(list) == 0 {
			return nil
		}
		candidates += int64(len(list))
	}
	for i := range lists {
		f.addPick(i, 1)
	}
	for _, steepness := range []float64{1, 4, 16, 32, 64, 128, 256} {
		if *steps -= candidates * int64(len(rooms)+1) / priceStep; *steps < 0 {
			*steps = 0
			return nil
		}
		if f.repickLists(steepness); f.isWithinRooms() {
			return f.picks
		}
	}
	return nil
}

// fitsQuickly reports whether a quick search finds that the members can have the shares that are granted to them together.
func (g *shareSearch) fitsQuickly() bool {
	lists := g.grantedCandidates(func(int, *option) int64 { return 0 })
	picks := fitQuickly(lists, g.rooms, &g.steps)
	if picks == nil {
		return false
	}
	g.setPlans(lists, picks)
	return true
}

// quickFit is a choice that is not within the rooms yet.
type quickFit struct {
	lists  [][]option
	rooms  []int64
	picks  []int
	taken  []float64
	prices []float64
}

func (f *quickFit) addPick(list int, sign float64) {
	for d, amount := range f.lists[list][f.picks[list]].uses {
		f.taken[d] += sign * float64(amount)
	}
}

// repickLists picks the candidate of each list again, at the prices of a steepness.
func (f *quickFit) repickLists(steepness float64) {
	for i, list := range f.lists {
		if len(list) == 1 {
			continue
		}
		f.addPick(i, -1)
		for d, room := range f.rooms {
			room := max(float64(room), 1)
			f.prices[d] = math.Exp(min(steepness*(f.taken[d]/room-1), maxExponent)) / room
		}
		least := math.Inf(1)
		for n := range list {
			sum := 0.0
			for d, amount := range list[n].uses {
				sum += f.prices[d] * float64(amount)
			}
			if sum < least {
				least, f.picks[i] = sum, n
			}
		}
		f.addPick(i, 1)
	}
}

// maxExponent keeps prices finite.
const maxExponent = 500

func (f *quickFit) isWithinRooms() bool {
	for d, room := range f.rooms {
		if f.taken[d] > float64(room) {
			return false
		}
	}
	return true
}

// fillShares raises the shares of the members of a tier beyond what a search that was cut short has granted: those of the least share
// first, as far as there is room beside what was found.
func (g *shareSearch) fillShares(members []int) {
	taken := make([]int64, len(g.rooms))
	for i := range g.found {
		addUse(taken, g.useOf(i))
	}
	order := slices.Clone(members)
	for range fillRounds {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(g.shareOf(a), g.shareOf(b)) })
		changed := false
		for _, i := range order {
			changed = g.raiseMember(i, taken) || changed
		}
		if !changed {
			return
		}
	}
}

// fillRounds bounds how often each share is raised. A model has as many shares as its replicas have combinations.
const fillRounds = 64

func (g *shareSearch) useOf(member int) []int64 {
	return g.appendUse(nil, member, g.found[member], g.shareOf(member))
}

func (g *shareSearch) shareOf(member int) int64 {
	return g.servedShare(g.members[member], g.found[member])
}

// raiseMember gives a member its next larger share for which there is room, and reports whether there was one.
func (g *shareSearch) raiseMember(member int, taken []int64) bool {
	present, uses, fits := g.shareOf(member), g.useOf(member), make([]int64, len(taken))
	points := g.points[member]
	for n := len(points) - 1; n >= 0; n-- { // the largest share is the first
		p := &points[n]
		if p.share <= present {
			continue
		}
		for d := range taken {
			fits[d] = taken[d] - uses[d] + p.uses[d]
		}
		if !fitsWithin(fits, g.rooms) {
			continue
		}
		copy(taken, fits)
		g.found[member] = p.replicas
		g.grants[member] = grant{least: p.share}
		return true
	}
	return false
}
