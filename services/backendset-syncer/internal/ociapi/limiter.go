package ociapi

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// Priority is what the limiter does with a request when requests are scarce.
type Priority int

// Priorities.
const (
	High Priority = iota // writes, and reads that a write waits for: they wait for the limit
	Low                  // reads for status: half of the rate at most, and none while others wait
)

const (
	// minRate is the lowest rate per second after many 429s.
	minRate = 0.5
	// recovery is the part of the full rate that a success restores: 50 successes restore it all.
	recovery = 0.02
	// burstSeconds is the burst in seconds of the rate.
	burstSeconds = 2
)

// limiter limits the requests of all load balancers. A 429 halves the rate, and each success restores a little of it: the limits of
// the service are those of the tenancy or of the user, not of a load balancer.
type limiter struct {
	clock   clock.WithTicker
	full    float64
	changed func(perSecond float64)

	mu      sync.Mutex
	overall *rate.Limiter
	low     *rate.Limiter
	current float64
	blocked time.Time // no request before, as the service asked for
}

func newLimiter(perSecond float64, c clock.WithTicker, changed func(float64)) *limiter {
	l := &limiter{clock: c, full: perSecond, changed: changed, current: perSecond}
	burst := max(int(perSecond*burstSeconds), 1)
	l.overall, l.low = rate.NewLimiter(rate.Limit(perSecond), burst), rate.NewLimiter(rate.Limit(perSecond/2), max(burst/2, 1))
	changed(perSecond)
	return l
}

// admitRequest returns when a request may be sent. One of low priority is not kept waiting, but refused.
func (l *limiter) admitRequest(ctx context.Context, p Priority, operation string) *Error {
	if p == High {
		return l.waitForTurn(ctx, operation)
	}
	if delay := l.tryTurn(); delay > 0 {
		return &Error{Class: Deferred, Operation: operation, Message: "other requests come first", RetryAfter: delay}
	}
	return nil
}

func (l *limiter) waitForTurn(ctx context.Context, operation string) *Error {
	for delay := l.reserveTurn(); delay > 0; delay = l.untilOpen() {
		timer := l.clock.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return &Error{
				Class: Unreachable, Operation: operation, Message: "wait for the limit of requests: " + context.Cause(ctx).Error(),
			}
		case <-timer.C():
		}
	}
	return nil
}

// reserveTurn takes a place in the sequence of requests, and returns the time until it comes.
func (l *limiter) reserveTurn() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	return max(l.overall.ReserveN(now, 1).DelayFrom(now), l.blocked.Sub(now))
}

// tryTurn takes the first place in the sequence of requests if it is free. Otherwise, it returns the time until it may be.
func (l *limiter) tryTurn() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	overall, low := l.overall.ReserveN(now, 1), l.low.ReserveN(now, 1)
	delay := max(overall.DelayFrom(now), low.DelayFrom(now), l.blocked.Sub(now))
	if delay > 0 {
		overall.CancelAt(now)
		low.CancelAt(now)
	}
	return delay
}

// untilOpen returns the time for which the service asked to wait.
func (l *limiter) untilOpen() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.blocked.Sub(l.clock.Now())
}

// adjustRate changes the rate after the result of a request.
func (l *limiter) adjustRate(err *Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, now := l.current, l.clock.Now()
	switch {
	case err == nil:
		l.current = min(l.current+l.full*recovery, l.full)
	case err.Class == Throttled:
		l.current = max(l.current/2, min(minRate, l.full))
		if until := now.Add(err.RetryAfter); until.After(l.blocked) {
			l.blocked = until
		}
	}
	if l.current != before {
		l.overall.SetLimitAt(now, rate.Limit(l.current))
		l.low.SetLimitAt(now, rate.Limit(l.current/2))
		l.changed(l.current)
	}
}
