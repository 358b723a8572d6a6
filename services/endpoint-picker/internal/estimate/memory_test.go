package estimate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

const (
	cacheTokens = 16_000
	testAnswer  = 160 // usualAnswer
)

// observeUse is a page that shows the use of a cache of cacheTokens, with the requests of this picker.
func (s *Server) observeUse(usage, waiting float64) {
	own := s.prefills.Load() + s.decoding.Load()
	s.ObservePage(&endpoint.Sample{
		Gauges: endpoint.Gauges{
			Blocks: cacheTokens / prefixindex.BlockTokens, KVUsage: usage, Waiting: waiting, Running: float64(own) - waiting,
		},
		ScrapeStart: endpoint.ScrapeStart{At: noon, Acquired: own, Held: s.HeldTokens()}, IsScraped: true,
	})
}

func TestTTFT_WaitsForMemory(t *testing.T) {
	t.Parallel()
	costs := &Costs{Base: 0.010, PerToken: 1e-6}
	// wait returns the seconds beside those for a prompt of 4000 tokens, in ends of one of n answers.
	wait := func(s *Server, n float64) float64 {
		idle := newTestServer().ttftAfter(0, costs, 4000, serverLoad{})
		return (s.ttftAfter(0, costs, 4000, serverLoad{requests: n}) - idle) / s.estimator.learner.times.remaining()
	}
	decode := func(s *Server, prompt int) *sequence {
		q := s.begin(noon, Prefill{Tokens: prompt}, 0)
		q.OnFirstToken(noon)
		return q
	}
	tests := []struct {
		name     string
		requests float64
		do       func(s *Server)
		want     float64
	}{
		{name: "the size is unknown", do: func(s *Server) { decode(s, 1e6) }, requests: 1},
		{name: "it fits", requests: 1, do: func(s *Server) {
			s.observeUse(0.01, 0)
			decode(s, 11_000)
		}},
		{name: "nearly", requests: 1, want: 1, do: func(s *Server) {
			s.observeUse(1e-9, 0)
			decode(s, 12_000)
		}},
		{name: "one of two must end", requests: 2, want: 0.5, do: func(s *Server) {
			s.observeUse(1e-9, 0)
			decode(s, 8000)
			decode(s, 7000)
		}},
		{name: "two of three", requests: 3, want: 1./3 + 1./2, do: func(s *Server) {
			s.observeUse(1e-9, 0)
			for range 3 {
				decode(s, 14_000)
			}
		}},
		{name: "one has ended", requests: 1, do: func(s *Server) {
			s.observeUse(1e-9, 0)
			decode(s, 8000)
			decode(s, 7000).OnEnd(endpoint.Finished)
		}},
		{name: "they share their prefix, as the page shows", requests: 2, do: func(s *Server) {
			decode(s, 8000)
			decode(s, 8000)
			s.observeUse(0.5, 0)
		}},
		{name: "the page is of another time", requests: 2, want: 0.5, do: func(s *Server) {
			s.observeUse(1e-9, 0)
			decode(s, 8000)
			decode(s, 7000)
			s.ObservePage(&endpoint.Sample{
				Gauges:      endpoint.Gauges{Blocks: cacheTokens / prefixindex.BlockTokens, KVUsage: 0.1, Running: 1},
				ScrapeStart: endpoint.ScrapeStart{At: noon, Acquired: 2, Held: s.HeldTokens()},
			})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newTestServer()
			tt.do(s)
			assert.InDelta(t, tt.want, wait(s, tt.requests), 1e-3)
		})
	}
}

func TestMemoryOfWaitingRequests(t *testing.T) {
	t.Parallel()
	s := newTestServer()
	s.observeUse(1e-9, 0)
	s.begin(noon, Prefill{Tokens: 9840}, 0).OnFirstToken(noon)
	waiting := s.begin(noon, Prefill{Tokens: 9840}, 0)
	s.observeUse(10_000./cacheTokens, 1)
	assert.InDelta(t, 20_000, s.memory.neededTokens(0, 0), 1, "the page has the memory of the first only")
	waiting.OnEnd(endpoint.Finished)
	assert.InDelta(t, 10_000, s.memory.neededTokens(0, 0), 1)
	assert.EqualValues(t, 9840+testAnswer, s.HeldTokens())
}

// A server whose requests wait for memory shows nothing about the time to compute a prompt.
func TestCostsAreNotLearnedFromWaitsForMemory(t *testing.T) {
	t.Parallel()
	s := newTestServer()
	s.observeUse(1e-9, 0)
	before := *s.estimator.Costs()
	s.begin(noon, Prefill{Tokens: 12_000}, 0).OnFirstToken(after(1))
	s.begin(after(1), Prefill{Tokens: 12_000}, 0).OnFirstToken(after(60))
	s.begin(after(60), Prefill{Tokens: 12_000}, 0).OnFirstToken(after(120))
	learned := s.estimator.Costs()
	assert.NotEqual(t, before, *learned, "the first one has room")
	s.begin(after(120), Prefill{Tokens: 12_000}, 0).OnFirstToken(after(180))
	assert.Equal(t, *learned, *s.estimator.Costs())
}

func TestAnswerTime(t *testing.T) {
	t.Parallel()
	same, mixed := newAnswerTime(), newAnswerTime()
	for range 1000 {
		same.observeAnswer(2)
		mixed.observeAnswer(1)
		mixed.observeAnswer(9)
	}
	assert.InDelta(t, 1, same.remaining(), 0.01, "half of it")
	assert.InDelta(t, 41./10, mixed.remaining(), 0.3, "most moments are within long answers")
	before := same.remaining()
	same.observeAnswer(1e6)
	assert.Less(t, same.remaining(), 3*before, "a client that does not read")
}

func TestMeanEnds(t *testing.T) {
	t.Parallel()
	for _, n := range []float64{1, 2, 3, 10, 511, 512, 5000} {
		for _, leaving := range []float64{0, 1, 2, 5, 10, 250, 511, 600} {
			want := 0.0
			for i := 0.0; i < leaving; i++ {
				want += 1 / max(n-i, 1)
			}
			assert.InDelta(t, want, meanEnds(n, leaving), 1e-3, "%g of %g", leaving, n)
		}
	}
}

// What a client claims is the memory of one request at most, and how slowly it reads says little about stalls.
func TestClaimsOfClientsAreBounded(t *testing.T) {
	t.Parallel()
	s := newTestServer()
	s.observeUse(1e-9, 0)
	q := s.begin(noon, Prefill{Tokens: 1 << 40}, 0)
	assert.EqualValues(t, cacheTokens, s.HeldTokens())
	q.OnEnd(endpoint.Finished)
	assert.Zero(t, s.HeldTokens())

	x := newTestEstimator(1 << 20)
	e := x.addEndpoint(1)
	x.RecordAnswerTimes(e, noon, noon, after(3600))
	assert.Less(t, x.Paces().Stall, time.Minute)
	for range 1000 {
		x.RecordAnswerTimes(e, noon, noon, after(0.1))
	}
	assert.Less(t, x.Paces().Stall, 3*time.Second, "it is forgotten, also where content is held back")
}
