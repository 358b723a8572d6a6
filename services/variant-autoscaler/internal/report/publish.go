// Package report passes decisions on: to autoscalers, by metrics and KEDA's external scaler; to targets, with --actuator=scale; and to the
// owners of variants, by the status of VariantAutoscalings and Events.
//
//	publish.go         the Publisher, which a pass calls
//	status.go          the status of a VariantAutoscaling, from a decision: pure
//	conditions.go      its conditions
//	statuswriter.go    writes a status that differs
//
// BuildStatus returns the last status, unchanged, if nothing but figures has changed: predictions, and numbers in messages. They change
// with every pass, and would make every pass write every object. They are written together with another change, or after ten minutes.
package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"fairlead.dev/pkg/apis/llmd/v1alpha1"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/pass"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

const (
	// writers is the number of statuses that are written at a time. The rate limit of the client binds before.
	writers = 8
	// writeTime is how long the statuses of a pass may take. The next pass writes those that are left: at the default rate, a thousand new
	// variants are written in one pass.
	writeTime = 30 * time.Second
	// maxErrors is the number of failed writes that an error names.
	maxErrors = 3
)

// Autoscaler gets the decisions of a term.
type Autoscaler interface {
	Publish(variants []decision.ActedVariant)
	EndTerm()
}

// applier gives targets their desired replicas.
type applier interface {
	// Apply returns what became of each variant, in their order.
	Apply(ctx context.Context, variants []decision.ActedVariant) []decision.Outcome
	EndTerm()
}

// meter gets the figures of a decision.
type meter interface {
	ObserveDecision(s *snapshot.Snapshot, d *decision.Decision)
}

// page shows the decisions of a term.
type page interface {
	meter
	EndTerm()
}

// Params are the parts of a Publisher.
type Params struct {
	Log         *zap.Logger
	Autoscalers []Autoscaler
	Applier     applier // nil: autoscalers write replicas
	Meter       meter
	Page        page
	// Record keeps a decision.
	Record func(r *decision.Record) error
	// WriteStatus writes the status of a VariantAutoscaling.
	WriteStatus func(ctx context.Context, in *StatusInput) (WriteResult, error)
	// Event is for the owners of annotated objects.
	Event func(about *corev1.ObjectReference, kind, reason, message string)
}

// name identifies an object that declares a variant.
type name struct {
	source          snapshot.Source
	namespace, name string
}

// Publisher publishes the decisions of one term. One goroutine may use it.
type Publisher struct {
	p           Params
	outcomes    map[name]decision.Outcome
	lastReasons map[types.UID]string // reason of the last Event
}

// New returns a Publisher.
func New(p Params) *Publisher {
	return &Publisher{p: p, lastReasons: map[types.UID]string{}}
}

// Actuate tells autoscalers the desired replicas, records the decision, and gives targets their replicas, if autoscalers do not.
func (p *Publisher) Actuate(ctx context.Context, o *pass.Outcome) {
	variants := decision.ActedVariants(o.Snapshot, o.Decision, conflictLosers(o.Sources))
	for _, t := range p.p.Autoscalers {
		t.Publish(variants)
	}
	p.p.Meter.ObserveDecision(o.Snapshot, o.Decision)
	p.p.Page.ObserveDecision(o.Snapshot, o.Decision)
	if err := p.p.Record(&decision.Record{Snapshot: o.Snapshot, Decision: o.Decision}); err != nil {
		p.p.Log.Warn("Could not write the decision log: the decision stands, but cannot be repeated. Check the file of --decision-log", zap.Error(err))
	}
	p.applyDecision(ctx, variants)
}

// applyDecision gives targets their replicas, and keeps the outcome of each variant for the report.
func (p *Publisher) applyDecision(ctx context.Context, variants []decision.ActedVariant) {
	outcomes := make([]decision.Outcome, len(variants))
	if p.p.Applier != nil {
		outcomes = p.p.Applier.Apply(ctx, variants)
	} else {
		for i := range outcomes {
			outcomes[i] = decision.Outcome{Applied: true, Reason: v1alpha1.ReasonPublished, Message: "The desired replicas are published"}
		}
	}
	p.outcomes = make(map[name]decision.Outcome, len(variants))
	for i := range variants {
		if v := &variants[i]; v.Resolution != decision.Suppressed {
			p.outcomes[name{v.Source, v.Namespace, v.Name}] = outcomes[i]
		}
	}
}

// EndTerm ends the term: there are no decisions any more.
func (p *Publisher) EndTerm() {
	for _, t := range p.p.Autoscalers {
		t.EndTerm()
	}
	p.p.Page.EndTerm()
	if p.p.Applier != nil {
		p.p.Applier.EndTerm()
	}
	p.outcomes, p.lastReasons = nil, map[types.UID]string{}
}

// conflictLosers returns the variants whose target belongs to another variant.
func conflictLosers(found *sources.Result) []snapshot.Variant {
	var losers []snapshot.Variant
	for i := range found.Rejected {
		if v := &found.Rejected[i]; v.Problem != nil && v.Problem.Reason == snapshot.TargetConflict {
			losers = append(losers, v.Variant)
		}
	}
	return losers
}

// ReportOutcome writes the statuses that differ, and Events: on annotated objects with another problem than before, and on
// VariantAutoscalings whose targets were scaled, or could not be for another reason than before. The next pass writes the rest.
func (p *Publisher) ReportOutcome(ctx context.Context, o *pass.Outcome) error {
	inputs := p.statusInputs(o)
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	errs := make([]error, len(inputs))
	workqueue.ParallelizeUntil(context.Background(), writers, len(inputs), func(i int) {
		_, errs[i] = p.p.WriteStatus(ctx, &inputs[i])
	})
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if more := len(errs) - maxErrors; more > 0 {
		errs = append(errs[:maxErrors], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// statusInputs returns the inputs of all statuses, and sends Events about the problems of other objects.
func (p *Publisher) statusInputs(o *pass.Outcome) []StatusInput {
	limiting, told := LimitsOf(o.Snapshot, o.Decision), map[types.UID]string{}
	var inputs []StatusInput
	add := func(v *sources.Variant, complete func(in *StatusInput)) {
		if v.Source != snapshot.VariantAutoscaling {
			p.sendProblemEvent(v, told)
			return
		}
		in := StatusInput{
			Object: ObjectOf(&v.Object, v.Generation, v.Status), Time: o.Snapshot.Time, Variant: &v.Variant, Notes: v.Notes,
			Outcome: p.outcomes[name{v.Source, v.Namespace, v.Name}],
		}
		complete(&in)
		p.sendOutcomeEvent(v, &in.Outcome, told)
		inputs = append(inputs, in)
	}
	for g := range o.Sources.Groups {
		group, decided := &o.Snapshot.Groups[g], &o.Decision.Groups[g]
		for i := range o.Sources.Groups[g].Variants {
			v := &o.Sources.Groups[g].Variants[i]
			v.Variant = group.Variants[i] // with what the pass knows of it
			add(v, func(in *StatusInput) {
				in.Load, in.Group, in.Decision = &group.Load, decided, &decided.Variants[i]
				in.Limiting, in.Priority = limiting, group.Priority
			})
		}
	}
	for i := range o.Sources.Rejected {
		add(&o.Sources.Rejected[i], func(*StatusInput) {})
	}
	p.lastReasons = told
	return inputs
}

// sendProblemEvent writes an Event on an annotated object for a new problem, and for its end.
func (p *Publisher) sendProblemEvent(v *sources.Variant, told map[types.UID]string) {
	before := p.lastReasons[v.Object.UID]
	switch {
	case v.Problem != nil:
		if told[v.Object.UID] = v.Problem.Reason; before != v.Problem.Reason {
			p.p.Event(&v.Object, corev1.EventTypeWarning, v.Problem.Reason, v.Problem.Message)
		}
	case len(v.Notes) > 0:
		if told[v.Object.UID] = v.Notes[0].Reason; before != v.Notes[0].Reason {
			p.p.Event(&v.Object, corev1.EventTypeWarning, v.Notes[0].Reason, v.Notes[0].Message)
		}
	case before != "":
		p.p.Event(&v.Object, corev1.EventTypeNormal, ReasonResolved, "The variant has no problem any more, and takes part in the choice")
	}
}

// sendOutcomeEvent writes an Event on a VariantAutoscaling for each change of its target, and for a new reason why there was none.
func (p *Publisher) sendOutcomeEvent(v *sources.Variant, o *decision.Outcome, told map[types.UID]string) {
	switch {
	case o.Event != "":
		p.p.Event(&v.Object, corev1.EventTypeNormal, o.Reason, o.Event)
	case !o.Applied && o.Reason != "":
		if told[v.Object.UID] = o.Reason; p.lastReasons[v.Object.UID] != o.Reason {
			p.p.Event(&v.Object, corev1.EventTypeWarning, o.Reason, o.Message)
		}
	}
}

// ReasonResolved is the reason of the Event at the end of a problem.
const ReasonResolved = "ProblemResolved"
