package simulation

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// never is longer than any run.
const never = time.Duration(math.MaxInt64 / 2)

// server is one model server.
type server struct {
	batch

	timeline      *timeline
	cache         *blockCache
	number        int
	dead          bool
	shown         endpoint.Gauges // on its page, unless it shows the current state
	busy          time.Duration   // end of the delay by a page
	pages         int             // that were asked for
	requestNumber int             // requests, if some of them fail
	queries       int             // prompt tokens that were looked up in the cache
	hits          int             // those that were found
}

// requestCount returns the number of its requests.
func (s *server) requestCount() int { return len(s.waiting) + len(s.running) }

// allJobs returns its requests.
func (s *server) allJobs() []*job { return slices.Concat(s.running, s.waiting) }

// uncachedTokens returns the tokens of a prompt that its cache does not have.
func (s *server) uncachedTokens(a *arrival) int {
	return a.prompt - s.usableBlocks(a, s.cache.matchChain(a.promptChain()))*a.blockTokens
}

// usableBlocks returns how many cached blocks at the start of a prompt save computation.
func (s *server) usableBlocks(a *arrival, blocks int) int {
	if s.Cache.Off {
		return 0
	}
	if s.Cache.Ends {
		blocks = s.cache.lastEnd(a.promptChain()[:blocks])
	}
	return s.alignBlocks(blocks)
}

// alignBlocks returns a number of blocks that a hit can have.
func (s *server) alignBlocks(blocks int) int { return blocks - blocks%max(s.Cache.Alignment, 1) }

// address returns its address.
func (s *server) address() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(s.number >> 8), byte(s.number)}), 8000)
}

// metricsPage returns the content of its page, and the time to write it. It returns false if the answer is an error, or comes never.
func (s *server) metricsPage() (g endpoint.Gauges, took time.Duration, ok bool) {
	now := s.timeline.now
	s.pages++
	faulty := s.Fault != "" && now >= s.FaultAfter
	if faulty && s.Fault == Hangs {
		return endpoint.Gauges{}, never, false
	}
	s.busy = max(s.busy, now) + s.PageTime
	if faulty && s.Fault == Fails {
		return endpoint.Gauges{}, s.busy - now + s.PageDelay, false
	}
	if !s.StaleGauges && s.Refresh.Interval == 0 && !(faulty && s.Fault == Frozen) {
		s.shown = s.currentGauges(len(s.waiting))
	}
	g = s.shown
	if faulty && s.Fault == Idle {
		g = endpoint.Gauges{}
	}
	g.Blocks = s.Blocks * s.BlockTokens / prefixindex.BlockTokens * max(s.Cache.Part, 1)
	g.Alignment = s.BlockTokens * max(s.Cache.Alignment, 1)
	return g, s.busy - now + s.PageDelay, true
}

// refreshPage refreshes the page, again and again.
func (s *server) refreshPage() {
	if s.Fault != Frozen || s.timeline.now < s.FaultAfter {
		s.shown = s.currentGauges(len(s.waiting))
	}
	s.timeline.scheduleAfter(s.Refresh.Interval+time.Duration(s.requestCount())*s.Refresh.PerRequest, s.refreshPage)
}

// currentGauges returns its state with a number of waiting requests.
func (s *server) currentGauges(waiting int) endpoint.Gauges {
	return endpoint.Gauges{
		Waiting: float64(waiting), Running: float64(len(s.running)),
		KVUsage: 1 - float64(s.cache.free)/float64(s.Blocks),
		Queries: float64(s.queries), Hits: float64(s.hits), Counted: !s.Reports.NoPage,
	}
}

// enqueue accepts a request.
func (s *server) enqueue(j *job) {
	s.setCost(j)
	s.waiting = append(s.waiting, j)
	if !s.stepping {
		s.startNextStep()
	}
}

// nextFailure returns what the next request gets in place of an answer, nil for an answer.
func (s *server) nextFailure() *Failure {
	if s.Failure == nil || s.timeline.now < s.Failure.From {
		return nil
	}
	if s.requestNumber++; s.requestNumber%s.Failure.Every != 0 {
		return nil
	}
	return s.Failure
}

// setCost sets the current cost of a job.
func (s *server) setCost(j *job) {
	hit := s.cache.matchChain(j.promptChain())
	j.setWork(s.usableBlocks(j.arrival, hit))
	j.need = j.blockCount() - hit
}

// startNextStep starts the next step, if there is work.
func (s *server) startNextStep() {
	if s.startStep(s.timeline.now, s); s.stepping {
		s.timeline.scheduleAt(s.end, s.finishStep)
	}
}

func (s *server) finishStep() {
	if s.dead {
		return
	}
	began, ended := s.endStep(s)
	if s.StaleGauges {
		s.shown = s.currentGauges(min(s.waitingAtStart, len(s.waiting)))
	}
	s.startNextStep()
	s.notifyMoreTokens()
	for _, j := range began {
		s.notifyAt(&j.first, func() {
			if j.first > 0 { // else it is lost
				j.watcher.onFirstToken(j)
			}
		})
	}
	for _, j := range ended {
		s.notifyAt(&j.done, func() { j.watcher.onEnd(j) })
	}
}

// notifyMoreTokens tells of the tokens of streams that have begun, the oldest first.
func (s *server) notifyMoreTokens() {
	if s.HoldsBack {
		return
	}
	arrives := s.timeline.now + s.Extra
	if !slices.ContainsFunc(s.running, func(j *job) bool { return j.stream && j.first > 0 && j.first < arrives }) {
		return
	}
	continuing := slices.Clone(s.running)
	s.timeline.scheduleAt(max(arrives, s.busy)+hop, func() {
		for _, j := range continuing {
			if j.stream && j.first > 0 && j.first < arrives {
				j.watcher.onMoreTokens(j)
			}
		}
	})
}

// notifyAt calls tell for a token when it arrives: at its time, or later if a page delays it, which corrects its time.
func (s *server) notifyAt(at *time.Duration, tell func()) {
	*at += max(s.busy-s.timeline.now, 0)
	if *at == s.timeline.now {
		tell()
		return
	}
	s.timeline.scheduleAt(*at, tell)
}

// reserveBlocks reserves memory for a job, or returns false. The cache may differ from the time of its arrival.
func (s *server) reserveBlocks(j *job) bool {
	chain := j.promptChain()
	held, hit, ok := s.cache.acquireBlocks(chain, j.blockCount())
	if ok {
		j.heldBlocks = held
		j.setWork(s.usableBlocks(j.arrival, hit))
		s.cache.keepEnd(chain[:s.alignBlocks(hit)])
		s.cache.keepEnd(chain[:s.alignBlocks(len(chain))])
		s.queries += j.prompt
		s.hits += j.hit
	}
	return ok
}

func (s *server) releaseBlocks(j *job) { s.cache.releaseBlocks(j.heldBlocks, j.chain) }

// kill ends the server and all its requests.
func (s *server) kill() {
	lost := append(slices.Clone(s.running), s.waiting...)
	s.dead, s.stepping, s.running, s.waiting = true, false, nil, nil
	for _, j := range lost {
		if j.first > s.timeline.now {
			j.first = 0 // the page delayed it
		}
		j.watcher.onServerLost(j)
	}
}

// revive starts the server again, with an empty cache.
func (s *server) revive() {
	s.dead, s.cache = false, newBlockCache(s.Blocks, len(s.cache.places))
	s.queries, s.hits, s.shown = 0, 0, endpoint.Gauges{}
}

// forecast returns the time of the first token of a request that arrives now. It knows the true queue, the true cache and
// the length of all answers, which no picker can.
func (s *server) forecast(a *arrival) time.Duration {
	j := &job{arrival: a}
	s.setCost(j)
	b := s.withJob(j)
	r := &freeBlocks{batch: &b, free: s.cache.free}
	if !b.stepping {
		b.startStep(s.timeline.now, r)
	}
	for j.first == 0 {
		b.endStep(r)
		b.startStep(b.end, r)
	}
	return j.first
}
