// Package apply writes the replicas of targets.
//
//	Targets    all writes of the program, each after a look at who else writes the target
//	Applier    gives targets their desired replicas, for --actuator=scale
//	Starter    gives targets their first replica, if a request waits and nothing else starts them
//
// What an Applier does:
//
//	the target                                          is
//	has the desired replicas                            not read again
//	has an autoscaler, a controller, or a problem       left alone
//	has other replicas than the decision was made on    left alone: the next pass decides on them
//	had other replicas again after several writes       left alone for a while: another program writes them, too
//	has the replicas that the decision was made on      scaled
//
// A pass spends at most writeTime on all writes, and namespaces take turns. The next pass writes the rest.
package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/util/workqueue"

	"fairlead.dev/pkg/apis/llmd/v1alpha1"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/scale"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// workers is the number of targets that are written at a time. The rate limit of the client binds before.
	workers = 8
	// writeTime is how long the writes of a pass may take. It suffices for 500 targets at the default rate of requests: each is read and
	// written.
	writeTime = 20 * time.Second
	// targetTime is how long one target may take, with the time that the API server asks to wait for. A webhook that is slow for all
	// targets of a namespace takes a quarter of writeTime from a worker, and then others are first.
	targetTime = 5 * time.Second

	// maxOverwrites is how often a target is written in overwriteTime although somebody has changed its replicas since the last write. A
	// program that applies a manifest with replicas changes them after each write, and pods would start and stop in each pass. Someone who
	// scales by hand does so less often.
	maxOverwrites = 3
	overwriteTime = 30 * time.Minute
)

// errContested means that somebody has changed the replicas of a target after each of the last writes.
var errContested = fmt.Errorf("somebody has changed them back after each of %d writes within %s, and this program waits for as long. Leave replicas out of the "+
	"manifests of the workload, set the bounds of the variant, or exclude it. kubectl get --show-managed-fields says who writes them", maxOverwrites, overwriteTime)

// meter counts writes.
type meter interface {
	// CountWrite counts a target whose replicas were to be written.
	CountWrite(result string)
	// CountOverwrite counts a target whose replicas somebody had changed since the last write.
	CountOverwrite()
}

// Params are the parts of an Applier.
type Params struct {
	Log     *zap.Logger
	Targets *Targets
	Meter   meter
	Now     func() time.Time
}

// writeHistory is what was written to a target.
type writeHistory struct {
	replicas   int         // of the last write
	overwrites []time.Time // writes over replicas that somebody had changed since the one before
}

// Applier writes the decisions of one term. One goroutine may use it.
type Applier struct {
	p       Params
	written map[scale.Object]*writeHistory
	refused map[scale.Object]string // reason of the last pass
}

// New returns an Applier.
func New(p Params) *Applier {
	a := &Applier{p: p}
	a.EndTerm()
	return a
}

// EndTerm ends the term.
func (a *Applier) EndTerm() {
	a.written, a.refused = map[scale.Object]*writeHistory{}, map[scale.Object]string{}
	a.p.Targets.drainStarted()
}

// Apply writes the replicas of all variants that have a decision, and returns the outcome of each, in their order. When ctx ends, it stops
// writing.
func (a *Applier) Apply(ctx context.Context, variants []decision.ActedVariant) []decision.Outcome {
	a.recordStarts()
	outcomes := make([]decision.Outcome, len(variants))
	var due []int
	for i := range variants {
		if outcome, decided := a.outcomeWithoutWrite(&variants[i]); decided {
			outcomes[i] = outcome
		} else {
			due = append(due, i)
		}
	}
	order := snapshot.TakeTurns(due, func(i int) string { return variants[i].Namespace })
	results := a.writeTargets(ctx, variants, order)
	refused := map[scale.Object]string{}
	for _, i := range due {
		v := &variants[i]
		outcomes[i] = writeOutcome(v, results[i])
		if ctx.Err() != nil && !outcomes[i].Applied {
			continue // the term has ended: the next leader decides
		}
		a.p.Meter.CountWrite(outcomes[i].Reason)
		a.logOutcome(v, outcomes[i], refused)
	}
	a.forgetAbsent(variants)
	a.refused = refused
	return outcomes
}

// outcomeWithoutWrite returns the outcome of a variant whose target needs no write, or must not be written.
func (a *Applier) outcomeWithoutWrite(v *decision.ActedVariant) (outcome decision.Outcome, decided bool) {
	if v.Resolution == decision.Suppressed {
		return decision.Outcome{}, true
	}
	switch o := a.p.Targets.Ownership(v.Namespace, v.Target); {
	case o.Follower != "":
		return decision.Outcome{
			Applied: true, Reason: v1alpha1.ReasonPublished, Message: o.Follower + " follows the desired replicas",
		}, true
	case o.Problem != nil:
		return decision.Outcome{Reason: o.Problem.Reason, Message: o.Problem.Message}, true
	case v.Desired == v.Now:
		return scaledOutcome(v), true
	}
	return decision.Outcome{}, v.Reason == decision.Excluded // it keeps its replicas
}

// scaledOutcome is the outcome for a target that has its replicas.
func scaledOutcome(v *decision.ActedVariant) decision.Outcome {
	return decision.Outcome{Applied: true, Reason: v1alpha1.ReasonScaled, Message: nameOf(v) + " has the desired replicas"}
}

func objectOf(v *decision.ActedVariant) scale.Object {
	return scale.Object{Namespace: v.Namespace, Target: v.Target}
}

// loggerFor returns a logger that names the target of a variant.
func loggerFor(log *zap.Logger, v *decision.ActedVariant) *zap.Logger {
	return log.With(zap.String(logging.KeyNamespace, v.Namespace), zap.String(logging.KeyKind, v.Target.Kind),
		zap.String(logging.KeyName, v.Target.Name))
}

func nameOf(v *decision.ActedVariant) string { return v.Target.Kind + " " + v.Target.Name }

// writeResult is the result of a write.
type writeResult struct {
	written bool
	err     error
}

// writeTargets writes the replicas of variants, and returns the results by their index.
func (a *Applier) writeTargets(ctx context.Context, variants []decision.ActedVariant, order []int) []writeResult {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	results := make([]writeResult, len(variants))
	workqueue.ParallelizeUntil(context.Background(), workers, len(order), func(n int) {
		results[order[n]] = a.writeTarget(ctx, &variants[order[n]])
	})
	return results
}

// writeTarget writes the replicas of a variant.
func (a *Applier) writeTarget(ctx context.Context, v *decision.ActedVariant) writeResult {
	if a.isContested(v) {
		return writeResult{err: errContested}
	}
	ctx, cancel := context.WithTimeout(ctx, targetTime)
	defer cancel()
	written, err := a.p.Targets.Scale(ctx, scale.Change{Namespace: v.Namespace, Target: v.Target, From: v.Now, To: v.Desired})
	return writeResult{written: written, err: err}
}

// isContested reports whether somebody has changed the replicas of a target after each of the last writes.
func (a *Applier) isContested(v *decision.ActedVariant) bool {
	last := a.written[objectOf(v)]
	if last == nil || last.replicas == v.Now || len(last.overwrites) < maxOverwrites {
		return false
	}
	return a.p.Now().Sub(last.overwrites[len(last.overwrites)-maxOverwrites]) < overwriteTime
}

// recordStarts records the first replicas that targets got between two passes. Without it, each wake-up would count as a change by somebody
// else.
func (a *Applier) recordStarts() {
	for key := range a.p.Targets.drainStarted() {
		if last := a.written[key]; last != nil {
			last.replicas = 1
		}
	}
}

// recordWrite records a write, and reports whether it overwrote replicas that somebody had changed.
func (a *Applier) recordWrite(key scale.Object, v *decision.ActedVariant) (overwrote bool) {
	last := a.written[key]
	if last == nil {
		last = &writeHistory{replicas: v.Now}
		a.written[key] = last
	}
	if overwrote = last.replicas != v.Now; overwrote {
		a.p.Meter.CountOverwrite()
		last.overwrites = append(last.overwrites[max(0, len(last.overwrites)-maxOverwrites+1):], a.p.Now())
	}
	last.replicas = v.Desired
	return overwrote
}

// writeOutcome returns the outcome of a write. Where the next pass does not suffice, its message says what to do.
func writeOutcome(v *decision.ActedVariant, r writeResult) decision.Outcome {
	var owned *ownedError
	fail := func(reason, format string, args ...any) decision.Outcome {
		return decision.Outcome{Reason: reason, Message: fmt.Sprintf("%s does not have the desired replicas: %s", nameOf(v),
			fmt.Sprintf(format, args...))}
	}
	switch {
	case r.err == nil:
		outcome := scaledOutcome(v)
		if r.written {
			outcome.Event = fmt.Sprintf("Scaled %s from %d to %d replicas", nameOf(v), v.Now, v.Desired)
		}
		return outcome
	case errors.As(r.err, &owned) && owned.owner.Problem != nil:
		return fail(owned.owner.Problem.Reason, "%v", r.err)
	case errors.Is(r.err, ErrNotLeading), errors.Is(r.err, ErrOwned):
		return fail(v1alpha1.ReasonNotApplied, "%v", r.err)
	case errors.Is(r.err, errContested):
		return fail(v1alpha1.ReasonScaleConflict, "%v", r.err)
	case errors.Is(r.err, scale.ErrChanged):
		return fail(v1alpha1.ReasonScaleConflict, "%v. The next pass decides again; if this lasts, find out who else scales it", r.err)
	case errors.Is(r.err, scale.ErrBusy):
		return fail(v1alpha1.ReasonScaleDeferred, "%v. The next pass tries again; if this lasts, see the load of the API server and its webhooks", r.err)
	case errors.Is(r.err, scale.ErrForbidden):
		return fail(v1alpha1.ReasonScaleForbidden, "%v", r.err)
	default:
		return fail(v1alpha1.ReasonScaleFailed, "%v. The next pass tries again", r.err)
	}
}

// logOutcome logs a change, or a failure that the pass before did not have.
func (a *Applier) logOutcome(v *decision.ActedVariant, o decision.Outcome, refused map[scale.Object]string) {
	key := objectOf(v)
	log := loggerFor(a.p.Log, v).With(zap.Int("desired", v.Desired))
	switch {
	case o.Event != "":
		log.Info("Scaled a target", zap.Int("before", v.Now), zap.Bool("overwrote", a.recordWrite(key, v)))
	case !o.Applied:
		if refused[key] = o.Reason; a.refused[key] != o.Reason {
			log.Warn("Could not scale a target", zap.String(logging.KeyReason, o.Reason), zap.String("message", o.Message))
		}
	}
}

// forgetAbsent forgets the targets that no variant has.
func (a *Applier) forgetAbsent(variants []decision.ActedVariant) {
	present := make(map[scale.Object]bool, len(variants))
	for i := range variants {
		present[objectOf(&variants[i])] = true
	}
	maps.DeleteFunc(a.written, func(key scale.Object, _ *writeHistory) bool { return !present[key] })
}
