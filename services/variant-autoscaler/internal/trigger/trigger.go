// Package trigger decides when a pass over all variants runs.
//
//	event                                                  a pass     then
//	timer                                                  runs       the timer starts at the end of the pass
//	VariantAutoscaling created                             runs       the same
//	its spec, or annotation force-reconcile, changed       runs       the same
//	its status or other metadata changed                   no
//	it is being deleted, or was deleted                    no         the next pass is without it
//	annotated HPA or ScaledObject                          as a VariantAutoscaling: its bounds, target and metrics count as its spec
//	optimization, scale-to-zero or limits ConfigMap        runs       the same; without variants: nothing
//	other ConfigMaps                                       no         the next pass reads them
//	Deployment, other HPA, Pod                             no
//	a term as leader begins                                runs       the same
//
// There is one queue with one key, and one timer. Any number of events before a pass, or during one, cost one pass. A pass replaces the
// timer, whatever started it, so passes do not accumulate. A pass without active variants stops the timer until the next event. A pass that
// failed is repeated with exponential backoff.
package trigger

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/wake"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
)

// Delays of passes. With them, 1000 updates in a second cost one pass. A pass sends dozens of queries to Prometheus: the pause bounds how
// many a tenant can cause.
const (
	// quietTime is the time without events after which a pass starts: a user's change is often several updates.
	quietTime = 200 * time.Millisecond
	// maxDelay is the longest time from an event to its pass while events do not end, if no pass ran within passPause.
	maxDelay = 3 * time.Second
	// passPause is the least time from the end of a pass to one that an event starts. It bounds what a tenant who writes all the time
	// costs.
	passPause = 2 * time.Second
	// firstRetry is the backoff after a pass that failed. It doubles with each consecutive failure, up to lastRetry.
	firstRetry, lastRetry = 500 * time.Millisecond, time.Minute
	// drainTimeout is how long a pass may continue at shutdown.
	drainTimeout = 5 * time.Second
)

// Result is how a pass ended.
type Result string

// Results of passes.
const (
	Succeeded  Result = "success"
	Idle       Result = "idle" // there was no variant
	Conflicted Result = "conflict"
	Failed     Result = "error"
	Canceled   Result = "canceled"
)

// observer counts passes. The leader calls it from one goroutine.
type observer interface {
	// CountPass is called after each pass.
	CountPass(result string, took time.Duration)
	// MarkSuccess is called at the end of a pass that succeeded.
	MarkSuccess(end time.Time)
	// SetInterval is called with the delay until the next pass if no event comes before. 0: there is no timer.
	SetInterval(d time.Duration)
}

// Params are the parts of a Trigger.
type Params struct {
	Log *zap.Logger
	// RunPass runs one pass over all variants. It returns the interval until the next pass, and the number of variants that are not being
	// deleted.
	RunPass  func(ctx context.Context) (interval time.Duration, active int, err error)
	Observer observer
	// CountVariants returns the number of the variants of all sources, and the name of the first.
	CountVariants func() (total int, first string)
}

// Trigger runs passes while this replica leads. Without a term it drops events: a term begins with a pass.
type Trigger struct {
	p       Params
	current atomic.Pointer[term]
}

// backoffKey is the one key of the backoff.
const backoffKey = "pass"

// term is the time for which this replica leads.
type term struct {
	p       *Params
	pending wake.Signal // a pass is requested
	ended   time.Time   // of the last pass
	backoff workqueue.TypedRateLimiter[string]
}

// New returns a Trigger. Lead runs passes.
func New(p Params) *Trigger { return &Trigger{p: p} }

// Enqueue requests a pass if this replica leads.
func (t *Trigger) Enqueue() {
	if current := t.current.Load(); current != nil {
		current.pending.Send()
	}
}

// Relevant reports whether a pass might decide otherwise after a change of an object. before is nil for an object that was created. It
// must be false for an object that is being deleted, and for changes of the status.
type Relevant func(before, after any) bool

// Handler returns the handler of the objects that declare variants. A deletion requests no pass: the next one is without the object.
func (t *Trigger) Handler(relevant Relevant) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if relevant(nil, obj) {
				t.Enqueue()
			}
		},
		UpdateFunc: func(before, after any) {
			if relevant(before, after) {
				t.Enqueue()
			}
		},
	}
}

// ConfigMapChanged requests a pass for a change of the data of a ConfigMap. Call it once for each change.
func (t *Trigger) ConfigMapChanged(kind settings.Kind, name string) {
	if kind != settings.Optimization && kind != settings.Zero && kind != settings.Limits || t.current.Load() == nil {
		return
	}
	total, first := t.p.CountVariants()
	if total == 0 {
		t.p.Log.Info("No VariantAutoscalings found, skipping ConfigMap reconciliation", zap.String("configMap", name))
		return
	}
	t.p.Log.Info("ConfigMap changed, triggering global reconciliation",
		zap.String("configMap", name), zap.Int("totalVAs", total), zap.String("trigger", first))
	t.Enqueue()
}

// Lead runs passes for one term, until ctx or lease ends. The end of ctx lets a running pass finish; that of lease cancels it.
func (t *Trigger) Lead(ctx, lease context.Context) {
	work, cancel := context.WithCancel(lease)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-work.Done():
		case <-time.After(drainTimeout):
			cancel()
		}
	})()
	current := newTerm(&t.p)
	t.current.Store(current)
	defer t.current.Store(nil)
	current.runPasses(ctx, work)
}

func newTerm(p *Params) *term {
	return &term{
		p: p, pending: wake.NewSignal(), ended: time.Now().Add(-passPause),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
	}
}

// runPasses has one timer, which is set after each pass and only there.
func (t *term) runPasses(ctx, work context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-work.Done():
		case <-timer.C:
		case <-t.pending:
			t.waitForQuiet(ctx, work)
		}
		if ctx.Err() != nil || work.Err() != nil {
			return
		}
		select {
		case <-t.pending: // this pass sees the event
		default:
		}
		delay := t.runPass(work)
		t.ended = time.Now()
		t.p.Observer.SetInterval(delay)
		timer.Stop()
		if delay > 0 {
			timer.Reset(delay)
		}
	}
}

// waitForQuiet waits until no more events come, or for long enough.
func (t *term) waitForQuiet(ctx, work context.Context) {
	earliest := t.ended.Add(passPause)
	latest := slices.MaxFunc([]time.Time{time.Now().Add(maxDelay), earliest}, time.Time.Compare)
	for {
		until := slices.MaxFunc([]time.Time{time.Now().Add(quietTime), earliest}, time.Time.Compare)
		if until.After(latest) {
			until = latest
		}
		select {
		case <-ctx.Done():
			return
		case <-work.Done():
			return
		case <-time.After(time.Until(until)):
			return
		case <-t.pending:
		}
	}
}

// runPass runs a pass and returns the delay until the next one, 0 for none.
func (t *term) runPass(ctx context.Context) time.Duration {
	log := t.p.Log.With(zap.Int(logging.KeyAttempt, t.backoff.NumRequeues(backoffKey)+1))
	began := time.Now()
	interval, active, err := t.p.RunPass(logging.WithContext(ctx, log))
	took := time.Since(began)
	log = log.With(zap.Duration(logging.KeyDuration, took))
	result, delay := Succeeded, interval
	switch {
	case err != nil && ctx.Err() != nil:
		result, delay = Canceled, 0
		log.Info("Pass canceled: shutting down", zap.Error(context.Cause(ctx)))
	case err != nil:
		result, delay = Failed, t.backoff.When(backoffKey)
		if apierrors.IsConflict(err) {
			result = Conflicted
			log.Debug("Pass conflicted with a newer version of an object, repeated with backoff", zap.Duration("after", delay), zap.Error(err))
			break
		}
		log.Error("Pass failed, repeated with backoff", zap.Duration("after", delay), zap.Error(err))
	case active == 0:
		result, delay = Idle, 0
		log.Debug("Pass found no variants, waiting for an event")
	case interval <= 0: // would stop the timer, or not let it rest
		delay = settings.DefaultInterval
		fallthrough
	default:
		log.Debug("Pass succeeded", zap.Duration("after", delay))
	}
	if err == nil {
		t.backoff.Forget(backoffKey)
	}
	t.p.Observer.CountPass(string(result), took)
	if result == Succeeded || result == Idle {
		t.p.Observer.MarkSuccess(time.Now())
	}
	return delay
}
