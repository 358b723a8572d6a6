package endpoint

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMonotonic(t *testing.T) {
	t.Parallel()
	for _, start := range []time.Time{time.Now(), time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} {
		at := ToMonotonic(start)
		assert.True(t, at.IsSet())
		assert.Positive(t, at, "an unset time is before it")
		later := ToMonotonic(start.Add(time.Minute))
		assert.Equal(t, time.Minute, later.Sub(at))
		assert.Equal(t, later, at.Add(time.Minute))
		assert.WithinDuration(t, start, at.Time(), 0)
	}
}

// stepped returns a time as a clock reads it after its wall clock was set forward: the monotonic reading is the same. It knows
// the layout of time.Time, which a test checks.
func stepped(t time.Time, seconds uint64) time.Time {
	(*struct {
		wall uint64 // a flag, 33 bits of seconds, 30 bits of nanoseconds
		ext  int64  // monotonic reading
		loc  *time.Location
	})(unsafe.Pointer(&t)).wall += seconds << 30
	return t
}

func TestMonotonicDoesNotMoveWithTheWallClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	later := stepped(now, 3600)
	require.Equal(t, time.Hour, later.Round(0).Sub(now.Round(0)), "the wall clock was set")
	require.Zero(t, later.Sub(now), "and the monotonic clock was not")
	assert.Equal(t, ToMonotonic(now), ToMonotonic(later))
}

func TestAtomicMonotonic(t *testing.T) {
	t.Parallel()
	var a AtomicMonotonic
	assert.False(t, a.Load().IsSet())
	at := ToMonotonic(time.Now())
	a.Store(at)
	assert.Equal(t, at, a.Load())
	assert.Equal(t, at, a.Swap(0))
	assert.False(t, a.Load().IsSet())
}
