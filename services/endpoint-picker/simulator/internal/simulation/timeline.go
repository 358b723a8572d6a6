package simulation

import (
	"container/heap"
	"time"
)

// epoch is the start of every run.
var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// timeline is a clock that jumps from one event to the next. Events at the same time happen in the order of their
// scheduling, so a run can be repeated.
type timeline struct {
	now       time.Duration // since the epoch
	pending   eventHeap
	scheduled int
}

// scheduledEvent is an event.
type scheduledEvent struct {
	at    time.Duration
	order int
	do    func()
}

// scheduleAt schedules an event at a time, which must not be in the past.
func (t *timeline) scheduleAt(when time.Duration, do func()) {
	t.scheduled++
	heap.Push(&t.pending, scheduledEvent{at: when, order: t.scheduled, do: do})
}

// scheduleAfter schedules an event after a duration.
func (t *timeline) scheduleAfter(d time.Duration, do func()) { t.scheduleAt(t.now+d, do) }

// runWhile advances time while should returns true.
func (t *timeline) runWhile(should func() bool) {
	for len(t.pending) > 0 && should() {
		next := heap.Pop(&t.pending).(scheduledEvent)
		t.now = next.at
		next.do()
	}
}

// Now and Since implement a clock.

// Now returns the current time.
func (t *timeline) Now() time.Time { return epoch.Add(t.now) }

// Since returns the time since then.
func (t *timeline) Since(then time.Time) time.Duration { return t.Now().Sub(then) }

// eventHeap is a heap of events, the next on top.
type eventHeap []scheduledEvent

func (p eventHeap) Len() int { return len(p) }

func (p eventHeap) Less(i, j int) bool {
	if p[i].at != p[j].at {
		return p[i].at < p[j].at
	}
	return p[i].order < p[j].order
}

func (p eventHeap) Swap(i, j int) { p[i], p[j] = p[j], p[i] }

func (p *eventHeap) Push(x any) { *p = append(*p, x.(scheduledEvent)) }

func (p *eventHeap) Pop() any {
	old := *p
	last := old[len(old)-1]
	old[len(old)-1] = scheduledEvent{}
	*p = old[:len(old)-1]
	return last
}
