package endpoint

import (
	"sync/atomic"
	"time"
)

// clockOrigin is the origin of all monotonic times. It is a century before the start of the process, so that every such time is above 0,
// also those of tests with a fixed date.
var clockOrigin = time.Now().Add(-100 * 365 * 24 * time.Hour)

// A Monotonic is a point in time in nanoseconds since an arbitrary origin, for atomics. Unix nanoseconds in an atomic are wall-clock time:
// when NTP sets the clock forward by a minute, every server with a request looks a minute late. A Monotonic does not move with the wall
// clock. The zero value is unset, and before all others. Values are valid in one process only.
type Monotonic int64

// ToMonotonic converts a time. It uses the monotonic clock reading, if there is one.
func ToMonotonic(t time.Time) Monotonic { return Monotonic(t.Sub(clockOrigin)) }

// IsSet reports whether the time was set.
func (t Monotonic) IsSet() bool { return t != 0 }

// Add returns the time plus a duration.
func (t Monotonic) Add(d time.Duration) Monotonic { return t + Monotonic(d) }

// Sub returns the duration from u to t.
func (t Monotonic) Sub(u Monotonic) time.Duration { return time.Duration(t - u) }

// Time converts a set time back.
func (t Monotonic) Time() time.Time { return clockOrigin.Add(time.Duration(t)) }

// AtomicMonotonic is a Monotonic that is safe for concurrent use. It starts unset.
type AtomicMonotonic struct {
	nanoseconds atomic.Int64
}

// Load returns the time.
func (a *AtomicMonotonic) Load() Monotonic { return Monotonic(a.nanoseconds.Load()) }

// Store sets the time.
func (a *AtomicMonotonic) Store(t Monotonic) { a.nanoseconds.Store(int64(t)) }

// Restore sets the time to a previous one, unless it has changed since.
func (a *AtomicMonotonic) Restore(from, to Monotonic) {
	a.nanoseconds.CompareAndSwap(int64(from), int64(to))
}

// Swap sets the time and returns the previous one.
func (a *AtomicMonotonic) Swap(t Monotonic) Monotonic { return Monotonic(a.nanoseconds.Swap(int64(t))) }
