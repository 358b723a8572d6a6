// Package wake starts models that have no replicas, when a request waits for them. The last pass has decided which variants of a model
// start first, so nothing is decided here: KEDA learns of it at once, and the next pass confirms it.
//
//	autoscaler of the variant                    its first replica comes from
//	ScaledObject                                 KEDA: this program never writes
//	HorizontalPodAutoscaler with a minimum of 0  that: it acts at zero from Kubernetes 1.37 on
//	HorizontalPodAutoscaler with another one     this program, once, if it is permitted to (Starter)
//	none, and this program writes replicas       this program
package wake

import (
	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/variant-autoscaler/internal/actuation"
	"fairlead.dev/services/variant-autoscaler/internal/holds"
)

// table has the last decisions.
type table interface {
	Wake(namespace, pool, model string) (starts []actuation.Variant, asleep bool)
	// Asleep returns the variants that Wake would wake.
	Asleep() []actuation.Variant
}

// passes runs a pass soon.
type passes interface {
	Enqueue()
}

// meter counts models that woke.
type meter interface{ Woke() }

// Params are the parts of a Waker.
type Params struct {
	Log     *zap.Logger
	Meter   meter
	Table   table
	Passes  passes
	Starter starter // nil: KEDA alone starts models
}

// starter writes the first replica of a variant.
type starter interface {
	Start(v *actuation.Variant)
}

// Waker starts models. It is safe for concurrent use.
type Waker struct{ p Params }

// New returns a Waker.
func New(p Params) *Waker { return &Waker{p: p} }

// OnHold starts a model for which a request waits, if it has no replicas and this replica of the program leads. If limits left no room at the
// last pass, the next one decides, and soon.
func (w *Waker) OnHold(k holds.Key) {
	starts, asleep := w.p.Table.Wake(k.Namespace, k.Name, k.Model)
	if len(starts) > 0 {
		names := make([]string, 0, len(starts))
		for i := range starts {
			names = append(names, starts[i].Name)
			if w.p.Starter != nil {
				w.p.Starter.Start(&starts[i])
			}
		}
		w.p.Log.Info("Woke a model, as requests wait", zap.String(logging.KeyNamespace, k.Namespace), zap.String(logging.KeyPool, k.Namespace+"/"+k.Name),
			zap.String(logging.KeyModel, k.Model), zap.Strings("variants", names))
		w.p.Meter.Woke()
	}
	if asleep {
		w.p.Passes.Enqueue()
	}
}
