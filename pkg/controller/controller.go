// Package controller runs a reconcile loop: a queue of object names, workers that call a Reconciler for one name at a time,
// and retries that depend on the returned error:
//
//	Reconcile returns      the controller                                  result     log
//	nil                    waits until the object changes                  success    debug
//	RequeueAfter           enqueues the name again after that time         requeue    debug
//	Terminal               waits until the object changes                  terminal   error
//	a conflict (409)       enqueues the name with exponential backoff      conflict   debug
//	another error          enqueues the name with exponential backoff      error      error
//
// If an error joins several errors, the lowest row of this table applies, and the shortest of several RequeueAfter times.
// Only this package logs and counts reconcile errors. A Reconciler receives names, not events: it compares the current state
// with the desired state, and does nothing if they are equal.
package controller

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/logging"
)

// Reconciler reconciles one object.
type Reconciler interface {
	// Reconcile handles one name; the object may no longer exist. Two workers never handle the same name at the same time.
	// ctx carries a logger with the name. Reconcile must return immediately when ctx is canceled.
	Reconcile(ctx context.Context, name cache.ObjectName) error
}

// Options configures concurrency, retries and shutdown.
type Options struct {
	Workers      int           // 1 or more
	FirstRetry   time.Duration // backoff after the first error; it doubles with each consecutive error
	LastRetry    time.Duration // maximum backoff
	DrainTimeout time.Duration // time for running reconciles to finish at shutdown, before their context is canceled
}

// DefaultOptions returns options for a controller that spends most of its time waiting for the API server.
func DefaultOptions() Options {
	return Options{Workers: 4, FirstRetry: 50 * time.Millisecond, LastRetry: time.Minute, DrainTimeout: 5 * time.Second}
}

// Params holds the arguments of New.
type Params struct {
	Options

	Name       string // in logs and metrics
	Reconciler Reconciler
	Log        *zap.Logger
	Metrics    *Metrics
	Clock      clock.WithTicker
}

// Controller is a queue with workers.
type Controller struct {
	params Params
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// New returns a Controller. It accepts names immediately, and reconciles them once Run is called.
func New(p Params) *Controller {
	p.Log = p.Log.With(zap.String(logging.KeyController, p.Name))
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](p.FirstRetry, p.LastRetry)
	return &Controller{
		params: p,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{
			Name: p.Name, Clock: p.Clock, MetricsProvider: queueMetrics{p.Metrics},
		}),
	}
}

// Enqueue schedules a reconcile as soon as a worker is free. A name that is already waiting is reconciled once.
func (c *Controller) Enqueue(name cache.ObjectName) { c.queue.Add(name) }

// Run reconciles until ctx is canceled, then waits for running reconciles and returns. Call it once, after all caches that
// the Reconciler reads have synced. work is the parent context of all reconciles: if it is canceled, for example because this
// replica lost leadership, running reconciles are canceled immediately.
func (c *Controller) Run(ctx, work context.Context) {
	work, cancel := context.WithCancel(work)
	defer cancel()
	var workers sync.WaitGroup
	for range c.params.Workers {
		workers.Go(func() {
			for c.handleNext(ctx, work) {
			}
		})
	}
	select {
	case <-ctx.Done():
	case <-work.Done():
	}
	c.queue.ShutDown()
	timer := time.AfterFunc(c.params.DrainTimeout, cancel)
	defer timer.Stop()
	workers.Wait()
}

// handleNext handles one name, and reports whether to continue. Names still queued at shutdown are skipped: the next leader
// enqueues all objects anyway.
func (c *Controller) handleNext(ctx, work context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	if ctx.Err() == nil && work.Err() == nil {
		c.handleName(work, name)
	}
	return true
}

// handleName reconciles one name and enqueues it again if necessary.
func (c *Controller) handleName(ctx context.Context, name cache.ObjectName) {
	log := c.params.Log.With(zap.String(logging.KeyNamespace, name.Namespace), zap.String(logging.KeyName, name.Name),
		zap.Int(logging.KeyAttempt, c.queue.NumRequeues(name)+1))
	began := c.params.Clock.Now()
	err := c.params.Reconciler.Reconcile(logging.WithContext(ctx, log), name)
	o, took := classifyOutcome(ctx, err), c.params.Clock.Since(began)
	c.params.Metrics.observeReconcile(c.params.Name, o.result, took)
	log = log.With(zap.Duration(logging.KeyDuration, took))
	switch o.result {
	case conflicted, failed:
		c.queue.AddRateLimited(name)
	case requeued:
		c.queue.Forget(name)
		c.queue.AddAfter(name, o.after)
	default:
		c.queue.Forget(name)
	}
	switch o.result {
	case succeeded:
		log.Debug("Reconciled")
	case canceled:
		log.Info("Reconcile canceled: shutting down", zap.Error(context.Cause(ctx)))
	case requeued:
		log.Debug("Reconciled, requeued after a delay", zap.Duration("after", o.after), zap.String(logging.KeyReason, o.reason))
	case conflicted:
		log.Debug("Reconcile conflicted with a newer version of an object, requeued with backoff", zap.Error(err))
	case terminal:
		log.Error("Reconcile failed, waiting until the object changes", zap.String(logging.KeyReason, o.reason), zap.Error(err))
	case failed:
		log.Error("Reconcile failed, requeued with backoff", zap.Error(err))
	}
}
