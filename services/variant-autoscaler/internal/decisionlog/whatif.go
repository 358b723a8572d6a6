package decisionlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// maxCost of a replica, and maxTarget in milliseconds, are far beyond real ones, and the optimizer accepts them.
	maxCost   = 1e7
	maxTarget = 1e9
)

// Changes are the differences of a snapshot for a question "what if". Each is NAME=VALUE. NAME is namespace/variant for what concerns
// variants and namespace/model for what concerns models, with * for any characters but a slash.
type Changes struct {
	Costs, Min, Max   []string                     // of variants
	TTFT, ITL, Rates  []string                     // of models: milliseconds, and requests per second
	Settings          []func(s *snapshot.Settings) // each changes a setting
	IgnoreStabilizing bool                         // forget what was wanted before
}

// IsEmpty reports whether nothing changes.
func (c *Changes) IsEmpty() bool {
	return len(c.Costs)+len(c.Min)+len(c.Max)+len(c.TTFT)+len(c.ITL)+len(c.Rates)+len(c.Settings) == 0 && !c.IgnoreStabilizing
}

// Apply returns a changed copy of a snapshot. A change that concerns nothing is an error: its name has a mistake.
func (c *Changes) Apply(s *snapshot.Snapshot) (*snapshot.Snapshot, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("copy snapshot: %w", err)
	}
	changed := &snapshot.Snapshot{}
	if err := json.Unmarshal(text, changed); err != nil {
		return nil, fmt.Errorf("copy snapshot: %w", err)
	}
	for _, change := range c.Settings {
		change(&changed.Settings)
	}
	variants, models := variantsOf(changed), modelsOf(changed)
	if c.IgnoreStabilizing { // the decision follows the plan at once
		changed.Settings.SavingPercent = 0
		for _, v := range variants {
			v.item.Held = 0
		}
	}
	return changed, errors.Join(
		applyChanges("--cost", c.Costs, variants, maxCost, func(v *snapshot.Variant, x float64) { v.Cost = int64(math.Round(x * million)) }),
		applyChanges("--min", c.Min, variants, optimizer.MaxReplicas, func(v *snapshot.Variant, x float64) { v.Min = int(x) }),
		applyChanges("--max", c.Max, variants, optimizer.MaxReplicas, func(v *snapshot.Variant, x float64) { v.Max = int(x) }),
		applyChanges("--ttft", c.TTFT, models, maxTarget, func(g *snapshot.Group, x float64) { g.Targets.TTFT, g.Targets.TTFTPerToken = x, 0 }),
		applyChanges("--itl", c.ITL, models, maxTarget, func(g *snapshot.Group, x float64) { g.Targets.ITL = x }),
		applyChanges("--rate", c.Rates, models, optimizer.MaxRate/million, func(g *snapshot.Group, x float64) {
			g.Load.Rate, g.Load.State = int64(x*million), snapshot.Found
		}),
	)
}

// namedItem is a variant or a group with its name.
type namedItem[T any] struct {
	name string
	item *T
}

func variantsOf(s *snapshot.Snapshot) []namedItem[snapshot.Variant] {
	var variants []namedItem[snapshot.Variant]
	for g := range s.Groups {
		for i := range s.Groups[g].Variants {
			v := &s.Groups[g].Variants[i]
			variants = append(variants, namedItem[snapshot.Variant]{v.Namespace + "/" + v.Name, v})
		}
	}
	return variants
}

func modelsOf(s *snapshot.Snapshot) []namedItem[snapshot.Group] {
	var models []namedItem[snapshot.Group]
	for i := range s.Groups {
		g := &s.Groups[i]
		// Models often have a slash in their names. Patterns treat it as any other character of the name.
		models = append(models, namedItem[snapshot.Group]{g.Namespace + "/" + strings.ReplaceAll(g.Model, "/", "\x00"), g})
	}
	return models
}

// applyChanges sets the value of each change of the form NAME=VALUE in what its name matches.
func applyChanges[T any](flag string, changes []string, items []namedItem[T], most float64, set func(t *T, x float64)) error {
	for _, text := range changes {
		pattern, value, found := strings.Cut(text, "=")
		x, err := strconv.ParseFloat(value, 64)
		if !found || err != nil || !(x >= 0 && x <= most) { // NaN is not in the range either
			return fmt.Errorf("%s %q: give NAME=VALUE with a number from 0 to %.0f", flag, text, most)
		}
		namespace, name, slash := strings.Cut(pattern, "/")
		if !slash {
			return fmt.Errorf("%s %q: the name is not namespace/name", flag, text)
		}
		pattern, matched := namespace+"/"+strings.ReplaceAll(name, "/", "\x00"), false
		for _, t := range items {
			ok, err := path.Match(pattern, t.name)
			if err != nil {
				return fmt.Errorf("%s %q: %w", flag, text, err)
			}
			if ok {
				set(t.item, x)
				matched = true
			}
		}
		if !matched {
			return fmt.Errorf("%s %q: the snapshot has nothing of this name", flag, text)
		}
	}
	return nil
}
