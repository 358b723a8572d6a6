package externalscaler

import (
	"cmp"
	"errors"
	"sync"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Errors of a lookup.
var (
	// ErrNotLeading means that this replica has no decisions: it does not lead, or its term has just begun.
	ErrNotLeading = errors.New("this replica has no decisions: it does not lead, or has not decided yet")
	// ErrUnknown means that there is no decision on what was asked for.
	ErrUnknown = errors.New("no decision")
)

// Query asks for the decision on a ScaledObject. All names are in its namespace.
type Query struct {
	Namespace    string
	ScaledObject string

	Variant    string // name of the variant; empty: not said
	TargetKind string // as TargetName; empty: any
	TargetName string // name of the workload; empty: not said
}

// wokenFor is the number of sets of decisions for which a variant stays awake that a request woke. The pass that runs at that time began
// before the request; the next one sees it.
const wokenFor = 2

// Table has the decisions of the current term. Its methods are safe for concurrent use.
type Table struct {
	mu      sync.Mutex
	term    *term        // nil while this replica does not lead
	woken   map[name]int // variants that a request woke, and for how many further sets of decisions they are
	changed chan struct{}
}

// term is a set of decisions.
type term struct {
	variants map[name]*decision.ActedVariant // without a kind
	objects  map[name]*decision.ActedVariant // that declare them
	targets  map[name]*decision.ActedVariant
	standby  map[snapshot.ModelKey][]*decision.ActedVariant // that start first when a request waits: one, or one of each role
	replicas map[snapshot.ModelKey]int                      // desired, of all variants
}

type name struct{ namespace, kind, name string }

// NewTable returns a Table of a replica that does not lead.
func NewTable() *Table { return &Table{woken: map[name]int{}, changed: make(chan struct{})} }

// Publish replaces all decisions.
func (t *Table) Publish(variants []decision.ActedVariant) {
	next := &term{
		variants: map[name]*decision.ActedVariant{}, objects: map[name]*decision.ActedVariant{}, targets: map[name]*decision.ActedVariant{},
		standby: map[snapshot.ModelKey][]*decision.ActedVariant{}, replicas: map[snapshot.ModelKey]int{},
	}
	for _, v := range variants {
		if v.Resolution != decision.Suppressed {
			next.addVariant(&v)
		}
	}
	t.setTerm(next)
}

// EndTerm removes all decisions, because this replica does not lead anymore.
func (t *Table) EndTerm() { t.setTerm(nil) }

func (t *Table) setTerm(to *term) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term == nil && to == nil {
		return
	}
	t.term = to
	for woken, left := range t.woken {
		if left > 1 && to != nil && to.variants[woken] != nil && to.variants[woken].Desired == 0 {
			t.woken[woken] = left - 1
		} else {
			delete(t.woken, woken)
		}
	}
	t.notifyChange()
}

// notifyChange wakes everybody who waits for a change.
func (t *Table) notifyChange() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// WakeModel gives each variant that starts first for a model a replica, until a pass that saw the request decides. It returns those that
// have to start. asleep reports that the model has no replicas: then a pass has to decide soon.
func (t *Table) WakeModel(key snapshot.ModelKey) (starts []decision.ActedVariant, asleep bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term == nil {
		return nil, false
	}
	replicas, known := t.term.replicas[key]
	standby := t.term.standby[key]
	if len(standby) == 0 {
		return nil, known && replicas == 0
	}
	for _, v := range standby {
		if t.isAsleep(v) {
			t.woken[nameOf(v)] = wokenFor
			starts = append(starts, *v)
		}
	}
	if len(starts) > 0 {
		t.notifyChange()
	}
	return starts, len(starts) > 0
}

// Asleep returns the variants that WakeModel would wake, in no order.
func (t *Table) Asleep() []decision.ActedVariant {
	t.mu.Lock()
	defer t.mu.Unlock()
	var asleep []decision.ActedVariant
	if t.term != nil {
		for _, standby := range t.term.standby {
			for _, v := range standby {
				if t.isAsleep(v) {
					asleep = append(asleep, *v)
				}
			}
		}
	}
	return asleep
}

func (t *Table) isAsleep(v *decision.ActedVariant) bool {
	return v.Desired == 0 && t.woken[nameOf(v)] == 0
}

func nameOf(v *decision.ActedVariant) name { return name{v.Namespace, "", v.Name} }

// Watch reports whether there are decisions, and returns a channel that is closed at the next change. Call it before you read what may
// change.
func (t *Table) Watch() (leading bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.term != nil, t.changed
}

// Lookup returns the desired replicas of a variant, ErrNotLeading or ErrUnknown. The variant is the one that the query names, the one with
// the target that it names, the ScaledObject that is a variant itself, a variant with the name of the ScaledObject, or the one with a
// target of that name; the first of them that the query speaks of. A query that names a variant or a target gets no other: a mistake in a
// name must not scale by the decision on something else.
func (t *Table) Lookup(q Query) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term == nil {
		return 0, ErrNotLeading
	}
	v := t.term.findVariant(q)
	switch {
	case v == nil:
		return 0, ErrUnknown
	case v.Desired == 0 && t.woken[nameOf(v)] > 0:
		return 1, nil
	}
	return v.Desired, nil
}

// addVariant adds a variant. Of several with one name or target, the first one has it.
func (t *term) addVariant(v *decision.ActedVariant) {
	put := func(variants map[name]*decision.ActedVariant, kind, called string) {
		if key := (name{v.Namespace, kind, called}); variants[key] == nil {
			variants[key] = v
		}
	}
	put(t.targets, "", v.Target.Name)
	put(t.targets, v.Target.Kind, v.Target.Name)
	put(t.variants, "", v.Name)
	served := v.ModelKey()
	if t.replicas[served] += v.Desired; v.Standby {
		t.standby[served] = append(t.standby[served], v)
	}
	put(t.objects, string(v.Source), cmp.Or(v.ObjectName, v.Name))
}

func (t *term) findVariant(q Query) *decision.ActedVariant {
	switch {
	case q.Variant != "":
		return t.variants[name{q.Namespace, "", q.Variant}]
	case q.TargetName != "":
		return t.targets[name{q.Namespace, q.TargetKind, q.TargetName}]
	}
	found := []*decision.ActedVariant{
		t.objects[name{q.Namespace, string(snapshot.ScaledObject), q.ScaledObject}],
		t.variants[name{q.Namespace, "", q.ScaledObject}],
		t.targets[name{q.Namespace, "", q.ScaledObject}],
	}
	return cmp.Or(found...)
}
