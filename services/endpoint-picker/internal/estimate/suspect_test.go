package estimate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// suspects reports whether a server is suspect at a time, in seconds after noon.
func suspects(s *Server, seconds float64) bool {
	paces := s.estimator.Paces()
	return s.IsSuspect(endpoint.ToMonotonic(after(seconds)), &paces)
}

// span is the time of a request at noon that fails.
var span = endpoint.LoadSpan{Arrived: noon, Until: after(10)}

func TestSuspect_FailuresInARow(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	s := ServerOf(e)
	fail := func(n int) {
		for range n {
			l := s.placeStreamed(e, noon, Prefill{Tokens: 7})
			l.MarkFirstContent(noon) // and nothing more
			l.FailUntil(span, noon)
		}
	}
	fail(minFailing - 1)
	assert.False(t, suspects(s, 0))
	s.acquireLease(e, after(0.1), Prefill{}, Whole).Release()
	fail(minFailing - 1)
	assert.False(t, suspects(s, 0), "not in a row")
	before := s.placeStreamed(e, noon.Add(-time.Second), Prefill{Tokens: 7})
	before.MarkFirstContent(noon)
	fail(1)
	before.MarkMoreContent(after(0.1))
	assert.True(t, suspects(s, 0.999), "what came before the failures says nothing")
	assert.False(t, suspects(s, 1), "one may see")
	l := s.placeStreamed(e, after(1), Prefill{Tokens: 7})
	assert.True(t, suspects(s, 1))
	l.MarkFirstContent(after(1.1))
	assert.True(t, suspects(s, 1.1), "so did the others")
	l.MarkMoreContent(after(1.2))
	assert.False(t, suspects(s, 1.2))
}

func TestSuspect_FailuresBeyondThoseThatCount(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	s := ServerOf(e)
	for range minFailing {
		s.placeStreamed(e, noon, Prefill{Tokens: 7}).FailUntil(endpoint.LoadSpan{Arrived: noon, Until: noon}, noon)
	}
	assert.True(t, suspects(s, 0), "all count, however long they took")
}

func TestSuspect_MovedRequests(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e, to := x.addEndpoint(1), x.addEndpoint(2)
	for range minFailing {
		l := ServerOf(e).placeStreamed(e, noon, Prefill{Tokens: 7})
		l.MoveTo(to, noon)
		l.MarkFirstContent(noon)
	}
	assert.True(t, suspects(ServerOf(e), 0))
	assert.False(t, suspects(ServerOf(to), 0))
	assert.Zero(t, ServerOf(e).activity.waiting.Load())
}

func TestSuspect_StreamsThatStall(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	s := ServerOf(e)
	begin := func(seconds float64) *endpoint.Lease {
		l := s.placeStreamed(e, after(seconds), Prefill{Tokens: 7})
		l.MarkFirstContent(after(seconds))
		return l
	}
	begin(0)
	begin(0)
	stall := x.Paces().Stall.Seconds()
	assert.False(t, suspects(s, stall+0.01), "they may be read by a slow client")
	l := begin(stall)
	assert.True(t, suspects(s, stall+0.01))
	l.MarkMoreContent(after(stall + 0.02))
	assert.False(t, suspects(s, stall+0.03))
	assert.False(t, suspects(s, 2*stall))
	assert.True(t, suspects(s, 2.3*stall))
	assert.False(t, suspects(s, stall+1), "one may see")
	l.Release()
	assert.False(t, suspects(s, 2.3*stall), "two remain")
}

func TestStallIsOfTheUsualPace(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	l := ServerOf(e).placeStreamed(e, noon, Prefill{Tokens: 7})
	l.MarkFirstContent(noon)
	for i := range 500 {
		l.MarkMoreContent(after(0.05 * float64(i+1)))
	}
	assert.InDelta(t, 20*0.05, x.Paces().Stall.Seconds(), 0.01)
}

// Servers and gateways may hold back content until the end of the answer.
func TestSuspect_ContentThatIsHeldBack(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	s := ServerOf(e)
	for range 4 {
		s.placeStreamed(e, noon, Prefill{Tokens: 7}).MarkFirstContent(noon)
	}
	assert.True(t, suspects(s, 0.5), "nobody has shown anything else")
	x.RecordAnswerTimes(e, noon, noon, after(0.6))
	assert.False(t, suspects(s, 0.7), "one has ended")
	assert.InDelta(t, 20*0.06, x.Paces().Stall.Seconds(), 0.02)
	for i := range 50 {
		x.RecordAnswerTimes(e, noon, noon, after(0.6+0.01*float64(i)))
	}
	assert.Greater(t, x.Paces().Stall, 8*time.Second)
}

func TestSuspect_RequestsThatWaitInVain(t *testing.T) {
	t.Parallel()
	for _, form := range []AnswerMode{Streamed, Whole} {
		x := newTestEstimator(1 << 20)
		e, works := x.addEndpoint(1), x.addEndpoint(2)
		s := ServerOf(e)
		for range minStalled {
			s.acquireLease(e, noon, Prefill{Tokens: 7}, form)
		}
		assert.False(t, suspects(s, 0.9), "what is usual is not known")
		l := ServerOf(works).acquireLease(works, noon, Prefill{Tokens: 7}, form)
		l.MarkFirstContent(after(0.5))
		if form == Streamed {
			assert.Zero(t, x.Paces().First, "a server that fails may be fast")
			l.MarkMoreContent(after(0.5))
			assert.Equal(t, 500*time.Millisecond, x.Paces().First)
		}
		l.Release()
		assert.False(t, suspects(s, 0.7))
		assert.True(t, suspects(s, 0.8))
		answered := s.acquireLease(e, after(0.8), Prefill{Tokens: 7}, form)
		answered.MarkFirstContent(after(0.8))
		answered.Release()
		assert.False(t, suspects(s, 1.5))
		assert.True(t, suspects(s, 1.6))
	}
}

// What is not observed says nothing.
func TestSuspect_RequestsOfOthers(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	s := ServerOf(e)
	x.paces.first.Store(0.1)
	for range minFailing {
		s.acquireLease(e, noon, Prefill{Tokens: 7}, Late)
		s.placeRemote(e, noon, Prefill{Tokens: 7}, Streamed).MarkFirstContent(noon)
		s.placeRemote(e, noon, Prefill{Tokens: 7}, Streamed)
	}
	assert.False(t, suspects(s, 0.9))
}

// Other replicas must not learn a time from a request that has failed.
func TestHeldRequestEndsForOtherReplicas(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	heard := &heard{}
	x.SetPublisher(heard)
	e := x.addEndpoint(1)
	ServerOf(e).placeStreamed(e, noon, Prefill{Tokens: 7}).FailUntil(span, noon)
	e.ExpireFailed(after(1), time.Second)
	e.ExpireFailed(after(10), time.Second)
	assert.Equal(t, []EventKind{EventBegun, EventEnded}, heard.kinds)
}

// heard are the kinds of published events.
type heard struct{ kinds []EventKind }

func (h *heard) PublishEvent(e Event) { h.kinds = append(h.kinds, e.Kind) }

// A server whose page fails works if it answers, or else one request may see.
func TestServer_ShowsWorkWithoutAPage(t *testing.T) {
	t.Parallel()
	s := newTestServer()
	showsWork := func(s *Server, seconds, open float64) bool {
		return s.ShowsWork(endpoint.ToMonotonic(noon), endpoint.ToMonotonic(after(seconds)), open)
	}
	shows := func(seconds, open float64) bool { return showsWork(s, seconds, open) }
	q := s.begin(noon, Prefill{Tokens: 100}, 0)
	q.OnFirstToken(after(0.5))
	assert.False(t, shows(2, 1), "the answer may have begun before the server stopped")
	assert.True(t, shows(2, 0), "there is nothing that could show it")
	s.begin(after(2), Prefill{Tokens: 100}, 0)
	assert.False(t, shows(2.5, 0), "one may see")
	q.OnMoreContent(after(2.6))
	assert.True(t, shows(3, 2))
	whole := newTestServer()
	w := whole.beginUnobserved(noon, Prefill{Tokens: 100})
	assert.False(t, showsWork(whole, 2, 1))
	w.OnFirstToken(after(2.5))
	w.OnEnd(endpoint.Finished)
	assert.True(t, showsWork(whole, 2.5, 1), "an answer in one piece")
}
