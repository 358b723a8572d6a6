// Package predict estimates when a model server would give the first token of a request.
//
// A server computes the prompts that it was sent, but for what its cache has of them, then the first token of each, and
// beside that a token for every answer under way. The time of a first token is taken for
//
//	base + perDecoding × answers under way + perOther × requests of others + perToken × prompt tokens owed
//
// times a factor of the server; the request's own prompt is owed too. Of what others have placed the server's page says how much
// there is, and not how far it has come: a part is being computed. The coefficients are those of the pool: servers of one pool
// run one model. They are learnt from every first token that is seen, by least squares with a fading memory; nothing is to be
// configured. The factor is what a server took over what it should have taken; it tells a slow server from a fast one.
//
// What is owed is known from the requests that were placed here and whose first token has not come. A server that is
// late, because it waits for room or has gone, gets later with it: how much it is overdue is added to its estimate.
package predict

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/fading"
)

// Speed is how long servers take, in seconds.
type Speed struct {
	Base        float64 // of a first token, at least
	PerDecoding float64 // more for each answer under way
	PerOther    float64 // more for each request that others have placed
	PerToken    float64 // more for each prompt token to compute
	Found       float64 // part of the tokens that are expected in a cache that is found there
	Kept        float64 // likewise, of the tokens of a history
}

// A Prompt is what a server has to do for a request before its first token.
type Prompt struct {
	Tokens   int // that are not known to be in the server's cache
	Expected int // of them, in its cache if others have sent there what they should have
	History  int // of them, likewise; and they were a prompt before, and its answer
}

// Uncached estimates how many tokens of a prompt are to be computed: the last one at least.
func (s *Speed) Uncached(p Prompt) float64 {
	return max(s.uncached(float64(p.Tokens), float64(p.Expected), float64(p.History)), 1)
}

func (s *Speed) uncached(tokens, expected, history float64) float64 {
	return tokens - s.Found*expected - s.Kept*history
}

// first is the time of the first token when so many tokens are owed.
func (s *Speed) first(decoding, others, tokens float64) float64 {
	return s.Base + s.PerDecoding*decoding + s.PerOther*others + s.PerToken*tokens
}

// prior is what is believed before anything was seen: a model of 8 billion parameters on one recent GPU. A few dozen first
// tokens outweigh it.
var prior = Speed{Base: 0.010, PerDecoding: 0.0001, PerOther: 0.0001, PerToken: 50e-6, Kept: 0.5}

const (
	terms = 6 // of a Speed
	// priorWeight is how many first tokens the prior is worth, each with so many answers under way and tokens as below.
	priorWeight   = 2
	priorDecoding = 10
	priorTokens   = 300
	// doubtTokens is the same for what is expected in caches: a few long prompts show it, many short ones do not.
	doubtTokens = 7000
	// historyTokens is the same for histories, which are found more often than not.
	historyTokens = 1000

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

	usual fading.Mean // tokens of a request that are not in the cache
}

// NewLearner returns a Learner that has seen nothing.
func NewLearner() *Learner {
	l := &Learner{mean: prior.first(priorDecoding, 0, priorTokens)}
	l.usual.Set(usualTokens)
	l.speed.Store(l.solve())
	return l
}

// Speed returns what is believed now. It must not be changed.
func (l *Learner) Speed() *Speed { return l.speed.Load() }

// learn takes one observation: the seconds that a step of a server with that factor took.
func (l *Learner) learn(o observation, took, factor float64) (mean float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := [terms]float64{1, o.decoding, o.others, o.tokens, -o.expected, -o.history}
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
		{1, prior.Base}, {priorDecoding * priorDecoding, prior.PerDecoding}, {priorDecoding * priorDecoding, prior.PerOther},
		{priorTokens * priorTokens, prior.PerToken}, {doubtTokens * doubtTokens, prior.Found * prior.PerToken},
		{historyTokens * historyTokens, prior.Kept * prior.PerToken},
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
	perToken := max(m[3][terms], leastToken)
	return &Speed{
		Base: max(m[0][terms], leastBase), PerDecoding: max(m[1][terms], 0), PerOther: max(m[2][terms], 0), PerToken: perToken,
		Found: min(max(m[4][terms]/perToken, 0), 1), Kept: min(max(m[5][terms]/perToken, 0), 1),
	}
}

// Server is what is known of one server.
type Server struct {
	learner *Learner
	batch   batch

	owed     atomic.Int64  // prompt tokens of requests without a first token
	waiting  atomic.Int64  // those requests
	decoding atomic.Int64  // requests with one
	mark     atomic.Int64  // when the work on what is owed began or last got on, in Unix nanoseconds
	factor   atomic.Uint64 // bits of a float
	freeAt   atomic.Int64  // when the prompts are computed whose first tokens are not seen, in Unix nanoseconds

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
	decoding, others, tokens, expected, history float64
}

// NewServer returns a server that has nothing to do.
func (l *Learner) NewServer() *Server {
	s := &Server{learner: l}
	s.factor.Store(math.Float64bits(1))
	return s
}

// Page is what a server's metrics say, of all its requests.
type Page struct {
	Others  float64 // requests that were not placed here
	All     float64 // requests, with those that began since, and without those that ended
	Waiting float64 // requests in its queue
	Running float64 // requests in its batch
	KVUsage float64 // part of its memory in use
	Rate    float64 // requests that end in a second; 0 if that is not known
}

// Wait estimates the seconds to the first token of a request that is sent now, and where there is a queue, what it costs
// others: its prompt holds up those who come later, and while a queue lasts as many come as are in it.
func (s *Server) Wait(now time.Time, speed *Speed, p Prompt, page Page) float64 {
	owed, waiting, decoding := float64(s.owed.Load()), float64(s.waiting.Load()), float64(s.decoding.Load())
	queued := max(page.Waiting-waiting, 0) // of others, or of ours of which we see nothing
	factor, own := s.Factor(), speed.Uncached(p)
	later := max(waiting, page.Waiting, 1) - 1
	work := factor*(speed.first(decoding, page.Others, owed+own)+later*speed.PerToken*own) + s.unseenWork(now)
	room := s.room(queued, page)
	if waiting <= 0 {
		return work + room
	}
	// The one that is next is as large as the mean. Of the time since the last sign of progress part has gone into it, as
	// its step may have begun later; what is beyond its time is delay, and may go on as long again.
	const credit = 0.75
	next := factor * speed.first(decoding, page.Others, owed/waiting)
	elapsed := max(now.Sub(time.Unix(0, s.mark.Load())).Seconds(), 0)
	return work - credit*min(elapsed, next) + max(elapsed-next, room)
}

// room is the seconds until there is room in the batch for one more. Who waits for room waits for the end of another; a queue in
// front of a batch that could take more waits for the prompts before it, and those are counted.
func (s *Server) room(queued float64, page Page) float64 {
	const crowded = 0.8 // memory: what is free may be too little for one more
	if page.Rate <= 0 {
		return 0
	}
	if page.KVUsage < crowded && !s.batch.full(page.Running) {
		queued = 0
	}
	return max(queued, s.batch.over(page.All+1)) / page.Rate
}

// See takes what the server's page says of its requests.
func (s *Server) See(running, waiting float64) { s.batch.see(running, waiting) }

// unseenWork is the seconds that the prompts still take whose first tokens are not seen.
func (s *Server) unseenWork(now time.Time) float64 {
	return max(time.Unix(0, s.freeAt.Load()).Sub(now).Seconds(), 0)
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
	others float64 // requests of others, when it began
	first  bool
}

// Begin counts a request that is sent now, where others have so many.
func (s *Server) Begin(now time.Time, p Prompt, others float64) Request {
	owed := int64(s.learner.Speed().Uncached(p))
	if s.waiting.Load() == 0 {
		s.mark.Store(now.UnixNano())
	}
	s.waiting.Add(1)
	s.owed.Add(owed)
	s.learner.usual.See(float64(owed), smoothTokens)
	return Request{server: s, began: now, prompt: p, owed: owed, others: others}
}

// Found takes note of requests that others have placed, and that were not there at the last scrape: their prompts are
// likely being computed. It returns how many tokens that is, if they are like ours.
func (s *Server) Found(now time.Time, requests float64) float64 {
	tokens := requests * s.learner.usual.Value()
	s.owe(now, tokens)
	return tokens
}

// owe adds prompt tokens whose end will not be seen.
func (s *Server) owe(now time.Time, tokens float64) {
	work := s.Factor() * s.learner.Speed().PerToken * tokens * float64(time.Second)
	s.freeAt.Store(max(s.freeAt.Load(), now.UnixNano()) + int64(work)) // of two at once one may be missed
}

// BeginUnseen counts a request whose first token will not be seen, as its answer comes in one piece. It counts as under way
// at once, and its prompt for as long as it should take.
func (s *Server) BeginUnseen(now time.Time, p Prompt) Request {
	tokens := s.learner.Speed().Uncached(p)
	s.learner.usual.See(tokens, smoothTokens)
	s.owe(now, tokens)
	s.decoding.Add(1)
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
	s.mark.Store(now.UnixNano())
	s.observe(r, now, decoding)
}

// End says that the request has ended, or that nothing more will be heard of it.
func (r *Request) End() {
	s := r.server
	if s == nil {
		return
	}
	r.server = nil
	if r.first {
		s.decoding.Add(-1)
		return
	}
	s.owed.Add(-r.owed)
	s.waiting.Add(-1)
}

// observe takes a first token into account. Those that come close together are of one step: it is learnt from when the
// next one comes.
func (s *Server) observe(r *Request, now time.Time, decoding int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.step.ended.IsZero() && now.Sub(s.step.ended).Seconds() < s.learner.Speed().Base*s.Factor()/4 {
		s.step.tokens += float64(r.prompt.Tokens)
		s.step.expected += float64(r.prompt.Expected)
		s.step.history += float64(r.prompt.History)
		if r.began.Before(s.step.began) {
			s.step.began = r.began
		}
		return
	}
	s.learn()
	s.step = step{before: s.step.ended, began: r.began, ended: now, observation: observation{
		decoding: float64(decoding), others: r.others, tokens: float64(r.prompt.Tokens), expected: float64(r.prompt.Expected),
		history: float64(r.prompt.History),
	}}
}

// learn learns from the last step, if there was one.
func (s *Server) learn() {
	began := s.step.began
	if began.Before(s.step.before) { // the server was busy with that one
		if s.step.others >= 1 {
			return // and with prompts of others in between: a step took as long as any, whatever of ours was in it
		}
		began = s.step.before
	}
	took := s.step.ended.Sub(began).Seconds()
	if took <= 0 {
		return
	}
	o, speed := s.step.observation, s.learner.Speed()
	want := speed.first(o.decoding, o.others, speed.uncached(o.tokens, o.expected, o.history))
	took = min(took, late*want)
	mean := s.learner.learn(o, took, s.Factor())
	s.observed = s.observed*forgetServer + took
	s.expected = s.expected*forgetServer + want
	weight := factorWeight * mean
	s.factor.Store(math.Float64bits((s.observed + weight) / (s.expected + weight)))
}
