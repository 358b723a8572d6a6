package memory

import (
	"slices"
	"time"
)

const (
	// idleWindow is the time in which wake-ups are counted.
	idleWindow = 24 * time.Hour
	// leastIdle is the least time that says how often a model wakes.
	leastIdle = time.Hour
	// maxWakeUps bounds the wake-ups that are remembered: one a minute.
	maxWakeUps = 24 * 60
)

// idleness is how often a group woke.
type idleness struct {
	since   time.Time // the first pass that knew its requests
	idle    bool
	wakeUps []time.Time
}

// RecordIdle records whether a group had no request in its retention period, and returns how many times per hour one came after such a
// period. It does not matter whether the group had replicas. While less than an hour is known it returns 0.
func (g *Group) RecordIdle(idle bool, now time.Time) (wakeUps float64) { //nolint:revive // what was seen
	history := &g.idle
	if history.since.IsZero() {
		history.since = now
	} else if history.idle && !idle {
		history.wakeUps = append(history.wakeUps[max(0, len(history.wakeUps)-maxWakeUps+1):], now)
	}
	history.idle = idle
	history.wakeUps = slices.DeleteFunc(history.wakeUps, func(at time.Time) bool { return now.Sub(at) >= idleWindow })
	known := min(now.Sub(history.since), idleWindow)
	if known < leastIdle {
		return 0
	}
	return float64(len(history.wakeUps)) / known.Hours()
}
