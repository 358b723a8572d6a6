package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// RequeueAfter returns an error for Reconcile to return on success, if the name must be reconciled again after d. reason
// appears in the log.
func RequeueAfter(d time.Duration, reason string) error {
	return &requeueError{after: d, reason: reason}
}

// Terminal returns an error for Reconcile to return if a retry cannot succeed until the object changes. reason is the same as
// in conditions and Events. If err is nil, Terminal returns nil.
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

// result classifies the end of a reconcile. If several apply, the highest wins.
type result int

const (
	succeeded result = iota
	terminal
	requeued
	conflicted
	failed
	canceled
)

// String returns the value of the metric label.
func (r result) String() string {
	return [...]string{"success", "terminal", "requeue", "conflict", "error", "canceled"}[r]
}

// outcome is the result of a reconcile with the data for the next attempt.
type outcome struct {
	result result
	after  time.Duration // for requeued: the shortest time
	reason string        // for requeued and terminal
}

// classifyOutcome returns the outcome for an error that Reconcile returned.
func classifyOutcome(ctx context.Context, err error) outcome {
	switch {
	case err == nil:
		return outcome{}
	case ctx.Err() != nil:
		return outcome{result: canceled}
	}
	return classifyError(err)
}

// classifyError unwraps an error until a level determines the outcome. It joins the outcomes of all branches of joined errors.
func classifyError(err error) outcome {
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch e := e.(type) { //nolint:errorlint // checks one level at a time: errors.As would search all branches
		case *requeueError:
			return outcome{result: requeued, after: e.after, reason: e.reason}
		case *terminalError:
			return outcome{result: terminal, reason: e.reason}
		case interface{ Unwrap() []error }:
			var all outcome
			for _, branch := range e.Unwrap() {
				all = all.joinOutcome(classifyError(branch))
			}
			return all
		}
	}
	if apierrors.IsConflict(err) {
		return outcome{result: conflicted}
	}
	return outcome{result: failed}
}

// joinOutcome returns the outcome that wins: the higher result, or the shorter of two requeue times.
func (o outcome) joinOutcome(other outcome) outcome {
	if o.result == requeued && other.result == requeued && other.after < o.after || other.result > o.result {
		return other
	}
	return o
}
