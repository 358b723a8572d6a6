// Package follow polls a source of configuration, such as a file, and keeps its last good state.
//
//	the source's state      the state in use
//	is new                  the last good one; a state may be half written when it is first read
//	is the same in two
//	readings in a row       it, if it can be applied
//	cannot be read, or
//	cannot be applied       the last good one; reported once for each state
//
// Polling also works where notifications do not: a mounted ConfigMap or Secret changes by a symbolic link, editors replace
// files, and some file systems report nothing.
package follow

import (
	"context"
	"errors"
	"time"
)

// Unavailable marks an error of a read that says nothing about the state, such as an outage of the API server. The
// Follower keeps the state in use and reports nothing.
func Unavailable(err error) error { return unavailableError{err} }

type unavailableError struct{ error }

func (e unavailableError) Unwrap() error { return e.error }

// Retry marks an error that may disappear while the state stays the same, such as a missing file that the state names. The
// state is tried again at each interval.
func Retry(err error) error { return retryError{err} }

type retryError struct{ error }

func (e retryError) Unwrap() error { return e.error }

// confirmAfter is the maximum time between the two readings of a new state. With half of it, a writer that pauses for longer
// in the middle of a file is read half done; with twice as much, changes take effect a second later.
const confirmAfter = time.Second

// A Source is followed by a Follower.
type Source[T any] interface {
	// Read returns the current state.
	Read(ctx context.Context) (T, error)
	// Equal compares two states.
	Equal(a, b T) bool
	// Apply makes a state effective, or returns the reason why it cannot.
	Apply(state T) error
	// Reject reports why the last good state stays in use.
	Reject(err error)
}

// A Follower follows a source.
type Follower[T any] struct {
	source   Source[T]
	interval time.Duration

	settled reading[T] // applied or rejected
	pending reading[T] // the last one
	retry   bool       // the settled state may be applied later
}

// reading is the result of a read.
type reading[T any] struct {
	state   T
	problem string // why there is no state
}

// New returns a Follower of a source whose state is in use.
func New[T any](s Source[T], interval time.Duration, state T) *Follower[T] {
	in := reading[T]{state: state}
	return &Follower[T]{source: s, interval: interval, settled: in, pending: in}
}

// Run polls until ctx ends. Without an interval it only waits.
func (f *Follower[T]) Run(ctx context.Context) {
	if f.interval <= 0 {
		<-ctx.Done()
		return
	}
	timer := time.NewTimer(f.interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		wait := f.interval
		if f.pollSource(ctx) == unconfirmed {
			wait = min(f.interval, confirmAfter)
		}
		timer.Reset(wait)
	}
}

// outcome is the result of a poll.
type outcome int

const (
	unchanged   outcome = iota
	unconfirmed         // there is a new state, read once
	confirmed           // it was applied or rejected
)

// pollSource reads the source once.
func (f *Follower[T]) pollSource(ctx context.Context) outcome {
	var now reading[T]
	state, err := f.source.Read(ctx)
	var unavailable unavailableError
	switch {
	case ctx.Err() != nil, errors.As(err, &unavailable):
		return unchanged
	case err != nil:
		now.problem = err.Error()
	default:
		now.state = state
	}
	last := f.pending
	f.pending = now
	switch {
	case f.sameReading(now, f.settled):
		if !f.retry {
			return unchanged
		}
		f.applyReading(now, err)
		return confirmed
	case !f.sameReading(now, last):
		return unconfirmed
	}
	f.retry = false
	f.applyReading(now, err)
	return confirmed
}

// applyReading applies a confirmed reading, or rejects it.
func (f *Follower[T]) applyReading(now reading[T], err error) {
	again := f.retry
	f.settled = now
	if err == nil {
		err = f.source.Apply(now.state)
	}
	var retry retryError
	f.retry = errors.As(err, &retry)
	if err != nil && !again {
		f.source.Reject(err)
	}
}

func (f *Follower[T]) sameReading(a, b reading[T]) bool {
	return a.problem == b.problem && (a.problem != "" || f.source.Equal(a.state, b.state))
}
