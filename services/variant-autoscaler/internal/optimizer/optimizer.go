// Package optimizer finds the cheapest replicas of all variants that serve the load within its targets. It is pure, and exact: all
// numbers are whole, so that there is one best plan, and the same problem gives it on every machine.
//
// Variants of one group share a load. The picker, not the optimizer, splits it: a replica of a variant with the weight w gets the part
// w/W of it, W being the sum of the weights of all replicas. A variant in use must not get more than its capacity r, so a group whose
// variants serve a load S needs
//
//	W ≥ S·w/r    of each variant in use
//
// Plans are compared by the shares of the demand that groups can serve, priority by priority, the worst-served group first; then by
// cost, by replicas, by changes, and last by the replicas themselves, in the order of namespace and name.
//
//	Solve      the best plan of each group by itself; limits that these plans exceed join groups into components (cover.go)
//	shares     of a component: how well its groups can be served within the limits (shares.go)
//	options    of a group: the ways to serve it so, of which none is better in everything than another one (options.go)
//	choice     one option of each group within the limits, at the least cost: prices for what limits count, then dynamic programming over
//	           the options that the prices cannot rule out (prices.go, choice.go)
//	bounds     every search counts its steps, listings too; where they do not suffice, the plan keeps to all limits, is not the best
//	           for sure, and its Bound is below its cost
//	Stabilize  hysteresis and stabilization, after the plan and never part of it (stabilize.go)
package optimizer

import (
	"fmt"
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Million is a full share.
const Million = 1_000_000

// Split is how the picker divides the load of a group.
type Split string

// Splits.
const (
	SplitCapacity Split = "capacity" // by the capacity of replicas
	SplitEqual    Split = "equal"    // each replica gets the same
	SplitObserved Split = "observed" // as it was seen to; a variant that was not seen, by its capacity
)

// Problem is one optimization. Costs are micro-units per replica and hour, rates are micro-requests per second.
type Problem struct {
	Split           Split
	HeadroomPercent int64
	// SavingPercent is the least saving for which a plan replaces the present one.
	SavingPercent int64
	Limits        []snapshot.Limit
	Groups        []Group
}

// UnitPlaces is the unit of limits of places for pods on nodes, or of cards of a quota. They count the variants that name them, whatever
// their other fields.
const UnitPlaces snapshot.Unit = "places"

// Group is the variants that share one load.
type Group struct {
	Namespace, Pool, Model string
	Priority               int // 1 is the most important
	Rate                   int64
	NeedsReplica           bool // it may not have zero replicas
	Variants               []Variant
}

// Variant is one way to serve a model. Its name is unique in its namespace.
type Variant struct {
	Name        string
	Accelerator string
	Cards       int64 // of a replica
	Cost        int64 // of a replica
	Min, Max    int   // Max 0: no maximum
	Now         int
	Held        int   // most replicas wanted in the stabilization window
	Weight      int64 // load that a replica was seen to get; 0: not seen
	Capacity    int64 // of a replica, within the targets; 0: the variant is set aside
	Places      []Places
}

// Places are what a replica takes of a limit of places, or of a quota.
type Places struct {
	Limit  int // position in the problem
	Amount int64
}

// Plan is the solution of a problem. Lists of variants are in the order of the problem.
type Plan struct {
	Replicas []int
	Shares   []int64 // by group
	Cost     int64
	// Bound is what no plan that serves as much can undercut. It is Cost if the plan is proven to be the best, and less if a search was
	// cut short.
	Bound int64
	// Limiting are the limits that make the plan serve less or cost more.
	Limiting []int
}

// Solve returns the best plan of a valid problem.
func Solve(p *Problem) *Plan {
	return newSolver(p).solveGroups()
}

func (s *solver) solveGroups() *Plan {
	bounds := make([]int64, len(s.groups))
	for g := range s.groups {
		best, bound := s.bestPlan(g)
		s.setGroupPlan(g, best)
		bounds[g] = bound
	}
	s.unlimited = slices.Clone(s.plan)
	// A limit that the best plan without it keeps to has no effect.
	var active []int
	solved := map[string]int64{} // bounds of components, by their limits
	for exceeded := s.exceededLimits(s.plan); len(exceeded) > 0; exceeded = s.exceededLimits(s.plan) {
		active = append(active, exceeded...)
		slices.Sort(active)
		for _, c := range s.joinComponents(active) {
			// The plan of a component that no further limit joined is the same as before.
			key := fmt.Sprint(c.limits)
			if _, found := solved[key]; found {
				continue
			}
			solved[key] = s.solveComponent(c)
		}
	}
	plan := &Plan{Replicas: s.plan}
	for _, c := range s.joinComponents(active) {
		plan.Bound += solved[fmt.Sprint(c.limits)]
		for _, g := range c.members {
			bounds[g] = 0
		}
	}
	for _, l := range active {
		plan.Limiting = append(plan.Limiting, s.limits[l].index)
	}
	for g := range s.groups {
		plan.Shares = append(plan.Shares, s.servedShare(g, s.groupPlan(g)))
		plan.Cost += s.costOf(g, s.groupPlan(g))
		plan.Bound += bounds[g]
	}
	return plan
}

// solver is a problem in the form of the search. Variants are numbered over all groups.
type solver struct {
	problem   *Problem
	variants  []variant
	groups    []group
	limits    []limit
	rank      []int // of each variant, by namespace and name
	plan      []int
	unlimited []int // the plan without limits

	steps, listSteps int64 // that the search, and the listing of plans, may still take
}

// limit is a limit in the form of the search.
type limit struct {
	index  int   // in the problem
	amount int64 // raised to what the minima take
}

// limitUse is how much of a limit a replica uses.
type limitUse struct {
	limit  int
	amount int64
}

// variant is a variant in the form of the search.
type variant struct {
	cost, capacity, weight int64
	low, high              int // more than high never helps
	max, now, held         int
	aside                  bool
	limitUses              []limitUse // by limit
}

// limitAmount returns how much of a limit a replica uses.
func (v *variant) limitAmount(limit int) int64 {
	for _, t := range v.limitUses {
		if t.limit == limit {
			return t.amount
		}
	}
	return 0
}

// group is a group in the form of the search.
type group struct {
	first, end   int   // of its variants
	order        []int // of its variants by name, from first
	tier         int   // 0 has the most important priority
	demand       int64
	needsReplica bool
	clipped      bool // the sums of its weights may be too large
}

// groupPlan returns the plan of a group.
func (s *solver) groupPlan(g int) []int { return s.plan[s.groups[g].first:s.groups[g].end] }

// groupVariants returns the variants of a group.
func (s *solver) groupVariants(g int) []variant { return s.variants[s.groups[g].first:s.groups[g].end] }

func (s *solver) setGroupPlan(g int, replicas []int) { copy(s.groupPlan(g), replicas) }

func (s *solver) costOf(g int, replicas []int) int64 {
	var sum int64
	for i, v := range s.groupVariants(g) {
		sum += v.cost * int64(replicas[i])
	}
	return sum
}

// usageOf returns how much of a limit a group uses.
func (s *solver) usageOf(g, limit int, replicas []int) int64 {
	var sum int64
	for i, n := range replicas {
		if n > 0 {
			sum += s.groupVariants(g)[i].limitAmount(limit) * int64(n)
		}
	}
	return sum
}

// usage returns how much of each limit a plan uses.
func (s *solver) usage(plan []int) []int64 {
	sums := make([]int64, len(s.limits))
	for i, n := range plan {
		for _, t := range s.variants[i].limitUses {
			sums[t.limit] += t.amount * int64(n)
		}
	}
	return sums
}

// exceededLimits returns the limits that a plan exceeds.
func (s *solver) exceededLimits(plan []int) []int {
	var exceeded []int
	for l, sum := range s.usage(plan) {
		if sum > s.limits[l].amount {
			exceeded = append(exceeded, l)
		}
	}
	return exceeded
}
