package holds

import (
	"context"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/sets"

	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// queueInterval is the time between two looks at the queues in Prometheus, which scrapes pickers every 15 s or more.
const queueInterval = 5 * time.Second

// QueueWatcher looks for requests that wait in the queues of pickers, as Prometheus has them, while a model has no replicas: a pass would
// see them up to an interval later.
type QueueWatcher struct {
	log        *zap.Logger
	waker      *Waker
	prometheus collect.Querier
	failed     bool
}

// NewQueueWatcher returns a QueueWatcher. Run starts it.
func NewQueueWatcher(log *zap.Logger, w *Waker, q collect.Querier) *QueueWatcher {
	return &QueueWatcher{log: log, waker: w, prometheus: q}
}

// Run looks at the queues until ctx ends.
func (q *QueueWatcher) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(queueInterval):
			q.checkQueues(ctx)
		}
	}
}

// checkQueues wakes the models for which requests wait. It queries Prometheus only while a model could start.
func (q *QueueWatcher) checkQueues(ctx context.Context) {
	asleep := q.waker.p.Table.Asleep()
	if len(asleep) == 0 {
		return
	}
	queues, err := collect.ReadQueues(ctx, q.prometheus)
	if failed := err != nil; failed != q.failed && ctx.Err() == nil {
		if q.failed = failed; failed {
			q.log.Warn("Could not read the queues of pickers: models without replicas start a pass later. Check Prometheus", zap.Error(err))
		}
	}
	waiting := sets.New(queues...)
	models, pools := map[snapshot.ModelKey]bool{}, map[snapshot.ModelKey]int{} // pools that have a model
	for i := range asleep {
		if key := asleep[i].ModelKey(); !models[key] { // each can have a variant of each role
			models[key] = true
			pools[withoutPool(key)]++
		}
	}
	for key := range models {
		unnamed := withoutPool(key) // a picker that names no pool means the only one
		if waiting.Has(key) || waiting.Has(unnamed) && pools[unnamed] == 1 {
			q.waker.OnHold(key)
		}
	}
}

func withoutPool(key snapshot.ModelKey) snapshot.ModelKey {
	key.Name = ""
	return key
}
