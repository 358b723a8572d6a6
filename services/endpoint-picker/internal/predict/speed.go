// Package predict estimates the time to first token of a request on a model server.
//
// A server computes its prompts, except for their cached part, then the first token of each, and at the same time a token
// for every decoding request. The estimated time to first token is
//
//	base + perDecoding × decoding requests + perOther × requests of others + perToken × owed prompt tokens
//
// times a factor of the server; owed tokens include the request's own prompt. For requests of other replicas, the server's
// page contains their number, but not their progress: a part of them is in prefill. The coefficients belong to the pool,
// because its servers run one model. They are learned from every observed first token, by least squares with exponential
// forgetting, and need no configuration. The factor is the ratio of the observed and the expected times of a server; it
// distinguishes slow servers from fast ones.
//
// Owed tokens belong to requests that were placed here and have no first token yet. If a server is late, because it waits
// for KV cache or has died, its delay so far is added to its estimate.
package predict

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/fading"
)

// Speed contains the learned times of servers, in seconds.
type Speed struct {
	Base        float64 // minimum time to first token
	PerDecoding float64 // increase per decoding request
	PerOther    float64 // increase per request of other replicas
	PerToken    float64 // increase per uncached prompt token
	Found       float64 // share of the tokens expected in a cache that is found there
	Kept        float64 // the same for tokens of a history
}

// A Prompt is the work for a request before its first token.
type Prompt struct {
	Tokens   int // not known to be in the server's cache
	Expected int // of them, in its cache if other replicas sent their requests to the expected server
	History  int // the same, for tokens of a previous prompt and its answer
}

// Uncached estimates the number of prompt tokens to compute: at least one.
func (s *Speed) Uncached(p Prompt) float64 {
	return max(s.uncached(float64(p.Tokens), float64(p.Expected), float64(p.History)), 1)
}

func (s *Speed) uncached(tokens, expected, history float64) float64 {
	return tokens - s.Found*expected - s.Kept*history
}

// first returns the time to first token for a number of owed tokens.
func (s *Speed) first(decoding, others, tokens float64) float64 {
	return s.Base + s.PerDecoding*decoding + s.PerOther*others + s.PerToken*tokens
}

// prior is the estimate without observations: a model of 8 billion parameters on one recent GPU. A few dozen first tokens
// outweigh it.
var prior = Speed{Base: 0.010, PerDecoding: 0.0001, PerOther: 0.0001, PerToken: 50e-6, Kept: 0.5}

const (
	terms = 6 // of a Speed
	// priorWeight is the weight of the prior in first tokens, each with this many decoding requests and tokens.
	priorWeight   = 2
	priorDecoding = 10
	priorTokens   = 300
	// doubtTokens is the same for tokens expected in caches: a few long prompts are evidence, many short ones are not.
	doubtTokens = 7000
	// historyTokens is the same for histories, which are usually found.
	historyTokens = 1000

	forget       = 0.999 // weight of the pool's memory after each first token
	forgetServer = 0.99  // weight of a server's memory
	factorWeight = 20    // weight of a factor of 1 in first tokens
	usualTokens  = 300   // initial estimate of the uncached tokens of a request
	smoothTokens = 0.01  // weight in their mean
	late         = 5     // limit of observed over expected time: beyond it, the request waited for KV cache, not for compute
	smoothing    = 0.01  // weight in the mean time to first token
	leastBase    = 0.001 // seconds
	leastToken   = 1e-6  // seconds
)

// Learner learns the speed of a pool's servers.
type Learner struct {
	speed atomic.Pointer[Speed]

	mu   sync.Mutex
	sums [terms][terms + 1]float64 // normal equations
	mean float64                   // mean seconds to a first token

	usual fading.Mean // uncached tokens of a request
}

// NewLearner returns a Learner without observations.
func NewLearner() *Learner {
	l := &Learner{mean: prior.first(priorDecoding, 0, priorTokens)}
	l.usual.Set(usualTokens)
	l.speed.Store(l.solve())
	return l
}

// Speed returns the current estimate. It must not be changed.
func (l *Learner) Speed() *Speed { return l.speed.Load() }

// learn adds an observation: the duration of a step in seconds, on a server with the given factor.
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

// solve computes the coefficients with the least squares of errors. The prior counts as some observations.
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
	for i := range terms { // Gauss-Jordan elimination; the prior keeps the pivots positive
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

// Server is the state of one server.
type Server struct {
	learner *Learner
	batch   batch

	owed     atomic.Int64  // prompt tokens of requests without a first token
	waiting  atomic.Int64  // those requests
	decoding atomic.Int64  // requests with a first token
	mark     atomic.Int64  // time when the owed work began or last progressed, in Unix nanoseconds
	factor   atomic.Uint64 // bits of a float
	freeAt   atomic.Int64  // expected end of prompts without an observed first token, in Unix nanoseconds

	mu                 sync.Mutex
	observed, expected float64 // seconds, with exponential forgetting
	step               step
}

// step contains first tokens that came at the same time, from requests that were computed together.
type step struct {
	before       time.Time // the end of the previous step
	began, ended time.Time
	observation
}

// observation contains the work of a step.
type observation struct {
	decoding, others, tokens, expected, history float64
}

// NewServer returns a server without load.
func (l *Learner) NewServer() *Server {
	s := &Server{learner: l}
	s.factor.Store(math.Float64bits(1))
	return s
}

// Page contains a server's metrics, for all its requests.
type Page struct {
	Others  float64 // requests of other replicas
	All     float64 // all requests, updated with our own that began or ended since
	Waiting float64 // requests in its queue
	Running float64 // requests in its batch
	KVUsage float64 // share of its KV cache in use
	Rate    float64 // finished requests per second; 0 if unknown
}

// Wait estimates the seconds to first token of a request that is sent now. If there is a queue, it adds the cost for others:
// the prompt delays later requests, and while a queue lasts as many requests arrive as are in it.
func (s *Server) Wait(now time.Time, speed *Speed, p Prompt, page Page) float64 {
	owed, waiting, decoding := float64(s.owed.Load()), float64(s.waiting.Load()), float64(s.decoding.Load())
	queued := max(page.Waiting-waiting, 0) // of other replicas, or of our unobserved requests
	factor, own := s.Factor(), speed.Uncached(p)
	later := max(waiting, page.Waiting, 1) - 1
	work := factor*(speed.first(decoding, page.Others, owed+own)+later*speed.PerToken*own) + s.unseenWork(now)
	room := s.room(queued, page)
	if waiting <= 0 {
		return work + room
	}
	// The next prompt has the mean size. It has been computed for a part of the time since the last progress, as its step
	// may have begun later. Time beyond its expected duration is delay, which may last as long again.
	const credit = 0.75
	next := factor * speed.first(decoding, page.Others, owed/waiting)
	elapsed := max(now.Sub(time.Unix(0, s.mark.Load())).Seconds(), 0)
	return work - credit*min(elapsed, next) + max(elapsed-next, room)
}

// room estimates the seconds until the batch has room for one more request. A request without room waits for the end of
// another one. A queue in front of a batch with room waits for the prefill of earlier prompts, which is counted separately.
func (s *Server) room(queued float64, page Page) float64 {
	const crowded = 0.8 // share of memory: the free rest may be too little for one more request
	if page.Rate <= 0 {
		return 0
	}
	if page.KVUsage < crowded && !s.batch.full(page.Running) {
		queued = 0
	}
	return max(queued, s.batch.over(page.All+1)) / page.Rate
}

// See records requests on the server's page.
func (s *Server) See(running, waiting float64) { s.batch.see(running, waiting) }

// unseenWork returns the remaining seconds for prompts without an observed first token.
func (s *Server) unseenWork(now time.Time) float64 {
	return max(time.Unix(0, s.freeAt.Load()).Sub(now).Seconds(), 0)
}

// Owed returns the number of uncomputed prompt tokens of requests that were placed here.
func (s *Server) Owed() float64 { return float64(s.owed.Load()) }

// Factor returns the slowdown of the server relative to its pool.
func (s *Server) Factor() float64 { return math.Float64frombits(s.factor.Load()) }

// Request is one request on a server. Its methods are called in order, by one goroutine: First at most once, End once.
type Request struct {
	server *Server
	began  time.Time
	prompt Prompt
	owed   int64
	others float64 // requests of other replicas at its start
	first  bool
}

// Begin counts a request that is sent now, with the given number of other replicas' requests.
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

// Found records new requests of other replicas since the last scrape: their prompts are probably being computed. It returns
// the estimated number of their tokens, assuming the size of ours.
func (s *Server) Found(now time.Time, requests float64) float64 {
	tokens := requests * s.learner.usual.Value()
	s.owe(now, tokens)
	return tokens
}

// owe adds prompt tokens whose completion is not observed.
func (s *Server) owe(now time.Time, tokens float64) {
	work := s.Factor() * s.learner.Speed().PerToken * tokens * float64(time.Second)
	s.freeAt.Store(max(s.freeAt.Load(), now.UnixNano()) + int64(work)) // one of two concurrent additions may be lost
}

// BeginUnseen counts a request without an observable first token, because its answer comes in one piece. It counts as
// decoding at once, and its prompt counts for its expected duration.
func (s *Server) BeginUnseen(now time.Time, p Prompt) Request {
	tokens := s.learner.Speed().Uncached(p)
	s.learner.usual.See(tokens, smoothTokens)
	s.owe(now, tokens)
	s.decoding.Add(1)
	return Request{server: s, first: true}
}

// First records the first token.
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

// End records the end of the request, or that its end will not be observed.
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

// observe records a first token. First tokens that come close together belong to one step, which is learned when the next
// step ends.
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
	if began.Before(s.step.before) { // the server was busy with the previous step
		if s.step.others >= 1 {
			return // with prompts of other replicas in between, the duration of a step does not depend on our part
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
