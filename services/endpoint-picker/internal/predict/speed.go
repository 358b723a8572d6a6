// Package predict estimates when a model server would give the first token of a request.
//
// A server computes the prompts that it was sent, but for what its cache has of them, then the first token of each, and
// beside that a token for every answer under way. The time of a first token is taken for
//
//	base + perDecoding × answers under way + perToken × prompt tokens owed, the request's own with them
//
// times a factor of the server. The three coefficients are those of the pool: servers of one pool run one model. They are
// learnt from every first token that is seen, by least squares with a fading memory; nothing is to be configured. The
// factor is what a server took over what it should have taken; it tells a slow server from a fast one.
//
// What is owed is known from the requests that were placed here and whose first token has not come. A server that is
// late, because it waits for room or has gone, gets later with it: how much it is overdue is added to its estimate.
package predict

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Speed is how long servers take, in seconds.
type Speed struct {
	Base        float64 // of a first token, at least
	PerDecoding float64 // more for each answer under way
	PerToken    float64 // more for each prompt token to compute
	Found       float64 // part of the tokens that are expected in a cache that is found there
}

// A Prompt is what a server has to do for a request before its first token.
type Prompt struct {
	Tokens   int // that are not known to be in the server's cache
	Expected int // of them, in its cache if others have sent there what they should have
}

// Uncached estimates how many tokens of a prompt are to be computed: the last one at least.
func (s *Speed) Uncached(p Prompt) float64 {
	return max(float64(p.Tokens)-s.Found*float64(p.Expected), 1)
}

// first is the time of the first token when so many tokens are owed.
func (s *Speed) first(decoding, tokens float64) float64 {
	return s.Base + s.PerDecoding*decoding + s.PerToken*tokens
}

// prior is what is believed before anything was seen: a model of 8 billion parameters on one recent GPU. A few dozen first
// tokens outweigh it.
var prior = Speed{Base: 0.010, PerDecoding: 0.0001, PerToken: 50e-6, Found: 0.1}

const (
	terms = 4 // of a Speed
	// priorWeight is how many first tokens the prior is worth, each with so many answers under way and tokens as below.
	priorWeight   = 2
	priorDecoding = 10
	priorTokens   = 300

	forget       = 0.999 // of the pool's memory, for each first token
	forgetServer = 0.99  // of a server's
	factorWeight = 20    // first tokens that a factor of 1 is worth
	usualTokens  = 300   // of a request that is not in the cache, before any was seen
	smoothTokens = 0.01  // of their mean
	late         = 5     // times as long as expected counts as so many: it waited for room, not for the processor
	smoothing    = 0.01  // of the mean time of a first token
	leastBase    = 0.001 // seconds
	leastToken   = 1e-6  // seconds
)

// Learner learns the speed of a pool's servers.
type Learner struct {
	speed atomic.Pointer[Speed]

	mu   sync.Mutex
	sums [terms][terms + 1]float64 // normal equations
	mean float64                   // seconds to a first token

	tokens  atomic.Uint64 // bits of a float: mean tokens of a request that are not in the cache
	waiting atomic.Int64  // requests of all servers without a first token
	open    atomic.Int64  // requests of all servers
}

// NewLearner returns a Learner that has seen nothing.
func NewLearner() *Learner {
	l := &Learner{mean: prior.first(priorDecoding, priorTokens)}
	l.tokens.Store(math.Float64bits(usualTokens))
	l.speed.Store(l.solve())
	return l
}

// Speed returns what is believed now. It must not be changed.
func (l *Learner) Speed() *Speed { return l.speed.Load() }

// begin counts a request with so many tokens that are not in the cache. Of two at once one may be missed in the mean.
func (l *Learner) begin(tokens int64) {
	l.waiting.Add(1)
	l.open.Add(1)
	mean := math.Float64frombits(l.tokens.Load())
	l.tokens.Store(math.Float64bits(mean + smoothTokens*(float64(tokens)-mean)))
}

// unknown is what requests are taken for of which only the number is known: as many of them wait for their first token, with
// as many tokens, as of those that were placed here.
func (l *Learner) unknown() (waiting, tokens float64) {
	if open := l.open.Load(); open > 0 {
		waiting = max(float64(l.waiting.Load())/float64(open), 0)
	}
	return waiting, math.Float64frombits(l.tokens.Load())
}

// learn takes one observation: the seconds that a step of a server with that factor took.
func (l *Learner) learn(o observation, took, factor float64) (mean float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := [terms]float64{1, o.decoding, o.tokens, -o.expected}
	for i := range terms {
		for j := range terms {
			l.sums[i][j] = l.sums[i][j]*forget + x[i]*x[j]
		}
		l.sums[i][terms] = l.sums[i][terms]*forget + x[i]*took/factor
	}
	l.mean += smoothing * (took - l.mean)
	l.speed.Store(l.solve())
	return l.mean
}

// solve finds the coefficients with the least squares of errors, drawn to the prior as by some observations of it.
func (l *Learner) solve() *Speed {
	m := l.sums
	for i, p := range [terms]struct{ scale, value float64 }{
		{1, prior.Base}, {priorDecoding * priorDecoding, prior.PerDecoding}, {priorTokens * priorTokens, prior.PerToken},
		{priorTokens * priorTokens, prior.Found * prior.PerToken},
	} {
		m[i][i] += priorWeight * p.scale
		m[i][terms] += priorWeight * p.scale * p.value
	}
	for i := range terms { // Gauss and Jordan; the prior keeps the pivots positive
		pivot := m[i][i]
		for j := i; j <= terms; j++ {
			m[i][j] /= pivot
		}
		for k := range terms {
			if k == i {
				continue
			}
			q := m[k][i]
			for j := i; j <= terms; j++ {
				m[k][j] -= q * m[i][j]
			}
		}
	}
	perToken := max(m[2][terms], leastToken)
	return &Speed{
		Base: max(m[0][terms], leastBase), PerDecoding: max(m[1][terms], 0), PerToken: perToken,
		Found: min(max(m[3][terms]/perToken, 0), 1),
	}
}

// Server is what is known of one server.
type Server struct {
	learner *Learner

	owed     atomic.Int64  // prompt tokens of requests without a first token
	waiting  atomic.Int64  // those requests
	decoding atomic.Int64  // requests with one
	mark     atomic.Int64  // when the work on what is owed began or last got on, in Unix nanoseconds
	factor   atomic.Uint64 // bits of a float

	mu                 sync.Mutex
	observed, expected float64 // seconds, fading
	step               step
}

// step is the first tokens that came at once, of requests that were computed together.
type step struct {
	before       time.Time // the end of the one before it
	began, ended time.Time
	observation
}

// observation is what a step was about.
type observation struct {
	decoding, tokens, expected float64
}

// NewServer returns a server that has nothing to do.
func (l *Learner) NewServer() *Server {
	s := &Server{learner: l}
	s.factor.Store(math.Float64bits(1))
	return s
}

// Others are requests on a server that were not placed here.
type Others struct {
	Waiting, Running float64
}

// Wait estimates the seconds to the first token of a request that is sent now and has so many tokens that are not in the
// server's cache.
func (s *Server) Wait(now time.Time, speed *Speed, p Prompt, others Others) float64 {
	owed, waiting, decoding := float64(s.owed.Load()), float64(s.waiting.Load()), float64(s.decoding.Load())
	if others.Waiting+others.Running > 0 { // a prompt that is being computed is in the batch already
		share, usual := s.learner.unknown()
		total := others.Waiting + others.Running
		others.Waiting = max(others.Waiting, total*share)
		owed, decoding = owed+others.Waiting*usual, decoding+total-others.Waiting
	}
	factor := s.Factor()
	work := factor * speed.first(decoding, owed+speed.Uncached(p))
	if waiting <= 0 {
		return work
	}
	// The one that is next is as large as the mean. Of the time since the last sign of progress part has gone into it, as
	// its step may have begun later; what is beyond its time is delay, and may go on as long again.
	const credit = 0.75
	next := factor * speed.first(decoding, owed/(waiting+others.Waiting))
	elapsed := max(now.Sub(time.Unix(0, s.mark.Load())).Seconds(), 0)
	return work - credit*min(elapsed, next) + max(elapsed-next, 0)
}

// Owed returns how many prompt tokens the server has to compute, of requests that were placed here.
func (s *Server) Owed() float64 { return float64(s.owed.Load()) }

// Factor is how much slower the server is than its pool.
func (s *Server) Factor() float64 { return math.Float64frombits(s.factor.Load()) }

// Request is one request on a server. Its methods are called in order, by one goroutine: First at most once, End once.
type Request struct {
	server *Server
	began  time.Time
	prompt Prompt
	owed   int64
	first  bool
}

// Begin counts a request that is sent now.
func (s *Server) Begin(now time.Time, p Prompt) Request {
	owed := int64(s.learner.Speed().Uncached(p))
	if s.waiting.Load() == 0 {
		s.mark.Store(now.UnixNano())
	}
	s.waiting.Add(1)
	s.owed.Add(owed)
	s.learner.begin(owed)
	return Request{server: s, began: now, prompt: p, owed: owed}
}

// BeginUnseen counts a request whose first token will not be seen, as its answer comes in one piece. It counts as under way
// at once: when it gets there is not known.
func (s *Server) BeginUnseen() Request {
	s.decoding.Add(1)
	s.learner.open.Add(1)
	return Request{server: s, first: true}
}

// First says that the first token has come.
func (r *Request) First(now time.Time) {
	if r.first || r.server == nil {
		return
	}
	r.first = true
	s := r.server
	decoding := s.decoding.Add(1) - 1
	s.owed.Add(-r.owed)
	s.waiting.Add(-1)
	s.learner.waiting.Add(-1)
	s.mark.Store(now.UnixNano())
	s.observe(r.began, now, r.prompt, decoding)
}

// End says that the request has ended, or that nothing more will be heard of it.
func (r *Request) End() {
	s := r.server
	if s == nil {
		return
	}
	r.server = nil
	s.learner.open.Add(-1)
	if r.first {
		s.decoding.Add(-1)
		return
	}
	s.owed.Add(-r.owed)
	s.waiting.Add(-1)
	s.learner.waiting.Add(-1)
}

// observe takes a first token into account. Those that come close together are of one step: it is learnt from when the
// next one comes.
func (s *Server) observe(began, now time.Time, p Prompt, decoding int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.step.ended.IsZero() && now.Sub(s.step.ended).Seconds() < s.learner.Speed().Base*s.Factor()/4 {
		s.step.tokens += float64(p.Tokens)
		s.step.expected += float64(p.Expected)
		if began.Before(s.step.began) {
			s.step.began = began
		}
		return
	}
	s.learn()
	s.step = step{before: s.step.ended, began: began, ended: now, observation: observation{
		decoding: float64(decoding), tokens: float64(p.Tokens), expected: float64(p.Expected),
	}}
}

// learn learns from the last step, if there was one.
func (s *Server) learn() {
	began := s.step.began
	if began.Before(s.step.before) { // the server was busy with that one
		began = s.step.before
	}
	took := s.step.ended.Sub(began).Seconds()
	if took <= 0 {
		return
	}
	o, speed := s.step.observation, s.learner.Speed()
	want := speed.first(o.decoding, o.tokens-speed.Found*o.expected)
	took = min(took, late*want)
	mean := s.learner.learn(o, took, s.Factor())
	s.observed = s.observed*forgetServer + took
	s.expected = s.expected*forgetServer + want
	weight := factorWeight * mean
	s.factor.Store(math.Float64bits((s.observed + weight) / (s.expected + weight)))
}
