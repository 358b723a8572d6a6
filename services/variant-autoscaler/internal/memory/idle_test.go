package memory

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestIdle: a request after an idle period is a wake-up, whether the group slept or not.
func TestIdle(t *testing.T) {
	t.Parallel()
	m, now := New(time.Minute), at(0)
	minute := func(idle bool) float64 {
		now = now.Add(time.Minute)
		return m.GroupFor(group1, now).RecordIdle(idle, now)
	}
	assert.Zero(t, minute(false), "a busy group that was not seen before did not wake")
	for range 59 {
		assert.Zero(t, minute(true), "too little is known")
	}
	assert.InDelta(t, 1, minute(false), 1e-9, "one in an hour")
	assert.InDelta(t, 60.0/61, minute(false), 1e-9, "it is busy")
	for range 6 {
		minute(true)
		minute(false)
	}
	assert.InDelta(t, 7*60.0/73, m.GroupFor(group1, now).RecordIdle(false, now), 1e-9)
	now = now.Add(idleWindow)
	assert.Zero(t, minute(false), "a day later")
	for range 10_000 {
		m.GroupFor(group1, now).RecordIdle(true, now)
		m.GroupFor(group1, now).RecordIdle(false, now)
	}
	assert.Len(t, m.groups[group1].idle.wakeUps, maxWakeUps)
}
