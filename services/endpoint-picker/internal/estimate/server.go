package estimate

import (
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// Server is the estimator's state of one endpoint: its Observer.
type Server struct {
	estimator *Estimator
	cache     prefixindex.Handle
	batch     batchSize

	backlog         atomic.Int64             // uncached prompt tokens of requests in prefill
	work            atomic.Int64             // the same as work
	pending         prefillQueue             // requests in prefill
	remoteBacklog   atomic.Int64             // the part of backlog that other replicas placed
	prefills        atomic.Int64             // requests in prefill: placed here, and without a first token
	decoding        atomic.Int64             // requests with a first token
	lastProgress    endpoint.AtomicMonotonic // when the backlog began or last got a first token
	slowdown        atomicFloat              // relative to the pool
	fit             *cacheFit                // of what it keeps in its cache
	isSparse        atomic.Bool              // counted in the estimator's sparse
	alignment       atomic.Uint32            // tokens of which cached prefixes are multiples
	unobservedUntil endpoint.AtomicMonotonic // expected end of prefills without an observed first token
	unobserved      atomic.Int64             // work for prompts of our own requests without an observed first token

	activity activity
	memory   kvMemory
	share    prefillShare

	mu                 sync.Mutex
	observed, expected movingAverage // seconds to first token
	step               step

	// Used only by ObservePage.
	requests, others float64 // on the last page, within plausible bounds

	sizeMu     sync.Mutex
	pageBlocks int // size of the cache on the last page that reported it, in blocks of 16 tokens; 0 for none
	blocks     int // size of the cache in the index
}

func newServer(x *Estimator, cache prefixindex.Handle, blocks int) *Server {
	s := &Server{estimator: x, cache: cache, blocks: blocks, fit: newCacheFit()}
	s.slowdown.Store(1)
	s.memory.usage.Store(1)
	s.alignment.Store(usualAlignment)
	return s
}

// ServerOf returns the estimator's state of an endpoint that the estimator has made.
func ServerOf(e *endpoint.Endpoint) *Server { return e.Observer().(*Server) }

// slowdownFactor returns the slowdown of the server relative to its pool: 1 is the pool's mean, 2 takes twice as long.
func (s *Server) slowdownFactor() float64 { return s.slowdown.Load() }

// BatchCapacity returns the number of requests that the server runs at once; 0 if it is not known.
func (s *Server) BatchCapacity() float64 { return s.batch.size.Load() }

// Backlog returns the number of uncomputed prompt tokens of requests that were placed here.
func (s *Server) Backlog() int64 { return s.backlog.Load() }

// Estimates implements endpoint.Observer.
func (s *Server) Estimates() endpoint.Estimates {
	backlog := max(s.Backlog()-s.remoteBacklog.Load(), 0)
	return endpoint.Estimates{
		Backlog: backlog, Slowdown: s.slowdownFactor(),
		Prefix: s.fit.totalTokens(), PrefillRate: s.prefillRate(), BacklogTime: s.prefillTime(float64(backlog)),
		BatchCapacity: s.BatchCapacity(),
	}
}

// ObservePage implements endpoint.Observer. What one page can claim is bounded: at most maxNewRequests more requests than the
// last page, and no more unobserved work than its requests can have.
func (s *Server) ObservePage(next *endpoint.Sample) {
	s.observeCache(next)
	requests := min(next.RequestCount(), s.requests+maxNewRequests)
	others := max(requests-next.OwnRequests(), 0)
	s.batch.observePage(min(next.Running, requests), next.Waiting)
	s.observeMemory(next)
	if found := others - s.others; found > 0 {
		tokens := found * s.estimator.learner.tokens.Load()
		s.addUnobserved(next.At, tokens)
		s.estimator.index.OccupyBlocks(s.cache, int(s.estimator.tokensToBlocks(tokens)))
	}
	s.boundUnobserved(next.At, others)
	s.requests, s.others = requests, others
	s.estimator.share.observePage(others, requests)
}

// observeMemory learns from the memory in use on a page, unless its requests are others than ours although this picker places all: then it
// is of another time.
func (s *Server) observeMemory(next *endpoint.Sample) {
	if next.RequestCount() == next.OwnRequests() || s.estimator.share.placedByOthers() >= minOthers {
		s.memory.observePage(next, s.prefills.Load())
	}
}

// HeldTokens implements endpoint.Observer.
func (s *Server) HeldTokens() int64 { return s.memory.held.Load() }

// unobservedBacklog returns the remaining time for prompts without an observed first token.
func (s *Server) unobservedBacklog(now endpoint.Monotonic) time.Duration {
	return max(s.unobservedUntil.Load().Sub(now), 0)
}

// addUnobserved adds prompt tokens whose completion is not observed. Of two concurrent additions one may be lost.
func (s *Server) addUnobserved(now time.Time, tokens float64) {
	begin := max(s.unobservedUntil.Load(), endpoint.ToMonotonic(now))
	s.unobservedUntil.Store(begin.Add(s.prefillTime(tokens)))
}

// boundUnobserved limits the unobserved backlog to what the requests on a page can have: others of them, and our own. An
// engine that has finished them faster than expected, or a page that claimed too many, leaves no backlog behind.
func (s *Server) boundUnobserved(now time.Time, others float64) {
	tokens := others*s.estimator.learner.tokens.Load() + float64(s.unobserved.Load())
	until := endpoint.ToMonotonic(now).Add(s.prefillTime(backlogSlack * tokens))
	if s.unobservedUntil.Load() > until {
		s.unobservedUntil.Store(until)
	}
}

// prefillRate returns the prompt tokens that the server computes per second, or 0 if the pool has not shown it.
func (s *Server) prefillRate() float64 {
	learner := s.estimator.learner
	perToken := learner.currentCosts().PerToken
	if learner.observed.Load() < learnedCosts || perToken <= minToken { // it is the prior, or noise
		return 0
	}
	return 1 / (perToken * s.slowdownFactor())
}

// prefillTime returns the time to compute prompt tokens.
func (s *Server) prefillTime(tokens float64) time.Duration {
	return time.Duration(s.slowdownFactor() * s.estimator.learner.currentCosts().PerToken * tokens * float64(time.Second))
}
