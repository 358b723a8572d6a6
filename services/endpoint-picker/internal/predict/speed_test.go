package predict

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func after(seconds float64) time.Time {
	return noon.Add(time.Duration(seconds * float64(time.Second)))
}

// engine is a server that answers one request after the other, at a speed.
type engine struct {
	*Server
	Speed
	slow float64
	free float64 // when it is, in seconds
}

// serve sends a request and answers it at once, with so many answers under way.
func (e *engine) serve(at float64, tokens int) {
	r := e.Begin(after(at), Prompt{Tokens: tokens}, 0)
	e.free = max(e.free, at) + e.slow*e.first(float64(e.decoding.Load()), 0, float64(tokens))
	r.First(after(e.free))
	r.End()
}

func TestLearner_FindsTheSpeedOfThePool(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give Speed
	}{
		{name: "as believed", give: prior},
		{name: "ten times slower", give: Speed{Base: 0.1, PerDecoding: 0.001, PerToken: 500e-6}},
		{name: "slow prompts", give: Speed{Base: 0.005, PerToken: 1e-3}},
		{name: "fast prompts", give: Speed{Base: 0.03, PerDecoding: 0.0005, PerToken: 5e-6}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 1))
			l := NewLearner()
			e := &engine{Server: l.NewServer(), Speed: tt.give, slow: 1}
			for range 3000 {
				e.decoding.Store(random.Int64N(40))
				e.serve(e.free+random.ExpFloat64(), random.IntN(4000))
			}
			got := l.Speed()
			for _, decoding := range []float64{0, 20, 40} {
				for _, tokens := range []float64{10, 300, 4000} {
					assert.InEpsilon(t, tt.give.first(decoding, 0, tokens), got.first(decoding, 0, tokens)*e.Factor(), 0.1, "%v answers, %v tokens", decoding, tokens)
				}
			}
		})
	}
}

func TestLearner_FindsHowMuchOfWhatIsExpectedIsThere(t *testing.T) {
	t.Parallel()
	for _, found := range []float64{0, 0.3, 0.9} {
		random := rand.New(rand.NewPCG(3, 3))
		l := NewLearner()
		e := &engine{Server: l.NewServer(), Speed: Speed{Base: 0.01, PerToken: 40e-6}, slow: 1}
		kept := 1 - found
		for i := range 4500 {
			p := Prompt{Tokens: random.IntN(4000)}
			switch i % 3 {
			case 0:
				p.Expected = p.Tokens
			case 1:
				p.History = p.Tokens
			}
			hidden := 0 // all of it, or nothing
			if random.Float64() < found {
				hidden = p.Expected
			}
			if random.Float64() < kept {
				hidden += p.History
			}
			r := e.Begin(after(e.free+1), p, 0)
			e.free += 1 + e.first(0, 0, float64(p.Tokens-hidden))
			r.First(after(e.free))
			r.End()
		}
		assert.InDelta(t, found, l.Speed().Found, 0.12)
		assert.InDelta(t, kept, l.Speed().Kept, 0.12)
		assert.InDelta(t, 1000-1000*l.Speed().Found, l.Speed().Uncached(Prompt{Tokens: 1000, Expected: 1000}), 1e-9)
		assert.InDelta(t, 1000-800*l.Speed().Kept, l.Speed().Uncached(Prompt{Tokens: 1000, History: 800}), 1e-9)
	}
}

func TestLearner_FindsWhatRequestsOfOthersCost(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(4, 4))
	l := NewLearner()
	e := &engine{Server: l.NewServer(), Speed: Speed{Base: 0.01, PerOther: 0.007, PerToken: 40e-6}, slow: 1}
	for range 2000 {
		others, tokens := float64(random.IntN(10)), float64(random.IntN(2000))
		r := e.Begin(after(e.free+1), Prompt{Tokens: int(tokens)}, others)
		e.free += 1 + e.first(0, others, tokens)
		r.First(after(e.free))
		r.End()
	}
	assert.InEpsilon(t, 0.007, l.Speed().PerOther, 0.05)
	few, many := e.Wait(after(e.free), l.Speed(), Prompt{Tokens: 1}, Page{}), e.Wait(after(e.free), l.Speed(), Prompt{Tokens: 1}, Page{Others: 10})
	assert.InEpsilon(t, 0.07, many-few, 0.1)
}

func TestLearner_IsUsableFromTheFirstRequestOn(t *testing.T) {
	t.Parallel()
	assert.InDelta(t, prior.Base, NewLearner().Speed().Base, 1e-9)
	l := NewLearner()
	e := &engine{Server: l.NewServer(), Speed: Speed{Base: 1, PerToken: 1e-3}, slow: 1}
	for range 30 {
		e.serve(e.free+1, 500)
		speed := l.Speed()
		for _, c := range []float64{speed.Base, speed.PerDecoding, speed.PerToken} {
			require.False(t, math.IsNaN(c) || math.IsInf(c, 0) || c < 0, "%+v", speed)
		}
	}
}

func TestFactor_TellsASlowServerFromAFastOne(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 2))
	l := NewLearner()
	var engines []*engine
	for _, slow := range []float64{1, 1, 1, 4} {
		engines = append(engines, &engine{Server: l.NewServer(), Speed: prior, slow: slow})
	}
	for range 500 {
		for _, e := range engines {
			e.serve(e.free+random.ExpFloat64(), random.IntN(1000))
		}
	}
	assert.InEpsilon(t, 4, engines[3].Factor()/engines[0].Factor(), 0.25, "drawn a little towards 1")
	assert.InEpsilon(t, 1, engines[1].Factor()/engines[0].Factor(), 0.15)
	assert.InDelta(t, engines[3].Wait(noon, l.Speed(), Prompt{Tokens: 100}, Page{})/engines[0].Wait(noon, l.Speed(), Prompt{Tokens: 100}, Page{}), engines[3].Factor()/engines[0].Factor(), 1e-9)
}

func TestWait(t *testing.T) {
	t.Parallel()
	speed := &Speed{Base: 0.010, PerDecoding: 0.001, PerToken: 100e-6}
	tests := []struct {
		name string
		do   func(s *Server)
		at   float64
		want float64
	}{
		{name: "idle", do: func(*Server) {}, want: 0.010 + 0.010},
		{name: "answers under way", do: func(s *Server) { s.decoding.Store(5) }, want: 0.010 + 0.005 + 0.010},
		{name: "prompts owed", do: func(s *Server) { s.Begin(noon, Prompt{Tokens: 300}, 0) }, want: 0.010 + 0.040},
		{name: "part of them done", do: func(s *Server) { s.Begin(noon, Prompt{Tokens: 300}, 0) }, at: 0.020, want: 0.010 + 0.040 - 0.75*0.020},
		{name: "just due", do: func(s *Server) { s.Begin(noon, Prompt{Tokens: 300}, 0) }, at: 0.040, want: 0.010 + 0.040 - 0.75*0.040},
		{name: "overdue", do: func(s *Server) { s.Begin(noon, Prompt{Tokens: 300}, 0) }, at: 0.140, want: 0.010 + 0.040 - 0.75*0.040 + 0.100},
		{
			name: "overdue as of the next, not of all", at: 0.060, want: 0.010 + 0.070 + 0.010 - 0.75*0.040 + 0.020, // and one waits that it would hold up, or its like
			do: func(s *Server) { s.Begin(noon, Prompt{Tokens: 300}, 0); s.Begin(noon, Prompt{Tokens: 300}, 0) },
		},
		{
			name: "progress", at: 0.040, want: 0.010 + 0.001 + 0.040,
			do: func(s *Server) {
				r := s.Begin(noon, Prompt{Tokens: 300}, 0)
				s.Begin(noon, Prompt{Tokens: 300}, 0)
				r.First(after(0.040))
			},
		},
		{name: "an answer in one piece", do: func(s *Server) { s.BeginUnseen(noon, Prompt{Tokens: 300}) }, at: 9, want: 0.010 + 0.001 + 0.010},
		{name: "a clock that went back", do: func(s *Server) { s.Begin(noon, Prompt{Tokens: 300}, 0) }, at: -1, want: 0.010 + 0.040},
		{name: "gone", do: func(s *Server) { r := s.Begin(noon, Prompt{Tokens: 300}, 0); r.End() }, at: 5, want: 0.010 + 0.010},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := NewLearner().NewServer()
			tt.do(s)
			s.factor.Store(math.Float64bits(1))
			assert.InDelta(t, tt.want, s.Wait(after(tt.at), speed, Prompt{Tokens: 100}, Page{}), 1e-9)
		})
	}
}

func TestWait_CountsTheRequestsOfOthers(t *testing.T) {
	t.Parallel()
	speed := &Speed{Base: 0.010, PerDecoding: 0.5, PerOther: 0.001, PerToken: 100e-6}
	s := NewLearner().NewServer()
	idle := s.Wait(noon, speed, Prompt{Tokens: 100}, Page{})
	assert.InDelta(t, idle+0.007, s.Wait(noon, speed, Prompt{Tokens: 100}, Page{Others: 7}), 1e-9)
	assert.InDelta(t, 600, s.Found(noon, 2), 1e-9, "the usual 300 tokens each") // at the speed that is believed
	assert.InDelta(t, idle+0.030, s.Wait(noon, speed, Prompt{Tokens: 100}, Page{}), 1e-6)
	assert.InDelta(t, idle+0.010, s.Wait(after(0.020), speed, Prompt{Tokens: 100}, Page{}), 1e-6, "they get on")
	assert.InDelta(t, idle, s.Wait(after(1), speed, Prompt{Tokens: 100}, Page{}), 1e-9)
}

func TestWait_QueueMovesAsRequestsEnd(t *testing.T) {
	t.Parallel()
	speed := &Speed{Base: 0.010, PerDecoding: 0.001, PerToken: 100e-6}
	s := NewLearner().NewServer()
	idle := s.Wait(noon, speed, Prompt{Tokens: 100}, Page{})
	const later = 4 * 100 * 100e-6 // that the prompt holds up
	assert.InDelta(t, idle+later+0.5, s.Wait(noon, speed, Prompt{Tokens: 100}, Page{Waiting: 5, Rate: 10}), 1e-9)
	assert.InDelta(t, idle+later, s.Wait(noon, speed, Prompt{Tokens: 100}, Page{Waiting: 5}), 1e-9, "the rate is not known")
	assert.InDelta(t, 4*1000*100e-6, s.Wait(noon, speed, Prompt{Tokens: 1000}, Page{Waiting: 5})-s.Wait(noon, speed, Prompt{Tokens: 1000}, Page{}), 1e-9, "and a long one more")
	s.Begin(noon, Prompt{Tokens: 300}, 0)
	ours := s.Wait(noon, speed, Prompt{Tokens: 100}, Page{})
	assert.InDelta(t, ours+later+0.4, s.Wait(noon, speed, Prompt{Tokens: 100}, Page{Waiting: 5, Rate: 10}), 1e-9, "one of them is known, with its prompt")
}

func TestWait_PromptsWhoseEndIsNotSeenTakeTheirTime(t *testing.T) {
	t.Parallel()
	l := NewLearner()
	s := l.NewServer()
	idle := s.Wait(noon, l.Speed(), Prompt{Tokens: 100}, Page{})
	for range 2 {
		s.BeginUnseen(noon, Prompt{Tokens: 1000})
	}
	took := 2000*prior.PerToken + 2*prior.PerDecoding
	assert.InDelta(t, idle+took, s.Wait(noon, l.Speed(), Prompt{Tokens: 100}, Page{}), 1e-6)
	assert.InDelta(t, idle+2*prior.PerDecoding, s.Wait(after(1), l.Speed(), Prompt{Tokens: 100}, Page{}), 1e-6, "under way until they end")
}

func TestRequest_CountsOnceWhateverIsSaidOfIt(t *testing.T) {
	t.Parallel()
	s := NewLearner().NewServer()
	counts := func() [3]int64 { return [3]int64{s.waiting.Load(), s.owed.Load(), s.decoding.Load()} }
	r := s.Begin(noon, Prompt{Tokens: 7}, 0)
	assert.Equal(t, [3]int64{1, 7, 0}, counts())
	r.First(after(1))
	r.First(after(2))
	assert.Equal(t, [3]int64{0, 0, 1}, counts())
	r.End()
	r.End()
	r.First(after(3))
	assert.Equal(t, [3]int64{}, counts())
	r = s.Begin(noon, Prompt{Tokens: 7}, 0)
	r.End()
	r.End()
	assert.Equal(t, [3]int64{}, counts())
	r = s.BeginUnseen(noon, Prompt{})
	r.First(noon)
	assert.Equal(t, [3]int64{0, 0, 1}, counts())
	r.End()
	assert.Equal(t, [3]int64{}, counts())
	var none Request
	none.First(noon)
	none.End()
}

func TestStep_IsLearntAsOne(t *testing.T) {
	t.Parallel()
	l := NewLearner()
	s := l.NewServer()
	first := s.Begin(noon, Prompt{Tokens: 1000}, 0)
	second := s.Begin(after(0.010), Prompt{Tokens: 500}, 0)
	first.First(after(0.100))
	second.First(after(0.1005)) // computed in the same step
	assert.Equal(t, step{began: noon, ended: after(0.100), observation: observation{tokens: 1500}}, s.step)
	third := s.Begin(after(0.020), Prompt{Tokens: 100}, 0)
	third.First(after(0.150))
	assert.Equal(t, step{before: after(0.100), began: after(0.020), ended: after(0.150), observation: observation{tokens: 100, decoding: 2}}, s.step)
	fourth := s.Begin(after(1), Prompt{Tokens: 1}, 0)
	seen := s.observed
	fourth.First(after(1.1))
	assert.InDelta(t, 0.050, s.observed-seen*forgetServer, 1e-9, "the third was computed after the second")
}

func TestLearner_DoesNotTakeAWaitForRoomForAWaitForTheProcessor(t *testing.T) {
	t.Parallel()
	l := NewLearner()
	e := &engine{Server: l.NewServer(), Speed: prior, slow: 1}
	for i := range 200 {
		if i == 100 {
			e.slow = 10_000
		}
		e.serve(e.free+1, 300)
		e.slow = 1
	}
	assert.InEpsilon(t, prior.first(0, 0, 300), e.Factor()*l.Speed().first(0, 0, 300), 0.2)
}

func TestServer_IsSafeForAllAtOnce(t *testing.T) {
	t.Parallel()
	l := NewLearner()
	s := l.NewServer()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 0))
			for i := range 1000 {
				at := after(float64(i) / 100)
				r := s.Begin(at, Prompt{Tokens: random.IntN(100)}, 0)
				assert.False(t, math.IsNaN(s.Wait(at, l.Speed(), Prompt{Tokens: 10}, Page{})))
				if random.IntN(3) > 0 {
					r.First(at.Add(time.Duration(random.IntN(int(time.Second)))))
				}
				r.End()
			}
		})
	}
	wg.Wait()
	assert.Zero(t, s.waiting.Load())
	assert.Zero(t, s.owed.Load())
	assert.Zero(t, s.decoding.Load())
}

func BenchmarkWait(b *testing.B) {
	l := NewLearner()
	s := l.NewServer()
	s.Begin(noon, Prompt{Tokens: 300}, 0)
	speed := l.Speed()
	b.ReportAllocs()
	for b.Loop() {
		s.Wait(noon, speed, Prompt{Tokens: 100}, Page{})
	}
}

func BenchmarkObserve(b *testing.B) {
	l := NewLearner()
	e := &engine{Server: l.NewServer(), Speed: prior, slow: 1}
	b.ReportAllocs()
	for b.Loop() {
		e.serve(e.free+1, 300)
	}
}
