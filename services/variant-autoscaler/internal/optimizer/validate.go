package optimizer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Bounds of numbers, so that no sum overflows.
const (
	// MaxReplicas is the most replicas of a variant.
	MaxReplicas = 100_000
	// MaxHeadroom is the largest headroom, in percent.
	MaxHeadroom = 1000
	// MaxRate is the largest rate, weight and capacity, in micro-requests per second.
	MaxRate = 1e15
	// MaxVariants, MaxLimits and MaxPlaces are the most variants, limits, and limits of places and quotas of a problem.
	MaxVariants = 10_000
	MaxLimits   = 1000
	MaxPlaces   = 512

	maxCost  = 1e13
	maxCards = 1e6
	maxTotal = math.MaxInt64 / 4 // cost of all replicas
)

// Validate returns an error that names the first number that is out of range.
func (p *Problem) Validate() error {
	splits := []Split{SplitCapacity, SplitEqual, SplitObserved}
	switch {
	case !slices.Contains(splits, p.Split):
		return fmt.Errorf("split %q is not one of capacity, equal, observed", p.Split)
	case p.HeadroomPercent < 0 || p.HeadroomPercent > MaxHeadroom:
		return fmt.Errorf("the headroom is %d %%", p.HeadroomPercent)
	}
	if err := p.validateNumber(); err != nil {
		return err
	}
	for i := range p.Limits {
		if err := validateLimit(&p.Limits[i]); err != nil {
			return fmt.Errorf("limit %d: %w", i, err)
		}
	}
	return p.validateGroups()
}

func (p *Problem) validateNumber() error {
	places := 0
	for i := range p.Limits {
		if p.Limits[i].Unit == UnitPlaces {
			places++
		}
	}
	switch others := len(p.Limits) - places; {
	case others > MaxLimits:
		return fmt.Errorf("there are %d limits, and at most %d are allowed", others, MaxLimits)
	case places > MaxPlaces:
		return fmt.Errorf("there are %d limits of places, and at most %d are allowed", places, MaxPlaces)
	}
	return nil
}

func (p *Problem) validateGroups() error {
	seen, total := map[[2]string]bool{}, 0.0
	for i := range p.Groups {
		g := &p.Groups[i]
		if err := g.validate(); err != nil {
			return fmt.Errorf("group %d: %w", i, err)
		}
		for n := range g.Variants {
			v := &g.Variants[n]
			name := [2]string{g.Namespace, v.Name}
			if seen[name] {
				return fmt.Errorf("group %d: another variant of namespace %q is called %q", i, g.Namespace, v.Name)
			}
			if err := p.validatePlaces(v); err != nil {
				return fmt.Errorf("group %d: variant %q: %w", i, v.Name, err)
			}
			if seen[name] = true; len(seen) > MaxVariants {
				return fmt.Errorf("there are more than %d variants", MaxVariants)
			}
			if total += float64(v.Cost) * float64(cmp.Or(v.Max, MaxReplicas)); total > maxTotal {
				return fmt.Errorf("group %d: variant %q: all replicas together cost more than %d", i, v.Name, int64(maxTotal))
			}
		}
	}
	return nil
}

// validatePlaces refuses two numbers for one limit, and numbers that could overflow.
func (p *Problem) validatePlaces(v *Variant) error {
	for i, places := range v.Places {
		switch {
		case places.Limit < 0 || places.Limit >= len(p.Limits) || p.Limits[places.Limit].Unit != UnitPlaces:
			return fmt.Errorf("limit %d is none of places", places.Limit)
		case i > 0 && places.Limit <= v.Places[i-1].Limit:
			return errors.New("the limits of places are not in their order")
		case places.Amount < 0 || places.Amount > maxCards:
			return fmt.Errorf("a replica takes %d places", places.Amount)
		}
	}
	return nil
}

func validateLimit(l *snapshot.Limit) error {
	switch {
	case !slices.Contains([]snapshot.Unit{snapshot.Cards, snapshot.Replicas, snapshot.Cost, UnitPlaces}, l.Unit):
		return fmt.Errorf("unit %q is not one of cards, replicas, cost, places", l.Unit)
	case l.Amount < 0 || l.Amount > maxTotal:
		return fmt.Errorf("the amount is %d", l.Amount)
	case l.Priority < 0:
		return fmt.Errorf("the priority is %d", l.Priority)
	}
	return nil
}

func (g *Group) validate() error {
	if g.Rate < 0 || g.Rate > MaxRate {
		return fmt.Errorf("the rate is %d", g.Rate)
	}
	if g.Priority < 1 {
		return fmt.Errorf("the priority is %d", g.Priority)
	}
	for n := range g.Variants {
		if err := g.Variants[n].validate(); err != nil {
			return fmt.Errorf("variant %q: %w", g.Variants[n].Name, err)
		}
	}
	return nil
}

func (v *Variant) validate() error {
	for _, n := range []struct {
		name               string
		value, least, most int64
	}{
		{"cost", v.Cost, 0, maxCost},
		{"number of cards", v.Cards, 1, maxCards},
		{"least number of replicas", int64(v.Min), 0, MaxReplicas},
		{"largest number of replicas", int64(v.Max), 0, MaxReplicas},
		{"present number of replicas", int64(v.Now), 0, MaxReplicas},
		{"number of held replicas", int64(v.Held), 0, MaxReplicas},
		{"weight", v.Weight, 0, MaxRate},
		{"capacity", v.Capacity, 0, MaxRate},
	} {
		if n.value < n.least || n.value > n.most {
			return fmt.Errorf("the %s is %d", n.name, n.value)
		}
	}
	if v.Max > 0 && v.Max < v.Min {
		return fmt.Errorf("at most %d replicas, and at least %d", v.Max, v.Min)
	}
	return nil
}
