package monotonic_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/monotonic"
)

func TestTime(t *testing.T) {
	t.Parallel()
	for _, start := range []time.Time{time.Now(), time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} {
		at := monotonic.From(start)
		assert.True(t, at.IsSet())
		assert.Positive(t, at, "an unset time is before it")
		later := monotonic.From(start.Add(time.Minute))
		assert.Equal(t, time.Minute, later.Sub(at))
		assert.Equal(t, later, at.Add(time.Minute))
		assert.WithinDuration(t, start, at.Time(), 0)
	}
}

// An NTP step changes the wall clock, and the monotonic clock goes on.
func TestTimeDoesNotMoveWithTheWallClock(t *testing.T) {
	t.Parallel()
	began := time.Now()
	now := time.Now()
	stepped := now.Add(time.Hour).Round(0) // without its monotonic reading a time is wall-clock time
	assert.GreaterOrEqual(t, monotonic.From(stepped).Sub(monotonic.From(began)), 59*time.Minute, "the step is there in wall-clock time")
	assert.Less(t, monotonic.From(now).Sub(monotonic.From(began)), time.Minute)
}

func TestAtomic(t *testing.T) {
	t.Parallel()
	var a monotonic.Atomic
	assert.False(t, a.Load().IsSet())
	at := monotonic.From(time.Now())
	a.Store(at)
	assert.Equal(t, at, a.Load())
	assert.Equal(t, at, a.Swap(0))
	assert.False(t, a.Load().IsSet())
}
