package ociapi

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

// sent returns how many requests a limiter lets pass in a time. Those of low priority come again when the limiter says.
func sent(t *testing.T, l *limiter, p Priority, d time.Duration) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	n := 0
	for ctx.Err() == nil {
		err := l.admitRequest(ctx, p, "GetLoadBalancer")
		if err == nil {
			n++
		} else {
			time.Sleep(err.RetryAfter)
		}
	}
	return n
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var limits []float64
		l := newLimiter(10, clock.RealClock{}, func(perSecond float64) { limits = append(limits, perSecond) })
		assert.InDelta(t, 120, sent(t, l, High, 10*time.Second), 2, "the rate, and a burst of two seconds")
		time.Sleep(10 * time.Second)
		assert.InDelta(t, 60, sent(t, l, Low, 10*time.Second), 2, "half of it")
		time.Sleep(10 * time.Second)

		for range 3 {
			l.adjustRate(&Error{Class: Throttled})
		}
		assert.InDelta(t, 1.25, l.current, 0.01, "it halves three times")
		assert.InDelta(t, 32, sent(t, l, High, 10*time.Second), 3, "the burst is still there")
		for range 10 {
			l.adjustRate(&Error{Class: Throttled})
		}
		assert.InDelta(t, minRate, l.current, 0)
		l.adjustRate(&Error{Class: Failing})
		assert.InDelta(t, minRate, l.current, 0, "other errors say nothing about the rate")
		for range 60 {
			l.adjustRate(nil)
		}
		assert.InDelta(t, 10, l.current, 0)
		assert.InDelta(t, 10, limits[0], 0)
		assert.InDelta(t, 10, limits[len(limits)-1], 0)
		assert.Len(t, limits, 1+5+48, "only changes are reported")
	})
}

func TestRetryAfterBlocksAllRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(100, clock.RealClock{}, func(float64) {})
		begun := time.Now()
		l.adjustRate(&Error{Class: Throttled, RetryAfter: 7 * time.Second})
		l.adjustRate(&Error{Class: Throttled, RetryAfter: 2 * time.Second})
		deferred := l.admitRequest(t.Context(), Low, "GetBackendSetHealth")
		assert.Equal(t,
			&Error{Class: Deferred, Operation: "GetBackendSetHealth", Message: "other requests come first", RetryAfter: 7 * time.Second},
			deferred)
		require.Nil(t, l.admitRequest(t.Context(), High, "GetLoadBalancer"))
		assert.Equal(t, 7*time.Second, time.Since(begun))
		ctx, cancel := context.WithCancelCause(t.Context())
		l.adjustRate(&Error{Class: Throttled, RetryAfter: time.Hour})
		cancel(context.DeadlineExceeded)
		require.ErrorContains(t, l.admitRequest(ctx, High, "GetLoadBalancer"),
			"GetLoadBalancer: wait for the limit of requests: context deadline exceeded")
	})
}

// TestLowPriorityComesLast has so many requests of high priority that some wait.
func TestLowPriorityComesLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(2, clock.RealClock{}, func(float64) {})
		var all sync.WaitGroup
		for range 10 { // four pass at once, the others in three seconds
			all.Go(func() { assert.Nil(t, l.admitRequest(t.Context(), High, "UpdateBackendSet")) })
		}
		synctest.Wait()
		deferred := l.admitRequest(t.Context(), Low, "GetBackendSetHealth")
		require.NotNil(t, deferred)
		assert.Equal(t, 3500*time.Millisecond, deferred.RetryAfter)
		begun := time.Now()
		all.Wait()
		assert.Equal(t, 3*time.Second, time.Since(begun), "the refused request takes no place")
		time.Sleep(500 * time.Millisecond)
		assert.Nil(t, l.admitRequest(t.Context(), Low, "GetBackendSetHealth"))
	})
}
