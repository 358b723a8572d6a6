package report

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/pass"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// rig is everybody whom a Publisher tells something.
type rig struct {
	*Publisher

	mu        sync.Mutex
	published []decision.ActedVariant
	cleared   int
	decided   int
	records   int
	written   map[string]StatusInput
	fails     error
	events    []string
}

func (r *rig) Publish(variants []decision.ActedVariant)               { r.published = variants }
func (r *rig) EndTerm()                                               { r.cleared++ }
func (r *rig) ObserveDecision(*snapshot.Snapshot, *decision.Decision) { r.decided++ }

func (r *rig) record(*decision.Record) error {
	r.records++
	return r.fails
}

func (r *rig) writeStatus(_ context.Context, in *StatusInput) (WriteResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written[in.Object.Name] = *in
	return Written, r.fails
}

func (r *rig) Event(about *corev1.ObjectReference, kind, reason, _ string) {
	r.events = append(r.events, fmt.Sprintf("%s %s %s", about.Name, kind, reason))
}

func newRig() *rig {
	r := &rig{written: map[string]StatusInput{}}
	r.Publisher = New(Params{
		Log: zap.NewNop(), Autoscalers: []Autoscaler{r}, Meter: r, Page: r, Record: r.record, WriteStatus: r.writeStatus, Event: r.Event,
	})
	return r
}

func variant(source snapshot.Source, name string) sources.Variant {
	return sources.Variant{
		Variant: snapshot.Variant{Namespace: "a", Name: name, Source: source, Target: snapshot.Target{Kind: "Deployment", Name: name}},
		Object:  corev1.ObjectReference{Kind: string(source), Namespace: "a", Name: name, UID: types.UID(name)},
	}
}

// outcome is a pass over a VariantAutoscaling and an annotated object, and a loser of a conflict with the former.
func outcome() *pass.Outcome {
	loser := variant(snapshot.VariantAutoscaling, "loser")
	loser.Problem = &snapshot.Problem{Reason: snapshot.TargetConflict, Message: "chat has the target"}
	loser.Target.Name = "chat"
	group := sources.Group{Variants: []sources.Variant{variant(snapshot.VariantAutoscaling, "chat"), variant(snapshot.HorizontalPodAutoscaler, "hpa")}}
	s := &snapshot.Snapshot{Groups: []snapshot.Group{{Namespace: "a", Load: snapshot.Load{State: snapshot.Found}}}}
	for i := range group.Variants {
		s.Groups[0].Variants = append(s.Groups[0].Variants, group.Variants[i].Variant)
	}
	return &pass.Outcome{
		Sources: &sources.Result{Groups: []sources.Group{group}, Rejected: []sources.Variant{loser}}, Snapshot: s,
		Decision: &decision.Decision{Groups: []decision.Group{{Variants: []decision.Variant{
			{Desired: 3, Reason: decision.Optimal}, {Desired: 1, Reason: decision.Optimal},
		}}}},
	}
}

func TestActuateAndReport(t *testing.T) {
	t.Parallel()
	r := newRig()
	o := outcome()
	r.Actuate(t.Context(), o)
	require.Len(t, r.published, 3)
	assert.Equal(t, 2, r.decided, "by metrics and page")
	assert.Equal(t, 1, r.records)
	require.NoError(t, r.ReportOutcome(t.Context(), o))
	require.Len(t, r.written, 2, "the status of VariantAutoscalings")
	chat, loser := r.written["chat"], r.written["loser"]
	assert.Equal(t, decision.Outcome{Applied: true, Reason: "Published", Message: "The desired replicas are published"}, chat.Outcome)
	assert.Equal(t, 3, chat.Decision.Desired)
	assert.Equal(t, snapshot.Found, chat.Load.State)
	assert.False(t, loser.Outcome.Applied, "the other one has the target")
	assert.Nil(t, loser.Decision)
	assert.Empty(t, r.events)

	r.Publisher.EndTerm()
	assert.Equal(t, 2, r.cleared, "an autoscaler, and the page")
	require.NoError(t, r.ReportOutcome(t.Context(), o))
	assert.False(t, r.written["chat"].Outcome.Applied, "another replica leads")
}

// applied says what became of each variant.
type applied struct {
	variants []decision.ActedVariant
	outcome  decision.Outcome
	cleared  int
}

func (a *applied) Apply(_ context.Context, variants []decision.ActedVariant) []decision.Outcome {
	a.variants = variants
	outcomes := make([]decision.Outcome, len(variants))
	for i := range outcomes {
		outcomes[i] = a.outcome
	}
	return outcomes
}

func (a *applied) EndTerm() { a.cleared++ }

// TestApply: with an applier, the status has what became of a variant, and Events tell the owner of each change and each new failure.
func TestApply(t *testing.T) {
	t.Parallel()
	r := newRig()
	a := &applied{}
	r.p.Applier = a
	step := func(o decision.Outcome) []string {
		a.outcome, r.events = o, nil
		given := outcome()
		r.Actuate(t.Context(), given)
		require.NoError(t, r.ReportOutcome(t.Context(), given))
		assert.Equal(t, o, r.written["chat"].Outcome)
		assert.Empty(t, r.written["loser"].Outcome, "the other one has the target")
		return r.events
	}
	assert.Equal(t, []string{"chat Normal Scaled"}, step(decision.Outcome{Applied: true, Reason: "Scaled", Event: "Scaled Deployment chat from 1 to 3 replicas"}))
	assert.Equal(t, r.published, a.variants, "metrics have the desired replicas, too")
	assert.Empty(t, step(decision.Outcome{Applied: true, Reason: "Scaled"}))
	assert.Equal(t, []string{"chat Warning ScaleFailed"}, step(decision.Outcome{Reason: "ScaleFailed"}))
	assert.Empty(t, step(decision.Outcome{Reason: "ScaleFailed"}), "once")
	assert.Equal(t, []string{"chat Warning ScaleForbidden"}, step(decision.Outcome{Reason: "ScaleForbidden"}))
	assert.Empty(t, step(decision.Outcome{}), "the variant is excluded: conditions say why")
	r.Publisher.EndTerm()
	assert.Equal(t, 1, a.cleared)
}

// The decision log is for people. Its failure does not keep anybody from scaling.
func TestActuateWithoutALog(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.fails = errors.New("disk full")
	r.Actuate(t.Context(), outcome())
	assert.Len(t, r.published, 3)
}

func TestEvents(t *testing.T) {
	t.Parallel()
	r := newRig()
	step := func(problem *snapshot.Problem, notes ...snapshot.Problem) []string {
		o := outcome()
		o.Snapshot.Groups[0].Variants[1].Problem, o.Sources.Groups[0].Variants[1].Notes = problem, notes
		r.events = nil
		require.NoError(t, r.ReportOutcome(t.Context(), o))
		return r.events
	}
	missing := &snapshot.Problem{Reason: "TargetNotFound", Message: "create it"}
	assert.Empty(t, step(nil))
	assert.Equal(t, []string{"hpa Warning TargetNotFound"}, step(missing))
	assert.Empty(t, step(missing), "once")
	assert.Equal(t, []string{"hpa Normal ProblemResolved"}, step(nil))
	assert.Empty(t, step(nil))
	assert.Equal(t, []string{"hpa Warning SeveralPools"}, step(nil, snapshot.Problem{Reason: "SeveralPools"}))
}

// TestReport_Failures: one status that cannot be written keeps no other from being written, and an error is short.
func TestReport_Failures(t *testing.T) {
	t.Parallel()
	r := newRig()
	o := outcome()
	for i := range 20 {
		o.Sources.Rejected = append(o.Sources.Rejected, variant(snapshot.VariantAutoscaling, fmt.Sprint("v", i)))
		o.Sources.Rejected[i+1].Problem = &snapshot.Problem{Reason: "LimitExceeded"}
	}
	r.fails = errors.New("forbidden")
	err := r.ReportOutcome(t.Context(), o)
	require.ErrorContains(t, err, "forbidden")
	require.ErrorContains(t, err, "and 19 more")
	assert.Len(t, r.written, 22)
}

// Whoever may write a status can write anything.
func TestReport_StatusOfOthers(t *testing.T) {
	t.Parallel()
	r := newRig()
	o := outcome()
	o.Sources.Groups[0].Variants[0].Status = []byte(`{"conditions":"none","desiredOptimizedAlloc":{"numReplicas":"x"}}`)
	r.Actuate(t.Context(), o)
	require.NoError(t, r.ReportOutcome(t.Context(), o))
	assert.Equal(t, 3, r.written["chat"].Decision.Desired)
}
