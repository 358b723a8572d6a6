// Rules determine the settings of a request from its headers and model: its priority, by the name of an
// InferenceObjective, and its target model, by the rules of InferenceModelRewrites. It is pure: callers provide the objects
// and the randomness.
//
// ReadObjective and ReadRewrite convert an object, or return its problems. CompileRules makes a RulesSnapshot of all objects, in which
// every query is one map look-up. Rules holds the current RulesSnapshot. Queries do not allocate.
//
// The order of rewrites for a model:
//
//	a rule that names the model      before   a rule that names none, which is for all models
//	the rule of an older object      before   that of a younger one; of equally old ones that of the first name
//	an earlier rule of an object     before   a later one
//
// A target of the rule is drawn by weight. Weights are relative. Targets without a weight count as 1 if other targets have
// weights; if all weights are 0, all targets have the same chance.

package pool

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// An Objective is the needed part of an InferenceObjective.
type Objective struct {
	Name     string
	Priority int
}

// A RewriteObject is the needed part of an InferenceModelRewrite.
type RewriteObject struct {
	Name    string
	Created time.Time
	Rules   []Rule
}

// A Rule contains the targets for requests to some models.
type Rule struct {
	Models  []string        // empty: all
	Targets []RewriteTarget // at least one
}

// A RewriteTarget is a target model.
type RewriteTarget struct {
	Model  string
	Weight uint32
}

// A Rewrite is the result of a rule.
type Rewrite struct {
	Object string // the InferenceModelRewrite with the rule
	Target string // the target model
}

// RulesSnapshot contains all rules at one moment. It is never changed. The zero RulesSnapshot is empty.
type RulesSnapshot struct {
	priorities map[string]int
	exact      map[string]*weightedTargets
	generic    *weightedTargets
}

// weightedTargets is a prepared rule.
type weightedTargets struct {
	object  string
	targets []RewriteTarget
	sum     uint64 // of the weights
}

// CompileRules makes a RulesSnapshot. It does not refer to its input.
func CompileRules(objectives []Objective, rewrites []RewriteObject) *RulesSnapshot {
	s := &RulesSnapshot{priorities: make(map[string]int, len(objectives)), exact: map[string]*weightedTargets{}}
	for _, o := range objectives {
		s.priorities[o.Name] = o.Priority
	}
	rewrites = slices.Clone(rewrites)
	slices.SortStableFunc(rewrites, func(a, b RewriteObject) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	for _, object := range rewrites {
		for _, rule := range object.Rules {
			s.addRule(object.Name, rule)
		}
	}
	return s
}

// PriorityOf returns the priority of the objective with a name, if it exists.
func (s *RulesSnapshot) PriorityOf(objective string) (priority int, found bool) {
	priority, found = s.priorities[objective]
	return priority, found
}

// PickRewrite returns the rewrite for a model, if there is one. The random number selects one of several targets.
func (s *RulesSnapshot) PickRewrite(model string, random uint64) (Rewrite, bool) {
	d := s.exact[model]
	if d == nil {
		d = s.generic
	}
	if d == nil {
		return Rewrite{}, false
	}
	return d.pickTarget(random), true
}

// HasRewrites reports whether there are rewrites.
func (s *RulesSnapshot) HasRewrites() bool { return s.generic != nil || len(s.exact) > 0 }

// Models returns the distinct names of all models in rewrites, sorted.
func (s *RulesSnapshot) Models() []string {
	named := map[string]bool{}
	for model, d := range s.exact {
		named[model] = true
		d.addNames(named)
	}
	if s.generic != nil {
		s.generic.addNames(named)
	}
	return slices.Sorted(maps.Keys(named))
}

// addRule adds a rule, which comes after all rules that were added before.
func (s *RulesSnapshot) addRule(object string, rule Rule) {
	d := newWeightedTargets(object, rule.Targets)
	if len(rule.Models) == 0 && s.generic == nil {
		s.generic = d
	}
	for _, model := range rule.Models {
		if s.exact[model] == nil {
			s.exact[model] = d
		}
	}
}

// addNames adds the names of the targets.
func (d *weightedTargets) addNames(named map[string]bool) {
	for _, t := range d.targets {
		named[t.Model] = true
	}
}

func newWeightedTargets(object string, targets []RewriteTarget) *weightedTargets {
	d := &weightedTargets{object: object, targets: slices.Clone(targets)}
	for _, t := range targets {
		d.sum += uint64(t.Weight)
	}
	return d
}

// pickTarget draws a target. The bias of dividing 2^64 by weights of at most a few millions is negligible.
func (d *weightedTargets) pickTarget(random uint64) Rewrite {
	i := 0
	if d.sum == 0 {
		i = int(random % uint64(len(d.targets)))
	} else {
		for drawn := random % d.sum; uint64(d.targets[i].Weight) <= drawn; i++ {
			drawn -= uint64(d.targets[i].Weight)
		}
	}
	return Rewrite{Object: d.object, Target: d.targets[i].Model}
}

// Rules holds the current RulesSnapshot. It is safe for concurrent use.
type Rules struct {
	current atomic.Pointer[RulesSnapshot]
}

// NewRules returns empty Rules.
func NewRules() *Rules {
	r := &Rules{}
	r.SetSnapshot(&RulesSnapshot{})
	return r
}

// SetSnapshot replaces the RulesSnapshot.
func (r *Rules) SetSnapshot(s *RulesSnapshot) { r.current.Store(s) }

// CurrentSnapshot returns the current RulesSnapshot, for consistent queries.
func (r *Rules) CurrentSnapshot() *RulesSnapshot { return r.current.Load() }
