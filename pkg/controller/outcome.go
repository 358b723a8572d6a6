package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// RequeueAfter is what Reconcile returns when all is well and the key is to come again after d, for a reason.
func RequeueAfter(d time.Duration, reason string) error {
	return &requeueError{after: d, reason: reason}
}

// Terminal is what Reconcile returns when trying again would not help before the object changes, for a reason that
// conditions and Events have, too. It is nil if err is.
func Terminal(reason string, err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{reason: reason, err: err}
}

type requeueError struct {
	after  time.Duration
	reason string
}

func (e *requeueError) Error() string { return fmt.Sprintf("requeue after %s: %s", e.after, e.reason) }

type terminalError struct {
	reason string
	err    error
}

func (e *terminalError) Error() string { return e.reason + ": " + e.err.Error() }

func (e *terminalError) Unwrap() error { return e.err }

// result is how a reconcile ended. Of several at once the highest counts.
type result int

const (
	succeeded result = iota
	terminal
	requeued
	conflicted
	failed
	canceled
)

// String returns the value of the label in metrics.
func (r result) String() string {
	return [...]string{"success", "terminal", "requeue", "conflict", "error", "canceled"}[r]
}

// outcome is what becomes of a key.
type outcome struct {
	result result
	after  time.Duration // of requeued: the least
	reason string        // of requeued and of terminal
}

// classify reads what Reconcile returned.
func classify(ctx context.Context, err error) outcome {
	switch {
	case err == nil:
		return outcome{}
	case ctx.Err() != nil:
		return outcome{result: canceled}
	}
	return read(err)
}

// read goes down an error to what tells the outcome, and into all branches of what errors.Join made.
func read(err error) outcome {
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch e := e.(type) { //nolint:errorlint // each level by itself: errors.As would look into branches
		case *requeueError:
			return outcome{result: requeued, after: e.after, reason: e.reason}
		case *terminalError:
			return outcome{result: terminal, reason: e.reason}
		case interface{ Unwrap() []error }:
			var all outcome
			for _, branch := range e.Unwrap() {
				all = all.join(read(branch))
			}
			return all
		}
	}
	if apierrors.IsConflict(err) {
		return outcome{result: conflicted}
	}
	return outcome{result: failed}
}

// join returns the outcome of both.
func (o outcome) join(other outcome) outcome {
	if o.result == requeued && other.result == requeued && other.after < o.after || other.result > o.result {
		return other
	}
	return o
}
