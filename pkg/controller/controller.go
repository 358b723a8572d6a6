// Package controller brings objects to where they should be: a queue of names, workers that take them, a Reconciler that
// handles one at a time, and what becomes of the name after that.
//
//	Reconcile returns      the name                                      result     log
//	nil                    is forgotten until its object changes         success    -
//	RequeueAfter           comes again after that time                   requeue    debug
//	Terminal               is forgotten until its object changes         terminal   error
//	a conflict (409)       comes again soon, each time later             conflict   debug
//	another error          comes again, each time later                  error      error
//
// Of an error that joins several the lowest in this table counts, and of several times the shortest. Errors are logged and
// counted here and nowhere else. A Reconciler is told names, never events: it looks at the world as it is, and does nothing
// where nothing is to be done.
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

// Reconciler brings one object to where it should be.
type Reconciler interface {
	// Reconcile handles one name, which may be that of an object that is gone. It is never called for a name that another
	// worker has in hand. ctx carries a logger that knows the name, and ends when it is to stop at once.
	Reconcile(ctx context.Context, name cache.ObjectName) error
}

// Options says how much is done at a time.
type Options struct {
	Workers      int           // 1 or more
	FirstRetry   time.Duration // after an error; it doubles with each in a row
	LastRetry    time.Duration // the longest
	DrainTimeout time.Duration // how long what is in hand may take when Run ends, before its context does
}

// DefaultOptions returns what suits a controller that mostly waits for the API server.
func DefaultOptions() Options {
	return Options{Workers: 4, FirstRetry: 50 * time.Millisecond, LastRetry: time.Minute, DrainTimeout: 5 * time.Second}
}

// Params is what New needs.
type Params struct {
	Options

	Name       string // in logs and metrics
	Reconciler Reconciler
	Log        *zap.Logger
	Metrics    *Metrics
	Clock      clock.WithTicker
}

// Controller is a queue and its workers.
type Controller struct {
	name       string
	options    Options
	reconciler Reconciler
	log        *zap.Logger
	metrics    *Metrics
	clock      clock.WithTicker
	queue      workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// New returns a Controller that takes names, and does nothing with them until Run.
func New(p Params) *Controller {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](p.FirstRetry, p.LastRetry)
	return &Controller{
		name:       p.Name,
		options:    p.Options,
		reconciler: p.Reconciler,
		log:        p.Log.With(zap.String(logging.KeyController, p.Name)),
		metrics:    p.Metrics,
		clock:      p.Clock,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{
			Name: p.Name, Clock: p.Clock, MetricsProvider: p.Metrics.queues(),
		}),
	}
}

// Enqueue has a name reconciled as soon as a worker is free. One that waits already comes once.
func (c *Controller) Enqueue(name cache.ObjectName) { c.queue.Add(name) }

// EnqueueAfter is Enqueue after some time.
func (c *Controller) EnqueueAfter(name cache.ObjectName, d time.Duration) { c.queue.AddAfter(name, d) }

// Run reconciles until ctx ends, then finishes what is in hand and returns. It runs once, after all caches that the
// Reconciler reads have synced. work is what the contexts of Reconcile come from: when it ends, as when another process has
// taken the lead, all stops at once.
func (c *Controller) Run(ctx, work context.Context) {
	work, cancel := context.WithCancel(work)
	defer cancel()
	var workers sync.WaitGroup
	for range c.options.Workers {
		workers.Go(func() {
			for c.next(ctx, work) {
			}
		})
	}
	select {
	case <-ctx.Done():
	case <-work.Done():
	}
	c.queue.ShutDown()
	timer := time.AfterFunc(c.options.DrainTimeout, cancel)
	defer timer.Stop()
	workers.Wait()
}

// next handles one name, and reports whether there may be more. What waits when Run is to end is left to the next process.
func (c *Controller) next(ctx, work context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	if ctx.Err() == nil && work.Err() == nil {
		c.handle(work, name)
	}
	return true
}

// handle reconciles one name and decides what becomes of it.
func (c *Controller) handle(ctx context.Context, name cache.ObjectName) {
	log := c.log.With(zap.String(logging.KeyNamespace, name.Namespace), zap.String(logging.KeyName, name.Name),
		zap.Int(logging.KeyAttempt, c.queue.NumRequeues(name)+1))
	began := c.clock.Now()
	err := c.reconciler.Reconcile(logging.WithContext(ctx, log), name)
	o, took := classify(ctx, err), c.clock.Since(began)
	c.metrics.observe(c.name, o.result, took)
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
		log.Info("Left an object as it is, there is no time", zap.Error(context.Cause(ctx)))
	case requeued:
		log.Debug("Reconciled, will look again", zap.Duration("after", o.after), zap.String(logging.KeyReason, o.reason))
	case conflicted:
		log.Debug("Met a newer object, will look again", zap.Error(err))
	case terminal:
		log.Error("Gave up until the object changes", zap.String(logging.KeyReason, o.reason), zap.Error(err))
	case failed:
		log.Error("Could not reconcile, will try again", zap.Error(err))
	}
}
