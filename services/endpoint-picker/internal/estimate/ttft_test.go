package estimate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func after(seconds float64) time.Time {
	return noon.Add(time.Duration(seconds * float64(time.Second)))
}

// newTestServer returns a server of a pool without observations.
// newTestEstimator returns an Estimator whose index of prefixes has a limit in bytes of its own.
func newTestEstimator(bytes int) *Estimator { return New(prefixindex.NewMemoryBudget(bytes)) }

func newTestServer() *Server { return newTestEstimator(1 << 20).addServer() }

// addServer adds a server without an endpoint.
func (x *Estimator) addServer() *Server {
	return newServer(x, x.index.AddCache(usualBlocks), usualBlocks)
}

// begin places a request whose answer is streamed.
func (s *Server) begin(now time.Time, p Prefill, others float64) *sequence {
	q := &sequence{server: s, placed: now, prefill: p, others: others, observed: true}
	q.countOnServer(now)
	return q
}

// beginUnobserved places a request whose answer comes in one piece.
func (s *Server) beginUnobserved(now time.Time, p Prefill) *sequence {
	q := &sequence{server: s, placed: now, prefill: p}
	q.countOnServer(now)
	return q
}

// ttftAfter is the estimate for a prompt some seconds after noon.
func (s *Server) ttftAfter(seconds float64, c *Costs, tokens int, l serverLoad) float64 {
	return s.computeTTFT(s.arrivalAfter(seconds, c, tokens), l)
}

// arrivalAfter is the arrival of a prompt some seconds after noon.
func (s *Server) arrivalAfter(seconds float64, c *Costs, tokens int) *arrival {
	a := s.estimator.arrivalAt(endpoint.ToMonotonic(after(seconds)))
	a.costs = c
	a.setPrefill(Prefill{Tokens: tokens})
	return &a
}

func TestTTFT(t *testing.T) {
	t.Parallel()
	costs := &Costs{Base: 0.010, PerDecoding: 0.001, PerToken: 100e-6}
	tests := []struct {
		name string
		do   func(s *Server)
		at   float64
		want float64
	}{
		{name: "idle", do: func(*Server) {}, want: 0.010 + 0.010},
		{name: "decoding requests", do: func(s *Server) { s.decoding.Store(5) }, want: 0.010 + 0.005 + 0.010},
		{name: "backlog", do: func(s *Server) { s.begin(noon, Prefill{Tokens: 300}, 0) }, want: 0.010 + 0.040},
		{name: "backlog in progress", do: func(s *Server) { s.begin(noon, Prefill{Tokens: 300}, 0) }, at: 0.020, want: 0.010 + 0.040 - 0.75*0.020},
		{name: "backlog just due", do: func(s *Server) { s.begin(noon, Prefill{Tokens: 300}, 0) }, at: 0.040, want: 0.010 + 0.040 - 0.75*0.040},
		{name: "backlog overdue", do: func(s *Server) { s.begin(noon, Prefill{Tokens: 300}, 0) }, at: 0.140, want: 0.010 + 0.040 - 0.75*0.040 + 0.100},
		{
			name: "only the next prompt is overdue", at: 0.060, want: 0.010 + 0.070 + 0.010 - 0.75*0.040 + 0.020, // 0.010: the delay of a later request
			do: func(s *Server) { s.begin(noon, Prefill{Tokens: 300}, 0); s.begin(noon, Prefill{Tokens: 300}, 0) },
		},
		{
			name: "a long prompt before a short one", at: 0.200, want: 0.010 + 0.310 + 0.010 + 0.010 - 0.75*0.200,
			do: func(s *Server) { s.begin(noon, Prefill{Tokens: 3000}, 0); s.begin(noon, Prefill{Tokens: 100}, 0) },
		},
		{
			name: "a short prompt before a long one", at: 0.120, want: 0.010 + 0.310 + 0.010 + 0.010 - 0.75*0.020 + 0.100,
			do: func(s *Server) { s.begin(noon, Prefill{Tokens: 100}, 0); s.begin(noon, Prefill{Tokens: 3000}, 0) },
		},
		{
			name: "first token of one of two", at: 0.040, want: 0.010 + 0.001 + 0.040,
			do: func(s *Server) {
				q := s.begin(noon, Prefill{Tokens: 300}, 0)
				s.begin(noon, Prefill{Tokens: 300}, 0)
				q.OnFirstToken(after(0.040))
			},
		},
		{name: "answer in one piece", do: func(s *Server) { s.beginUnobserved(noon, Prefill{Tokens: 300}) }, at: 9, want: 0.010 + 0.001 + 0.010},
		{name: "time before the placement", do: func(s *Server) { s.begin(noon, Prefill{Tokens: 300}, 0) }, at: -1, want: 0.010 + 0.040},
		{name: "request ended", do: func(s *Server) { s.begin(noon, Prefill{Tokens: 300}, 0).OnEnd(endpoint.Finished) }, at: 5,
			want: 0.010 + 0.010},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newTestServer()
			tt.do(s)
			s.slowdown.Store(1)
			assert.InDelta(t, tt.want, s.ttftAfter(tt.at, costs, 100, serverLoad{}), 1e-9)
		})
	}
}

// TestDelay: a prompt holds up the tokens of those that are there, and each token of its answer comes with theirs.
func TestDelay(t *testing.T) {
	t.Parallel()
	costs := &Costs{Base: 0.010, PerDecoding: 0.001, PerToken: 100e-6}
	x := newTestEstimator(1 << 20)
	s, e := x.addServer(), x.addEndpoint(1)
	there := func(requests float64) *endpoint.Load {
		return &endpoint.Load{Sample: &endpoint.Sample{Gauges: endpoint.Gauges{Running: requests}}}
	}
	assert.Zero(t, s.mutualDelay(s.arrivalAfter(0, costs, 1000), there(0)), "an idle server")
	one := s.mutualDelay(s.arrivalAfter(0, costs, 1000), there(1))
	assert.InDelta(t, delayWeight*(0.1+0.001*usualAnswer), one, 1e-9)
	assert.InDelta(t, 3*one, s.mutualDelay(s.arrivalAfter(0, costs, 1000), there(3)), 1e-9)
	assert.InDelta(t, one-delayWeight*0.05, s.mutualDelay(s.arrivalAfter(0, costs, 500), there(1)), 1e-9)
	s.slowdown.Store(2)
	assert.InDelta(t, 2*one, s.mutualDelay(s.arrivalAfter(0, costs, 1000), there(1)), 1e-9)
	s.slowdown.Store(1)
	for range 1000 {
		x.RecordAnswer(e, 20)
	}
	assert.InDelta(t, delayWeight*(0.1+0.001*20), s.mutualDelay(s.arrivalAfter(0, costs, 1000), there(1)), 1e-4, "short answers")
	short := s.mutualDelay(s.arrivalAfter(0, costs, 1000), there(1))
	x.share.observePage(1, 2)
	assert.InDelta(t, short/2, s.mutualDelay(s.arrivalAfter(0, costs, 1000), there(1)), 1e-9, "another replica")
	before := x.learner.answer.Load()
	x.RecordAnswer(e, 0)
	assert.InDelta(t, before, x.learner.answer.Load(), 0, "a length that is not known")
	x.RecordAnswer(e, 1<<40)
	x.RecordAnswer(e, -5)
	assert.LessOrEqual(t, x.learner.answer.Load(), before+usualTokensWeight*maxAnswer, "one wrong answer")
}

func TestTTFT_CountsRequestsOfOtherReplicas(t *testing.T) {
	t.Parallel()
	costs := &Costs{Base: 0.010, PerDecoding: 0.5, PerOther: 0.001, PerToken: 100e-6}
	s := newTestServer()
	idle := s.ttftAfter(0, costs, 100, serverLoad{})
	assert.InDelta(t, idle+0.007, s.ttftAfter(0, costs, 100, serverLoad{others: 7}), 1e-9)
	s.addUnobserved(noon, 600)
	took := 600 * priorCosts.PerToken
	assert.InDelta(t, idle+took, s.ttftAfter(0, costs, 100, serverLoad{}), 1e-6)
	assert.InDelta(t, idle+took-0.020, s.ttftAfter(0.020, costs, 100, serverLoad{}), 1e-6, "their prompts are being computed")
	assert.InDelta(t, idle, s.ttftAfter(1, costs, 100, serverLoad{}), 1e-9)
}

func TestTTFT_QueueMovesAsRequestsEnd(t *testing.T) {
	t.Parallel()
	costs := &Costs{Base: 0.010, PerDecoding: 0.001, PerToken: 100e-6}
	s := newTestServer()
	idle := s.ttftAfter(0, costs, 100, serverLoad{})
	const later = 4 * 100 * 100e-6 // the delay of later requests
	remaining := s.estimator.learner.times.remaining()
	full := serverLoad{requests: 10, waiting: 5, kvUsage: 0.9}
	assert.InDelta(t, idle+later+remaining*(1./10+1./9+1./8+1./7+1./6), s.ttftAfter(0, costs, 100, full), 1e-9)
	assert.InDelta(t, idle+later, s.ttftAfter(0, costs, 100, serverLoad{requests: 10, waiting: 5}), 1e-9, "there is memory")
	assert.InDelta(t, 4*1000*100e-6, s.ttftAfter(0, costs, 1000, serverLoad{waiting: 5})-s.ttftAfter(0, costs, 1000, serverLoad{}), 1e-9,
		"a long prompt delays them more")
	s.begin(noon, Prefill{Tokens: 300}, 0)
	ours := s.ttftAfter(0, costs, 100, serverLoad{})
	assert.InDelta(t, ours+later+remaining*(1./10+1./9+1./8+1./7), s.ttftAfter(0, costs, 100, full), 1e-9,
		"one of the queue is ours, and its prompt is known")
}

func TestTTFT_UnobservedPromptsCountForTheirExpectedDuration(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	s := x.addServer()
	idle := s.ttftAfter(0, x.Costs(), 100, serverLoad{})
	for range 2 {
		s.beginUnobserved(noon, Prefill{Tokens: 1000})
	}
	took := 2000*priorCosts.PerToken + 2*priorCosts.PerDecoding
	assert.InDelta(t, idle+took, s.ttftAfter(0, x.Costs(), 100, serverLoad{}), 1e-6)
	assert.InDelta(t, idle+2*priorCosts.PerDecoding, s.ttftAfter(1, x.Costs(), 100, serverLoad{}), 1e-6, "they decode until they end")
}

func BenchmarkTTFT(b *testing.B) {
	x := newTestEstimator(1 << 20)
	s := x.addServer()
	s.begin(noon, Prefill{Tokens: 300}, 0)
	a := s.arrivalAfter(0, x.Costs(), 100)
	b.ReportAllocs()
	for b.Loop() {
		s.computeTTFT(a, serverLoad{})
	}
}
