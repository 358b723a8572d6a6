package estimate

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// addEndpoint adds an endpoint with a number.
func (x *Estimator) addEndpoint(number byte) *endpoint.Endpoint {
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, number}), 8000)
	return x.NewEndpoint(endpoint.Description{Identity: endpoint.Identity{Pod: address.String(), Address: address}}, noon)
}

// counts are requests in prefill, their backlog, and decoding requests.
func (s *Server) counts() [3]int64 {
	return [3]int64{s.prefills.Load(), s.backlog.Load(), s.decoding.Load()}
}

func TestSequence_CountsOnce(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	s := ServerOf(e)
	l := s.placeStreamed(e, noon, Prefill{Tokens: 7})
	assert.Equal(t, [3]int64{1, 7, 0}, s.counts())
	l.MarkFirstContent(after(1))
	l.MarkFirstContent(after(2))
	assert.Equal(t, [3]int64{0, 0, 1}, s.counts())
	l.Release()
	l.Release()
	l.MarkFirstContent(after(3))
	assert.Equal(t, [3]int64{}, s.counts())

	l = s.placeStreamed(e, noon, Prefill{Tokens: 7})
	l.Abandon(noon)
	l.Release()
	assert.Equal(t, [3]int64{}, s.counts(), "ended before its first token")

	l = s.acquireLease(e, noon, Prefill{Tokens: 7}, Whole)
	assert.Equal(t, int64(7), s.unobserved.Load())
	l.MarkFirstContent(noon)
	assert.Equal(t, [3]int64{0, 0, 1}, s.counts(), "it decodes from the beginning")
	l.Release()
	assert.Equal(t, [3]int64{}, s.counts())
	assert.Zero(t, s.unobserved.Load())
}

// A failed request counts like one that has not failed: in prefill until an answer would have begun, then as being answered.
func TestSequence_FailedCountsLikeOthers(t *testing.T) {
	t.Parallel()
	for _, begun := range []bool{false, true} {
		x := newTestEstimator(1 << 20)
		e := x.addEndpoint(1)
		s := ServerOf(e)
		other := s.placeStreamed(e, noon, Prefill{Tokens: 100})
		s.placeStreamed(e, noon, Prefill{Tokens: 7}).MarkFirstContent(after(1))
		l := s.placeStreamed(e, after(1), Prefill{Tokens: 9})
		if begun {
			l.MarkFirstContent(after(2))
		}
		l.FailUntil(endpoint.LoadSpan{Arrived: after(1), Until: after(10)}, after(2))
		assert.Equal(t, [3]int64{2, 109, 1}, s.counts())
		assert.Equal(t, endpoint.ToMonotonic(after(1)), s.lastProgress.Load(), "its first token was no progress")
		assert.Equal(t, int64(100), s.pending.next.Load())
		e.ExpireFailed(after(3), 0)
		assert.Equal(t, [3]int64{2, 109, 1}, s.counts(), "no first token is known")
		e.ExpireFailed(after(4), 3*time.Second)
		assert.Equal(t, [3]int64{1, 100, 2}, s.counts())
		assert.Equal(t, endpoint.ToMonotonic(after(4)), s.lastProgress.Load())
		e.ExpireFailed(after(10), 3*time.Second)
		assert.Equal(t, [3]int64{1, 100, 1}, s.counts())
		other.Release()
		assert.Equal(t, [3]int64{0, 0, 1}, s.counts())
	}
}

func TestSequence_FailedWithoutFirstTokens(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	s := ServerOf(e)
	l := s.acquireLease(e, noon, Prefill{Tokens: 9}, Whole)
	l.FailUntil(endpoint.LoadSpan{Arrived: noon, Until: after(10)}, after(1))
	e.ExpireFailed(after(3), time.Second)
	assert.Equal(t, [3]int64{0, 0, 1}, s.counts())
	e.ExpireFailed(after(10), time.Second)
	assert.Equal(t, [3]int64{}, s.counts())
	assert.Zero(t, s.unobserved.Load())
}

// A client that repeats a request with a prompt that is too long must not make servers look busy for as long as the prompt would take.
func TestSequence_FailedCountsAsUsualWorkAtMost(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	s := ServerOf(e)
	for range 2 {
		s.placeStreamed(e, noon, Prefill{Tokens: 100_000}).FailUntil(endpoint.LoadSpan{Arrived: noon, Until: after(10)}, noon)
	}
	assert.Less(t, s.work.Load(), int64(2*2000))
	e.ExpireFailed(after(10), 0)
	assert.Equal(t, [3]int64{}, s.counts())
	assert.Zero(t, s.work.Load())
}

// After a fallback the request is the work of the server that serves it.
func TestSequence_MovesWithItsLease(t *testing.T) {
	t.Parallel()
	for form, want := range map[AnswerMode][3]int64{Streamed: {1, 100, 0}, Whole: {0, 0, 1}} {
		x := newTestEstimator(1 << 20)
		from, to := x.addEndpoint(1), x.addEndpoint(2)
		a, b := ServerOf(from), ServerOf(to)
		l := a.acquireLease(from, noon, Prefill{Tokens: 100}, form)
		assert.Equal(t, want, a.counts())
		l.MoveTo(to, after(1))
		assert.Equal(t, [3]int64{}, a.counts())
		assert.Equal(t, want, b.counts())
		l.MarkFirstContent(after(2))
		assert.Equal(t, [3]int64{0, 0, 1}, b.counts())
		l.Release()
		assert.Equal(t, [3]int64{}, b.counts())
		assert.Zero(t, a.unobserved.Load()+b.unobserved.Load())
	}
}

// The picker does not know when the gateway's attempt at the second server began, so the time of the first token must not make
// either server look slow.
func TestSequence_FallbackTeachesNoTime(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	from, to := x.addEndpoint(1), x.addEndpoint(2)
	costs := *x.Costs()
	for i := range 20 {
		start := float64(100 * i)
		l := ServerOf(from).placeStreamed(from, after(start), Prefill{Tokens: 300})
		l.MoveTo(to, after(start+30))
		l.MarkFirstContent(after(start + 31))
		l.Release()
	}
	assert.InDelta(t, 1, ServerOf(from).slowdownFactor(), 0)
	assert.InDelta(t, 1, ServerOf(to).slowdownFactor(), 0)
	assert.Equal(t, costs, *x.Costs())
	assert.Equal(t, endpoint.ToMonotonic(after(1931)), ServerOf(to).lastProgress.Load(), "but it shows progress")
}

// In the middle of other steps the begin of the step is known from the step before.
func TestSequence_FallbackTeachesTheTimeOfABusyServer(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	from, to := x.addEndpoint(1), x.addEndpoint(2)
	s := ServerOf(to)
	other := s.placeStreamed(to, noon, Prefill{Tokens: 300})
	l := ServerOf(from).placeStreamed(from, noon, Prefill{Tokens: 300})
	l.MoveTo(to, after(0.010))
	other.MarkFirstContent(after(0.020))
	l.MarkFirstContent(after(0.035))
	before := s.observed.Load()
	s.learnStep()
	assert.InDelta(t, slowdownWeight*0.015, s.observed.Load()-before*(1-slowdownWeight), 1e-9)
}

func TestStep_JoinsFirstTokensThatComeTogether(t *testing.T) {
	t.Parallel()
	s := newTestServer()
	first := s.begin(noon, Prefill{Tokens: 1000}, 0)
	second := s.begin(after(0.010), Prefill{Tokens: 500}, 0)
	first.OnFirstToken(after(0.100))
	second.OnFirstToken(after(0.1005)) // computed in the same step
	assert.Equal(t, step{startTime: noon, endTime: after(0.100), observation: observation{tokens: 1500, pairs: 625_000}}, s.step)
	third := s.begin(after(0.020), Prefill{Tokens: 100}, 0)
	third.OnFirstToken(after(0.150))
	assert.Equal(t, step{before: after(0.100), startTime: after(0.020), endTime: after(0.150), observation: observation{tokens: 100,
		pairs: 5000, decoding: 2}}, s.step)
	fourth := s.begin(after(1), Prefill{Tokens: 1}, 0)
	observed := s.observed.Load()
	fourth.OnFirstToken(after(1.1))
	assert.InDelta(t, slowdownWeight*0.050, s.observed.Load()-observed*(1-slowdownWeight), 1e-9, "the third was computed after the second")
}

func TestStep_SharedWithOtherReplicasTeachesNothing(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	s := x.addServer()
	now := 0.0
	serve := func(others float64) { // prompts of all lengths take the same time, because others' prompts fill up the step
		for i := range 200 {
			q := s.begin(after(now-1), Prefill{Tokens: 100 * (i % 20)}, others)
			now += 0.8
			q.OnFirstToken(after(now))
			q.OnEnd(endpoint.Finished)
		}
	}
	serve(1)
	shared := x.Costs().Base
	assert.Less(t, shared, 0.3, "the first one began on an idle server")
	serve(0)
	assert.Greater(t, x.Costs().Base, shared+0.2)
}

func TestServer_IsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	a, b := x.addEndpoint(1), x.addEndpoint(2)
	s := ServerOf(a)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 0))
			for i := range 1000 {
				now := after(float64(i) / 100)
				l := s.placeStreamed(a, now, Prefill{Tokens: random.IntN(100)})
				load := a.Load()
				assert.False(t, math.IsNaN(s.estimateTTFT(s.arrivalAfter(now.Sub(noon).Seconds(), x.Costs(), 10), &load)))
				switch random.IntN(4) {
				case 0:
				case 1:
					l.MoveTo(b, now)
				default:
					l.MarkFirstContent(now.Add(time.Duration(random.IntN(int(time.Second)))))
				}
				l.Release()
			}
		})
	}
	wg.Wait()
	assert.Equal(t, [3]int64{}, s.counts())
	assert.Equal(t, [3]int64{}, ServerOf(b).counts())
}

// Any number of goroutines may end, answer or move one request.
func TestLease_IsSafeForConcurrentCalls(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	a, b := x.addEndpoint(1), x.addEndpoint(2)
	for range 300 {
		l := ServerOf(a).placeStreamed(a, noon, Prefill{Tokens: 100})
		var wg sync.WaitGroup
		for _, call := range []func(){
			func() { l.MarkFirstContent(after(1)) }, func() { l.MarkFirstContent(after(1)) }, func() { l.MoveTo(b, noon) }, func() {
				l.MoveTo(a,
					noon)
			},
			l.Release, l.Release, func() { l.Abandon(noon) }, func() { _ = l.Endpoint().Address() },
		} {
			wg.Go(call)
		}
		wg.Wait()
		l.Release()
	}
	for _, e := range []*endpoint.Endpoint{a, b} {
		e.RecordSample(e.StartScrape(noon), endpoint.Gauges{}) // ends abandoned leases
		assert.Equal(t, [3]int64{}, ServerOf(e).counts())
		assert.Zero(t, e.StatsAt(noon).InFlight)
		assert.Zero(t, e.Load().Requests)
	}
}

// A late sequence counts as if its first token were not observed. Its first token teaches the speed of the server, if those of later
// sequences have not.
func TestSequence_Late(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e, other := x.addEndpoint(1), x.addEndpoint(2)
	s := ServerOf(e)
	one, two := s.acquireLease(e, noon, Prefill{Tokens: 7}, Late), s.acquireLease(e, after(10), Prefill{Tokens: 8}, Late)
	assert.Equal(t, [3]int64{0, 0, 2}, s.counts())
	assert.Equal(t, int64(15), s.unobserved.Load())
	two.MarkFirstContent(after(12))
	learned := s.step
	assert.Equal(t, after(12), learned.endTime)
	assert.Equal(t, 1.0, learned.decoding, "the other one was there before")
	one.MarkFirstContent(after(3))
	assert.Equal(t, learned, s.step, "reported after a later one")
	one.Release()
	two.Release()
	assert.Equal(t, [3]int64{}, s.counts())
	assert.Zero(t, s.unobserved.Load())

	moved := s.acquireLease(e, after(20), Prefill{Tokens: 7}, Late)
	moved.MoveTo(other, after(21))
	moved.MarkFirstContent(after(22))
	assert.Zero(t, ServerOf(other).step, "when it came to the other server is unknown")
	moved.Release()
	assert.Equal(t, [3]int64{}, ServerOf(other).counts())
}
