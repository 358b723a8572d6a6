package sources

import (
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Where the costs of a group come from.
const (
	CostOfVariants = "variantCost"            // what every object says
	CostOfCards    = "accelerator-unit-costs" // prices of cards
	CostDefault    = "default"                // the same for all
)

const (
	micro = 1_000_000
	// defaultCost is upstream's default.
	defaultCost = 10 * micro
	// maxCost is the largest cost of a replica that the optimizer accepts, in micro-units.
	maxCost = 1e13
	// maxTotal bounds the cost of all replicas of all variants. The optimizer accepts a little more.
	maxTotal = 2e18
)

// readCost reads the cost that the object says.
func (v *Variant) readCost() {
	text := strings.TrimSpace(v.spec.Cost)
	if text == "" {
		return
	}
	cost, err := settings.ParseAmount(text)
	if err != nil || cost > maxCost {
		v.rejectWith(snapshot.InvalidConfiguration, "the cost is %q: use a number such as 12.5, of at most %d", text, int64(maxCost/micro))
		return
	}
	v.declaredCost = &cost
}

// setCosts gives all variants of a group costs from one source: those of different sources have different units.
func (g *Group) setCosts(prices map[string]int64) {
	source := g.costSource(prices)
	for i := range g.Variants {
		v := &g.Variants[i]
		v.Cost, v.CostSource = defaultCost, source
		switch source {
		case CostOfVariants:
			v.Cost = ptr.Deref(v.declaredCost, defaultCost)
		case CostOfCards:
			v.priceCards(prices)
		}
	}
}

// costSource ignores variants with problems, so that they do not change the costs of others.
func (g *Group) costSource(prices map[string]int64) string {
	asked, defaulted, priced := true, true, false
	active := slices.ContainsFunc(g.Variants, func(v Variant) bool { return v.Problem == nil })
	for i := range g.Variants {
		v := &g.Variants[i]
		if v.Problem != nil && active {
			continue
		}
		_, known := prices[v.Accelerator]
		priced = priced || known
		asked = asked && v.declaredCost != nil
		// The annotation has a default, which is in its own unit. The field has none: with upstream's, nobody could leave it to the prices.
		defaulted = defaulted && (v.declaredCost != nil || v.Source != snapshot.VariantAutoscaling)
	}
	switch {
	case asked:
		return CostOfVariants
	case priced:
		return CostOfCards
	case defaulted:
		return CostOfVariants
	}
	return CostDefault
}

func (v *Variant) priceCards(prices map[string]int64) {
	price, known := prices[v.Accelerator]
	switch {
	case !known:
		v.rejectWith(snapshot.UnknownAccelerator, "accelerator %q has no price: add it to the ConfigMap accelerator-unit-costs, or set the cost of every variant of the model",
			v.Accelerator)
	case price < 0 || price > maxCost/v.Cards:
		v.rejectWith(snapshot.InvalidConfiguration, "%d cards of accelerator %q cost too much: correct its price, or the number of cards", v.Cards,
			v.Accelerator)
	default:
		v.Cost = price * v.Cards
	}
}

// boundCosts lowers the maximums of the variants whose replicas could cost most together, until all fit. Only variants that cost more than
// an equal part of maxTotal are concerned, so no number of strangers' variants limits those of usual costs.
func boundCosts(groups []Group) {
	var variants []*Variant
	var costs []int64
	for i := range groups {
		for n := range groups[i].Variants {
			v := &groups[i].Variants[n]
			variants, costs = append(variants, v), append(costs, v.totalCost())
		}
	}
	level := fairLevel(costs, maxTotal)
	for _, v := range variants {
		if v.totalCost() <= level {
			continue
		}
		if v.Cost > level { // there are more than 200 000 variants
			v.rejectWith(snapshot.LimitExceeded, "a replica costs more than the optimizer can add up: lower the cost")
			v.Cost = level
		}
		most := int(level / v.Cost)
		if asked := v.largestMax(); asked > 0 {
			v.addNote(snapshot.LimitExceeded, "%d replicas cost more than the optimizer can add up: at most %d are used", asked, most)
		}
		if least := v.largestMin(); least > most {
			v.rejectWith(snapshot.LimitExceeded, "%d replicas cost more than the optimizer can add up: lower the cost or the minimum", least)
			v.Min, v.Schedule = min(v.Min, most), nil
		}
		v.lowerMaximums(most)
	}
}

// lowerMaximums lowers the maximum, and those of the schedule, to at most a number.
func (v *Variant) lowerMaximums(most int) {
	if v.Max == 0 || v.Max > most {
		v.Max = most
	}
	v.Schedule = slices.Clone(v.Schedule) // informers share it
	for i := range v.Schedule {
		if high := &v.Schedule[i].Max; *high != nil && **high > most {
			*high = &most
		}
	}
}

// totalCost is the cost of all replicas that a variant may ever have.
func (v *Variant) totalCost() int64 {
	if most := v.largestMax(); most > 0 {
		return v.Cost * int64(most)
	}
	return v.Cost * optimizer.MaxReplicas
}

// largestMax is the largest maximum that a variant may ever have, 0 for none.
func (v *Variant) largestMax() int {
	most := v.Max
	for i := range v.Schedule {
		if most == 0 {
			return 0
		}
		most = max(most, v.BoundsOf(&v.Schedule[i]).Max)
	}
	return most
}

// largestMin is the largest minimum that a variant may ever have.
func (v *Variant) largestMin() int {
	least := v.Min
	for i := range v.Schedule {
		least = max(least, v.BoundsOf(&v.Schedule[i]).Min)
	}
	return least
}
