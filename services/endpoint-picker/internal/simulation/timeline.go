package simulation

import (
	"container/heap"
	"time"
)

// epoch is when every run begins.
var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// timeline is a clock that goes from one thing that happens to the next. Things that happen at the same time happen in
// the order in which they were asked for, so that a run can be repeated.
type timeline struct {
	now     time.Duration // since the epoch
	pending pending
	asked   int
}

// happening is something that is to be done at its time.
type happening struct {
	at    time.Duration
	order int
	do    func()
}

// at has something done at a time, which is not before now.
func (t *timeline) at(when time.Duration, do func()) {
	t.asked++
	heap.Push(&t.pending, happening{at: when, order: t.asked, do: do})
}

// after has something done when a time has passed.
func (t *timeline) after(d time.Duration, do func()) { t.at(t.now+d, do) }

// runWhile lets time pass as long as it should.
func (t *timeline) runWhile(should func() bool) {
	for len(t.pending) > 0 && should() {
		next := heap.Pop(&t.pending).(happening)
		t.now = next.at
		next.do()
	}
}

// Now and Since make it a clock for those who want one.

// Now returns what time it is.
func (t *timeline) Now() time.Time { return epoch.Add(t.now) }

// Since returns how long ago a time was.
func (t *timeline) Since(then time.Time) time.Duration { return t.Now().Sub(then) }

// pending is a heap of what is to happen, the first on top.
type pending []happening

func (p pending) Len() int { return len(p) }

func (p pending) Less(i, j int) bool {
	if p[i].at != p[j].at {
		return p[i].at < p[j].at
	}
	return p[i].order < p[j].order
}

func (p pending) Swap(i, j int) { p[i], p[j] = p[j], p[i] }

func (p *pending) Push(x any) { *p = append(*p, x.(happening)) }

func (p *pending) Pop() any {
	old := *p
	last := old[len(old)-1]
	old[len(old)-1] = happening{}
	*p = old[:len(old)-1]
	return last
}
