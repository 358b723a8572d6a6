package estimate

import (
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// sequence is one request on a server, from its placement to its end: the Tracker of its lease, which serializes the calls of
// its methods.
type sequence struct {
	lease endpoint.Lease // here, so that both are one allocation

	server   *Server
	placed   time.Time
	prefill  Prefill
	backlog  int64   // uncached tokens, as counted in the server's backlog
	work     int64   // the same as work
	memory   int64   // tokens that it holds
	crowded  bool    // it may have to wait for memory
	others   float64 // requests of other replicas at its placement
	inDecode bool    // not in prefill: its first token came, or it counts so
	observed bool    // its first token is observable
	late     bool    // its first token becomes known after its end
	decoding int64   // other sequences there at the placement
	moved    bool    // to another server, at an unknown time
	remote   bool    // another replica placed it
	request  uint64  // its number for other replicas; 0 if they do not hear of it
	signs    signs
	queued   queued

	first, progress endpoint.Monotonic // its first token, and the progress of the server before
}

// acquireLease counts a request on an endpoint. One whose answer comes whole counts as decoding at once, and its prompt for its expected
// duration. A late one is like that, but teaches the speed of the server when its first token becomes known, unless a later one did before.
func (s *Server) acquireLease(e *endpoint.Endpoint, now time.Time, p Prefill, answer AnswerMode) *endpoint.Lease {
	q := s.newSequence(e, now, p, answer, false)
	q.request = s.estimator.publishPlacement(e, q, answer)
	e.AcquireInto(&q.lease, q)
	return &q.lease
}

// placeRemote counts a request that another replica has placed.
func (s *Server) placeRemote(e *endpoint.Endpoint, now time.Time, p Prefill, answer AnswerMode) *endpoint.Lease {
	q := s.newSequence(e, now, p, answer, true)
	e.AcquireRemote(&q.lease, q)
	return &q.lease
}

// newSequence makes a sequence and counts it on its server.
func (s *Server) newSequence(e *endpoint.Endpoint, now time.Time, p Prefill, answer AnswerMode, remote bool) *sequence {
	q := &sequence{
		server: s, placed: now, prefill: p, others: e.Sample().OtherRequests(), observed: answer == Streamed, late: answer == Late,
		decoding: s.decoding.Load(), remote: remote,
	}
	q.countOnServer(now)
	return q
}

// countOnServer counts the sequence on its server.
func (q *sequence) countOnServer(now time.Time) {
	s := q.server
	learner := s.estimator.learner
	costs := learner.currentCosts()
	tokens, work := costs.uncachedTokens(&q.prefill), costs.prefillWork(&q.prefill)
	q.backlog, q.work = int64(tokens), int64(work)
	learner.tokens.addSample(tokens, usualTokensWeight)
	prompt, answer := float64(q.prefill.Context+q.prefill.Tokens), learner.answer.Load()
	q.crowded, q.memory = s.memory.isCrowded(prompt, answer), int64(s.memory.boundTokens(prompt, answer))
	s.memory.held.Add(q.memory)
	s.share.addPrompt(endpoint.ToMonotonic(now), costs.PerToken*work*s.slowdownFactor())
	q.countWaiting(now)
	if !q.observed {
		q.inDecode = true
		s.addUnobserved(now, work)
		s.unobserved.Add(q.work)
		s.decoding.Add(1)
		return
	}
	q.startPrefill(now)
}

// startPrefill counts the prompt on its server.
func (q *sequence) startPrefill(since time.Time) {
	s := q.server
	if s.prefills.Load() == 0 {
		s.lastProgress.Store(max(s.lastProgress.Load(), endpoint.ToMonotonic(since)))
	}
	s.prefills.Add(1)
	s.pending.addSequence(q)
	q.changeBacklog(1)
}

// changeBacklog adds the prompt to the backlog of the server, or removes it.
func (q *sequence) changeBacklog(sign int64) {
	q.server.backlog.Add(sign * q.backlog)
	q.server.work.Add(sign * q.work)
	q.server.memory.prefilling.Add(sign * q.memory)
	if q.remote {
		q.server.remoteBacklog.Add(sign * q.backlog)
	}
}

// endPrefill ends the count of the prompt on its server.
func (q *sequence) endPrefill() {
	q.changeBacklog(-1)
	q.server.prefills.Add(-1)
	q.server.pending.removeSequence(q)
}

// OnFirstToken implements endpoint.Tracker.
func (q *sequence) OnFirstToken(now time.Time) {
	s := q.server
	q.countFirstContent(now)
	if q.late && !q.moved { // when it came to another server is unknown
		s.observeFirst(q, now, q.decoding)
	}
	if q.inDecode {
		return
	}
	decoding := q.startDecode()
	q.first = endpoint.ToMonotonic(now)
	q.progress = s.lastProgress.Swap(q.first)
	s.observeFirst(q, now, decoding)
	s.estimator.publishEvent(q.request, Event{Kind: EventFirst})
}

// startDecode moves the sequence from prefill to decode. It returns the number of other sequences there.
func (q *sequence) startDecode() (others int64) {
	q.inDecode = true
	others = q.server.decoding.Add(1) - 1
	q.endPrefill()
	return others
}

// OnFailure implements endpoint.Tracker. Until its end, a failed request counts like one that has not failed: its prompt is work, and its
// first token, if there was one, was no progress. How much work it would have been is what its client says, who may have been wrong: it is
// usual work at most.
func (q *sequence) OnFailure() {
	s := q.server
	q.countFailure()
	if !q.observed {
		return
	}
	if q.inDecode {
		s.lastProgress.Restore(q.first, q.progress)
		s.decoding.Add(-1)
		q.inDecode = false
	} else {
		q.endPrefill()
	}
	usual := int64(s.estimator.learner.tokens.Load())
	q.backlog, q.work = min(q.backlog, usual), min(q.work, usual)
	q.startPrefill(q.placed)
}

// OnMissedFirst implements endpoint.Tracker. To other replicas the request has ended, because a first token would teach them a time.
func (q *sequence) OnMissedFirst(now time.Time) {
	if q.inDecode {
		return
	}
	q.startDecode()
	q.server.lastProgress.Store(endpoint.ToMonotonic(now))
	q.server.estimator.publishEvent(q.request, Event{Kind: EventEnded})
	q.request = 0
}

// OnMoreContent implements endpoint.Tracker.
func (q *sequence) OnMoreContent(now time.Time) { q.countMoreContent(now) }

// OnMove implements endpoint.Tracker. From now on the sequence is on the server that serves it. When the gateway's attempt
// there began is unknown, so its first token shows progress, but teaches no time.
func (q *sequence) OnMove(to *endpoint.Endpoint, now time.Time) {
	q.leaveServer()
	q.countFailure()
	q.signs = signs{}
	q.server, q.placed, q.moved, q.inDecode, q.others = ServerOf(to), now, true, false, to.Sample().OtherRequests()
	q.countOnServer(now)
	q.server.estimator.publishEvent(q.request, Event{Kind: EventMoved, Endpoint: to})
}

// OnEnd implements endpoint.Tracker.
func (q *sequence) OnEnd(how endpoint.Ending) {
	q.leaveServer()
	q.countEnd(how)
	kind := EventEnded
	if how == endpoint.Unobserved {
		kind = EventLost
	}
	q.server.estimator.publishEvent(q.request, Event{Kind: kind})
}

// leaveServer ends the count of the sequence on its server.
func (q *sequence) leaveServer() {
	s := q.server
	s.memory.held.Add(-q.memory)
	switch {
	case !q.observed:
		s.unobserved.Add(-q.work)
		s.decoding.Add(-1)
	case q.inDecode:
		s.decoding.Add(-1)
	default:
		q.endPrefill()
	}
}

// step is the prompts whose first tokens came at the same time: the engine computed them together.
type step struct {
	observation

	before             time.Time // the end of the previous step
	startTime, endTime time.Time
	moved              bool // its first sequence moved here, so its begin is unknown
	crowded            bool // a sequence may have waited for memory
}

// observeFirst records a first token. First tokens that come close together belong to one step, which is learned when the
// next step ends.
func (s *Server) observeFirst(q *sequence, now time.Time, decoding int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := sameStep * s.estimator.learner.currentCosts().Base * s.slowdownFactor()
	since := now.Sub(s.step.endTime).Seconds()
	if q.late && since < -same {
		return // reported after the next step, which was learned without it
	}
	if !s.step.endTime.IsZero() && since < same {
		s.step.tokens += float64(q.prefill.Tokens)
		s.step.expected += float64(q.prefill.Expected)
		s.step.history += float64(q.prefill.History)
		s.step.pairs += q.prefill.pairCount(float64(q.prefill.Tokens))
		s.step.crowded = s.step.crowded || q.crowded
		if q.placed.Before(s.step.startTime) {
			s.step.startTime = q.placed
		}
		return
	}
	s.learnStep()
	s.step = step{before: s.step.endTime, startTime: q.placed, endTime: now, moved: q.moved, crowded: q.crowded, observation: observation{
		decoding: float64(decoding), others: q.others, tokens: float64(q.prefill.Tokens), expected: float64(q.prefill.Expected),
		history: float64(q.prefill.History), pairs: q.prefill.pairCount(float64(q.prefill.Tokens)),
	}}
}

// learnStep learns from the last step, if there was one.
func (s *Server) learnStep() {
	if s.step.crowded {
		return
	}
	began := s.step.startTime
	if began.Before(s.step.before) { // the server was busy with the previous step
		if s.step.others >= soloOthers {
			return // with prompts of other replicas in between, the duration of a step does not depend on our part
		}
		began = s.step.before
	} else if s.step.moved {
		return
	}
	took := s.step.endTime.Sub(began).Seconds()
	if took <= 0 {
		return
	}
	o, learner := s.step.observation, s.estimator.learner
	costs := learner.currentCosts()
	want := costs.estimateTTFT(o.decoding, o.others, costs.estimateUncached(o.tokens, o.expected, o.history)) + costs.PerPair*o.pairs
	took = min(took, maxOverrun*want)
	prior := slowdownPrior * learner.observeStep(o, took, s.slowdownFactor())
	s.observed.addSample(took, slowdownWeight)
	s.expected.addSample(want, slowdownWeight)
	s.slowdown.Store((s.observed.Load() + prior) / (s.expected.Load() + prior))
}
