// Package rules says what holds for a request by what it asks for: its priority, by the name of an InferenceObjective,
// and the model that takes it, by the rules of InferenceModelRewrites. It is pure: it reads objects that others have
// fetched, and a caller brings the randomness.
//
// Read makes an object of a kind's spec, or says what is wrong with it; Compile makes a Snapshot of all objects, in
// which every question is one look into a map; Rules holds the Snapshot of the moment. Nothing here allocates when it
// is asked.
//
// Which rewrite a model gets:
//
//	a rule that names the model      before   a rule that names none, which is for all models
//	the rule of an older object      before   that of a younger one; of equally old ones that of the first name
//	an earlier rule of an object     before   a later one
//
// Among the targets of the rule one is drawn by weight. Weights are relative; targets without one count as 1, so that
// none of them starves beside those that have weights; if all are 0 the draw is even.
package rules

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// An Objective is what is read of an InferenceObjective.
type Objective struct {
	Name     string
	Priority int
}

// A RewriteObject is what is read of an InferenceModelRewrite.
type RewriteObject struct {
	Name    string
	Created time.Time
	Rules   []Rule
}

// A Rule says where requests for some models go.
type Rule struct {
	Models  []string // empty: all
	Targets []Target // at least one
}

// A Target is a model that takes requests.
type Target struct {
	Model  string
	Weight uint32
}

// A Rewrite is the outcome of a rule.
type Rewrite struct {
	Object string // the InferenceModelRewrite that says so
	Target string // the model that takes the request
}

// Snapshot is all rules at one moment. It is never changed. The zero Snapshot has none.
type Snapshot struct {
	priorities map[string]int
	exact      map[string]*draw
	generic    *draw
}

// draw is a rule that is ready to be asked.
type draw struct {
	outcomes []Rewrite
	sums     []uint64 // of the weights up to each outcome
}

// Compile makes a Snapshot, which keeps nothing of its input.
func Compile(objectives []Objective, rewrites []RewriteObject) *Snapshot {
	s := &Snapshot{priorities: make(map[string]int, len(objectives)), exact: map[string]*draw{}}
	for _, o := range objectives {
		s.priorities[o.Name] = o.Priority
	}
	rewrites = slices.Clone(rewrites)
	slices.SortStableFunc(rewrites, func(a, b RewriteObject) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	for _, object := range rewrites {
		for _, rule := range object.Rules {
			s.add(object.Name, rule)
		}
	}
	return s
}

// Priority returns the priority of the objective of that name, if there is one.
func (s *Snapshot) Priority(objective string) (priority int, found bool) {
	priority, found = s.priorities[objective]
	return priority, found
}

// Rewrite returns what the model is rewritten to, if it is. The number decides among several targets.
func (s *Snapshot) Rewrite(model string, random uint64) (Rewrite, bool) {
	d := s.exact[model]
	if d == nil {
		d = s.generic
	}
	if d == nil {
		return Rewrite{}, false
	}
	return d.pick(random), true
}

// Models returns the names of all models that rewrites speak of, each once, sorted.
func (s *Snapshot) Models() []string {
	named := map[string]bool{}
	for model, d := range s.exact {
		named[model] = true
		d.name(named)
	}
	if s.generic != nil {
		s.generic.name(named)
	}
	return slices.Sorted(maps.Keys(named))
}

// add takes a rule, which is later than all that were added before.
func (s *Snapshot) add(object string, rule Rule) {
	d := newDraw(object, rule.Targets)
	if len(rule.Models) == 0 && s.generic == nil {
		s.generic = d
	}
	for _, model := range rule.Models {
		if s.exact[model] == nil {
			s.exact[model] = d
		}
	}
}

// name adds the names of the targets.
func (d *draw) name(named map[string]bool) {
	for _, o := range d.outcomes {
		named[o.Target] = true
	}
}

func newDraw(object string, targets []Target) *draw {
	d := &draw{}
	sum := uint64(0)
	for _, t := range targets {
		sum += uint64(t.Weight)
	}
	even := sum == 0
	sum = 0
	for _, t := range targets {
		weight := uint64(t.Weight)
		if even {
			weight = 1
		}
		sum += weight
		d.outcomes = append(d.outcomes, Rewrite{Object: object, Target: t.Model})
		d.sums = append(d.sums, sum)
	}
	return d
}

// pick draws an outcome. The bias of a division of 2^64 by weights of at most a few millions is nothing.
func (d *draw) pick(random uint64) Rewrite {
	if len(d.outcomes) == 1 {
		return d.outcomes[0]
	}
	drawn := random % d.sums[len(d.sums)-1]
	i := 0
	for d.sums[i] <= drawn {
		i++
	}
	return d.outcomes[i]
}

// Rules holds the Snapshot of the moment, for readers on any goroutine. The zero Rules has none.
type Rules struct {
	current atomic.Pointer[Snapshot]
}

// New returns Rules without any.
func New() *Rules { return &Rules{} }

// Set replaces the Snapshot.
func (r *Rules) Set(s *Snapshot) { r.current.Store(s) }

// Snapshot returns the current Snapshot, for questions that belong together.
func (r *Rules) Snapshot() *Snapshot {
	if s := r.current.Load(); s != nil {
		return s
	}
	return &none
}

var none Snapshot

// Priority asks the current Snapshot.
func (r *Rules) Priority(objective string) (priority int, found bool) {
	return r.Snapshot().Priority(objective)
}

// Rewrite asks the current Snapshot.
func (r *Rules) Rewrite(model string, random uint64) (Rewrite, bool) {
	return r.Snapshot().Rewrite(model, random)
}
