package holds

import (
	"context"

	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/externalscaler"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// WakerParams are the parts of a Waker.
type WakerParams struct {
	Log   *zap.Logger
	Table *externalscaler.Table // the last decisions
	Waits *Table
	// CountWakeUp counts a model that woke.
	CountWakeUp func()
	// Enqueue runs a pass soon.
	Enqueue func()
	// Start writes the first replica of a variant. Nil: KEDA alone starts models.
	Start func(v *decision.ActedVariant)
}

// Waker starts models that have no replicas, when a request waits for them. The last pass has decided which variants of a model start
// first, so nothing is decided here: KEDA learns of it at once, and the next pass confirms it.
//
//	autoscaler of the variant                    its first replica comes from
//	ScaledObject                                 KEDA: this program never writes
//	HorizontalPodAutoscaler with a minimum of 0  that: from Kubernetes 1.37 on it starts what it has itself scaled to zero
//	HorizontalPodAutoscaler that is idle at zero this program, once, if it is permitted to (starter)
//	none, and this program writes replicas       this program
//
// It is safe for concurrent use.
type Waker struct{ p WakerParams }

// NewWaker returns a Waker.
func NewWaker(p WakerParams) *Waker { return &Waker{p: p} }

// Run starts models for which requests wait already when a decision comes, until ctx ends. When the first of them came, no decision named
// the variants to start: the leader is new, or a pass was deciding on the model.
func (w *Waker) Run(ctx context.Context) {
	for {
		_, changed := w.p.Table.Watch()
		for _, v := range w.p.Table.Asleep() {
			k := v.ModelKey()
			if now, _, _ := w.p.Waits.CountWaiting(k); now > 0 {
				w.OnHold(k)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// OnHold starts a model for which a request waits, if it has no replicas and this replica of the program leads. If limits left no room at
// the last pass, the next one decides, and soon.
func (w *Waker) OnHold(k snapshot.ModelKey) {
	starts, asleep := w.p.Table.WakeModel(k)
	if len(starts) > 0 {
		names := make([]string, 0, len(starts))
		for i := range starts {
			names = append(names, starts[i].Name)
			if w.p.Start != nil {
				w.p.Start(&starts[i])
			}
		}
		w.p.Log.Info("Woke a model, as requests wait", zap.String(logging.KeyNamespace, k.Namespace),
			zap.String(logging.KeyPool, k.Namespace+"/"+k.Name),
			zap.String(logging.KeyModel, k.Model), zap.Strings("variants", names))
		w.p.CountWakeUp()
	}
	if asleep {
		w.p.Enqueue()
	}
}
