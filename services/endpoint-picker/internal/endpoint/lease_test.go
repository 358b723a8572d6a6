package endpoint

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// tracker counts the calls of a lease.
type tracker struct {
	firsts, continued, moves, fails, missed, ends int

	at *Endpoint
}

func (r *tracker) OnFirstToken(time.Time)           { r.firsts++ }
func (r *tracker) OnMove(to *Endpoint, _ time.Time) { r.moves, r.at = r.moves+1, to }
func (r *tracker) OnMoreContent(time.Time)          { r.continued++ }
func (r *tracker) OnMissedFirst(time.Time)          { r.missed++ }
func (r *tracker) OnFailure()                       { r.fails++ }
func (r *tracker) OnEnd(Ending)                     { r.ends++ }

// acquire returns a lease with a tracker.
func acquire(e *Endpoint) (*Lease, *tracker) {
	l, r := &Lease{}, &tracker{at: e}
	e.AcquireInto(l, r)
	return l, r
}

func TestLeaseMovesToTheServerThatServes(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint(t), newEndpoint(t)
	l, r := acquire(a)
	l.MoveTo(b, noon)
	l.MoveTo(b, noon)
	assert.Same(t, b, l.Endpoint())
	assert.Equal(t, tracker{moves: 1, at: b}, *r)
	assert.Zero(t, a.Load().Requests)
	assert.InDelta(t, 1, b.Load().Requests, 0)
	assert.Equal(t, []int64{0, 1, 1, 0}, []int64{a.StatsAt(noon).InFlight, a.StatsAt(noon).Picks, b.StatsAt(noon).InFlight,
		b.StatsAt(noon).Picks}, "it was picked once")

	l.MarkFirstContent(noon)
	l.MarkFirstContent(noon)
	l.MoveTo(a, noon)
	assert.Same(t, b, l.Endpoint(), "the answer has begun")
	l.Release()
	l.MoveTo(a, noon)
	l.Abandon(noon)
	assert.Equal(t, tracker{firsts: 1, moves: 1, ends: 1, at: b}, *r)
	assert.Zero(t, a.Load().Requests+b.Load().Requests)
	assert.Zero(t, a.StatsAt(noon).InFlight+b.StatsAt(noon).InFlight)
}

func TestAbandonedLeaseWaitsForASampleOfItsNewServer(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint(t), newEndpoint(t)
	l := a.Acquire()
	scrape(a, after(1), Gauges{Running: 1})
	l.MoveTo(b, after(2))
	l.Abandon(after(3))
	assert.Zero(t, a.StatsAt(noon).InFlight)
	assert.EqualValues(t, 1, b.StatsAt(noon).InFlight, "no sample of this server has it")
	scrape(b, after(4), Gauges{Running: 1})
	assert.Zero(t, b.StatsAt(noon).InFlight)
	assert.InDelta(t, 1, b.Load().Requests, 0)
}

func TestMovedProbeAllowsTheNext(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint(t), newEndpoint(t)
	a.Health().EjectUntil("responses", noon)
	l := a.Acquire()
	assert.False(t, a.Health().IsUsable(noon), "it is being probed")
	l.MoveTo(b, noon)
	assert.True(t, a.Health().IsUsable(noon))
	assert.True(t, a.Acquire().probe)
	l.Release()
	assert.False(t, a.Health().IsUsable(noon), "the first lease has nothing to do with it any more")
}

func TestLeaseIsSafeForConcurrentCalls(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint(t), newEndpoint(t)
	for range 500 {
		l, r := acquire(a)
		var wg sync.WaitGroup
		for _, call := range []func(){
			func() { l.MarkFirstContent(noon) }, func() { l.MarkFirstContent(noon) }, func() { l.MoveTo(b, noon) }, func() { l.MoveTo(a, noon) },
			l.Release, l.Release, func() { l.Abandon(noon) }, func() { _ = l.Endpoint().Address() }, func() { scrape(b, noon, Gauges{}) },
		} {
			wg.Go(call)
		}
		wg.Wait()
		assert.Equal(t, 1, r.ends)
		assert.LessOrEqual(t, r.firsts, 1)
		assert.Same(t, l.Endpoint(), r.at)
	}
	for _, e := range []*Endpoint{a, b} {
		scrape(e, noon, Gauges{})
		assert.Zero(t, e.StatsAt(noon).InFlight)
		assert.Zero(t, e.Load().Requests)
	}
}

// Without scrapes, abandoned leases end by their own clock.
func TestExpireLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, gone := newEndpoint(t), newEndpoint(t)
		var endpoints atomic.Pointer[[]*Endpoint]
		endpoints.Store(&[]*Endpoint{})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { ExpireLeases(ctx, time.Minute, func() []*Endpoint { return *endpoints.Load() }) })
		time.Sleep(10 * time.Second)
		endpoints.Store(&[]*Endpoint{e, gone})
		e.Acquire().Abandon(time.Now())
		time.Sleep(30 * time.Second)
		e.Acquire().Abandon(time.Now())
		open := e.Acquire()
		gone.Acquire().Abandon(time.Now())
		endpoints.Store(&[]*Endpoint{e})

		time.Sleep(29 * time.Second)
		assert.EqualValues(t, 3, e.StatsAt(noon).InFlight)
		time.Sleep(time.Second + 2*expiryInterval)
		assert.EqualValues(t, 2, e.StatsAt(noon).InFlight)
		time.Sleep(30 * time.Second)
		assert.EqualValues(t, 1, e.StatsAt(noon).InFlight)
		assert.InDelta(t, 1, e.Load().Requests, 0)
		time.Sleep(time.Hour)
		assert.EqualValues(t, 1, e.StatsAt(noon).InFlight, "an open lease has no limit")
		open.Release()
		assert.Zero(t, e.Load().Requests)
		cancel()
		running.Wait()
	})
}

func TestFailedRequestCountsForAWhile(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	l, r := acquire(e)
	l.FailUntil(LoadSpan{noon, after(2)}, noon)
	l.FailUntil(LoadSpan{noon, after(5)}, noon)
	l.Release()
	l.MarkFirstContent(noon)
	assert.Equal(t, tracker{fails: 1, at: e}, *r)
	assert.InDelta(t, 1, e.Load().Requests, 0)
	assert.Zero(t, e.StatsAt(noon).InFlight, "it has ended")
	e.ExpireFailed(after(1), 0)
	assert.InDelta(t, 1, e.Load().Requests, 0)
	e.ExpireFailed(after(2), 0)
	assert.Zero(t, e.Load().Requests)
	assert.Equal(t, tracker{fails: 1, ends: 1, at: e}, *r)
	e.ExpireFailed(after(3), 0)
	assert.Zero(t, e.Load().Requests)
}

func TestFailedRequestCountsLikeOneThatIsAnswered(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	l, r := acquire(e)
	l.MarkMoreContent(noon)
	assert.Zero(t, r.continued, "it has not begun")
	l.MarkFirstContent(noon)
	l.MarkMoreContent(noon)
	l.FailUntil(LoadSpan{noon, after(5)}, after(1))
	l.MarkMoreContent(after(1))
	assert.Equal(t, tracker{firsts: 1, continued: 1, fails: 1, at: e}, *r)
	e.ExpireFailed(after(3), 0)
	e.ExpireFailed(after(3), 4)
	assert.Zero(t, r.missed, "not yet")
	e.ExpireFailed(after(3), 2)
	e.ExpireFailed(after(4), 2)
	assert.Equal(t, 1, r.missed)
	e.ExpireFailed(after(5), 2)
	l.markMissedFirst(after(5)) // of a pick that came first, and was slower
	assert.Equal(t, tracker{firsts: 1, continued: 1, fails: 1, missed: 1, ends: 1, at: e}, *r)
}

func TestRequestThatFailsLateCountsNoLonger(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	l, r := acquire(e)
	l.FailUntil(LoadSpan{noon, after(2)}, after(2))
	assert.Equal(t, tracker{fails: 1, ends: 1, at: e}, *r)
	assert.Zero(t, e.Load().Requests)
}

func TestOnlySoManyFailedRequestsCount(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	for range 3 * maxFailed {
		e.Acquire().FailUntil(LoadSpan{noon, after(2)}, noon)
	}
	assert.InDelta(t, maxFailed, e.Load().Requests, 0)
	assert.InDelta(t, maxFailed, e.Load().Failed, 0)
	e.ExpireFailed(after(2), 0)
	assert.Zero(t, e.Load().Requests)
	assert.Zero(t, e.Load().Failed)
}

func TestFailedProbeAllowsTheNext(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	e.Health().EjectUntil("responses", noon)
	l := e.Acquire()
	assert.False(t, e.Health().IsUsable(noon))
	l.FailUntil(LoadSpan{noon, after(2)}, noon)
	assert.True(t, e.Health().IsUsable(noon))
}
