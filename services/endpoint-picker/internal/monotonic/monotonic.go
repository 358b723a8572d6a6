// Package monotonic stores points in time in integers, for atomics, without losing the monotonic clock reading of time.Time.
//
// Unix nanoseconds in an atomic are wall-clock time: when NTP sets the clock forward by a minute, every server with a
// request looks a minute late. A Time does not move with the wall clock.
package monotonic

import (
	"sync/atomic"
	"time"
)

// reference is the origin of all Times. It is a century before the start of the process, so that every Time is above 0,
// also those of tests with a fixed date.
var reference = time.Now().Add(-100 * 365 * 24 * time.Hour)

// A Time is a point in time in nanoseconds since an arbitrary origin. The zero Time is unset, and before all others. Times
// are valid in one process only.
type Time int64

// FromTime converts a time. It uses the monotonic clock reading, if there is one.
func FromTime(t time.Time) Time { return Time(t.Sub(reference)) }

// IsSet reports whether the time was set.
func (t Time) IsSet() bool { return t != 0 }

// Add returns the time plus a duration.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns the duration from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Time converts a set time back.
func (t Time) Time() time.Time { return reference.Add(time.Duration(t)) }

// Atomic is a Time that is safe for concurrent use. It starts unset.
type Atomic struct {
	nanoseconds atomic.Int64
}

// Load returns the time.
func (a *Atomic) Load() Time { return Time(a.nanoseconds.Load()) }

// Store sets the time.
func (a *Atomic) Store(t Time) { a.nanoseconds.Store(int64(t)) }

// Restore sets the time to a previous one, unless it has changed since.
func (a *Atomic) Restore(from, to Time) { a.nanoseconds.CompareAndSwap(int64(from), int64(to)) }

// Swap sets the time and returns the previous one.
func (a *Atomic) Swap(t Time) Time { return Time(a.nanoseconds.Swap(int64(t))) }
