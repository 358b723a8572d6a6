package pool

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// rememberTime is how long labels are reported after their last request left: an autoscaler that looks every 30 s sees a request that
	// waited for a moment.
	rememberTime = time.Minute
	// maxRemembered bounds the labels without waiting requests, because clients choose the names of models.
	maxRemembered = 1024
)

// A QueueCount describes the waiting requests with the same labels.
type QueueCount struct {
	QueueLabels

	Requests int
	Bytes    int64
	Oldest   time.Time // arrival of the one that waits for longest; zero if none waits
}

// recentLabels has the labels of requests that left, and when the last one did.
type recentLabels map[QueueLabels]time.Time

// addLabels records that a request with the labels left.
func (r recentLabels) addLabels(l QueueLabels, now time.Time) {
	if _, known := r[l]; known || len(r) < maxRemembered {
		r[l] = now
	}
}

// Report returns the waiting requests by their labels, sorted, and labels of which a request left during the last minute.
func (q *Queue) Report() []QueueCount {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	maps.DeleteFunc(q.recent, func(_ QueueLabels, left time.Time) bool { return now.Sub(left) >= rememberTime })
	counts := make(map[QueueLabels]QueueCount, len(q.recent))
	for labels := range q.recent {
		counts[labels] = QueueCount{QueueLabels: labels}
	}
	for _, w := range q.waiters {
		c := counts[w.QueueLabels]
		if c.QueueLabels = w.QueueLabels; c.Requests == 0 || w.Arrived.Before(c.Oldest) {
			c.Oldest = w.Arrived
		}
		c.Requests++
		c.Bytes += w.Bytes
		counts[w.QueueLabels] = c
	}
	return slices.SortedFunc(maps.Values(counts), func(a, b QueueCount) int { // first by target
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Fairness, b.Fairness),
			cmp.Compare(a.Priority, b.Priority))
	})
}

// ChangeSignal returns a channel that is closed when a request enters or leaves.
func (q *Queue) ChangeSignal() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.changed == nil {
		q.changed = make(chan struct{})
	}
	return q.changed
}

// announceChange announces a change.
func (q *Queue) announceChange() {
	q.version.Add(1)
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}
