// Package pass runs the passes of the leader. A pass decides on all variants together:
//
//	variants    the objects of the cluster declare them (package sources)
//	settings    the ConfigMaps of the administrator (package settings)
//	load        of each group, and samples of its replicas, from Prometheus (package collect)
//	learned     what a replica of a variant serves (package learn), and what earlier passes decided (package memory)
//	decision    from all of this, as one snapshot (package decision)
//
// The Publisher acts on the decision, and reports it. A failure of a group or a variant affects only that group or variant.
package pass

import (
	"context"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/learn"
	"fairlead.dev/services/variant-autoscaler/internal/memory"
	"fairlead.dev/services/variant-autoscaler/internal/scale"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// Options are the settings of all groups, from flags.
type Options struct {
	snapshot.Settings

	// Window is how long replicas stay after they were wanted.
	Window time.Duration
	// Rates is the window of rates in Prometheus. Zero: rates count alone, without those before.
	Rates time.Duration
	// Forecast raises the demand to what the trend of the load says for the time in which a replica starts.
	Forecast bool
	// Writes reports that this program writes the replicas of targets.
	Writes bool
	// Limiter limits variants to the accelerators that nodes have free, whatever the ConfigMaps say.
	Limiter bool
}

// Collector reads the load of groups.
type Collector interface {
	Collect(ctx context.Context, now time.Time, groups []collect.Group) []collect.Result
}

// waitCounter counts the requests that wait in pickers, by model. Its numbers are newer than those in Prometheus.
type waitCounter interface {
	// WatchModels sets the models that may have no replicas. A pass calls it first.
	WatchModels(models []snapshot.ModelKey)
	// CountWaiting returns how many requests wait for a model, and the most that waited at a time since the pass before the last one.
	// watched reports whether the picker of its pool is observed.
	CountWaiting(k snapshot.ModelKey) (now, since int, watched bool)
}

// Parts of a pass.
const (
	PartVariants = "variants"
	PartLoad     = "load" // Prometheus
	PartDecision = "decision"
	PartActuate  = "actuate" // metrics, and with --actuator=scale the replicas of targets
	PartReport   = "report"
)

// Outcome is the result of a pass.
type Outcome struct {
	Sources  *sources.Result
	Snapshot *snapshot.Snapshot
	Decision *decision.Decision
}

// publisher acts on decisions.
type publisher interface {
	// Actuate passes a decision on to the programs that scale, or scales.
	Actuate(ctx context.Context, o *Outcome)
	// ReportOutcome reports a decision to the owners of variants.
	ReportOutcome(ctx context.Context, o *Outcome) error
	// EndTerm forgets all decisions: this replica no longer leads.
	EndTerm()
}

// Params are the parts of Passes.
type Params struct {
	Options
	Log   *zap.Logger
	World informers.Caches
	// Scales begins to read the targets of kinds that are not watched. Nil: none can be read.
	Scales func(ctx context.Context) (read scale.Read, end func())
	// LocalQueues begins to read the queues of Kueue that variants name.
	LocalQueues func(ctx context.Context) (read informers.ReadQueue, end func())
	Waits       waitCounter // nil: only Prometheus has their number
	// Configuration returns the settings of the ConfigMaps.
	Configuration func() *settings.Settings
	// Prometheus returns the collector for the address in the settings, or an error that says what to set.
	Prometheus func(s *settings.Settings) (Collector, error)
	Publisher  publisher
	// ObservePart is called with the time that a part of a pass took.
	ObservePart func(name string, took time.Duration)
	Now         func() time.Time
}

// Passes runs passes. It is not safe for concurrent use: a term runs one pass at a time.
type Passes struct {
	p        Params
	memory   *memory.Memory
	learners map[learnerKey]*learn.Learner
}

// learnerKey names what replicas of a variant do: with another role, nothing that was learned before is true.
type learnerKey struct {
	snapshot.VariantKey
	role snapshot.Role
}

// New returns Passes with an empty memory.
func New(p Params) *Passes {
	passes := &Passes{p: p}
	passes.Reset()
	return passes
}

// Reset forgets all passes: a term as leader ends, or begins.
func (p *Passes) Reset() {
	p.memory, p.learners = memory.New(p.p.Window), map[learnerKey]*learn.Learner{}
	p.p.Publisher.EndTerm()
	if p.p.Waits != nil {
		p.p.Waits.WatchModels(nil)
	}
}

// RunPass decides on all variants. It returns the interval until the next pass, and the number of variants.
func (p *Passes) RunPass(ctx context.Context) (interval time.Duration, active int, err error) {
	s := p.p.Configuration()
	interval, now, began := s.Interval(), p.p.Now(), p.p.Now()
	part := func(name string) {
		end := p.p.Now()
		p.p.ObservePart(name, end.Sub(began))
		began = end
	}
	params := sources.Params{
		PerNamespace: s.MaxVariants, Prices: s.Prices(), Writes: p.p.Writes, CanStop: func(namespace, model string) bool {
			enabled, _ := s.ScaleToZero(namespace, model)
			return enabled
		},
	}
	if p.p.Scales != nil {
		read, end := p.p.Scales(ctx)
		defer end()
		params.Scale = read
	}
	found, err := sources.Collect(p.p.World, params)
	if err != nil {
		return interval, 0, fmt.Errorf("read variants: %w", err)
	}
	part(PartVariants)
	active = len(found.Rejected)
	for i := range found.Groups {
		active += len(found.Groups[i].Variants)
	}
	o := &Outcome{Sources: found, Snapshot: p.buildSnapshot(ctx, s, found, now)}
	if err := ctx.Err(); err != nil {
		return interval, active, err
	}
	part(PartLoad)
	if o.Decision, err = decision.Decide(o.Snapshot); err != nil {
		return interval, active, fmt.Errorf("decide: %w", err)
	}
	part(PartDecision)
	p.recordOutcome(o, now)
	p.p.Publisher.Actuate(ctx, o)
	part(PartActuate)
	if err := p.p.Publisher.ReportOutcome(ctx, o); err != nil {
		return interval, active, fmt.Errorf("report: %w", err)
	}
	part(PartReport)
	return interval, active, nil
}

// recordOutcome records a decision, and forgets variants and groups that are gone.
func (p *Passes) recordOutcome(o *Outcome, now time.Time) {
	variants, groups, learners := map[snapshot.VariantKey]bool{}, map[snapshot.GroupKey]bool{}, map[learnerKey]bool{}
	for g := range o.Snapshot.Groups {
		group, total := &o.Snapshot.Groups[g], 0
		for i := range group.Variants {
			key, d := group.Variants[i].Key(), &o.Decision.Groups[g].Variants[i]
			known := p.memory.VariantFor(key, now)
			known.RecordDecision(d.Wanted, d.Desired, now)
			if known.Trying = false; d.Trial {
				known.StartTrial(now)
			}
			variants[key], learners[learnerKey{key, group.Role}] = true, true
			total += d.Desired
		}
		key := group.Key()
		p.memory.GroupFor(key, now).RecordDecision(total, o.Decision.Groups[g].Standby, now)
		groups[key] = true
	}
	p.memory.RetainOnly(variants, groups)
	maps.DeleteFunc(p.learners, func(key learnerKey, _ *learn.Learner) bool { return !learners[key] })
}
