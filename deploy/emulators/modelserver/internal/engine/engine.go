// Package engine simulates the timing of a model server: continuous batching with chunked prefill and a prefix cache, like vLLM's
// scheduler, with a formula instead of a GPU.
//
// Engine is a state machine with its own exact time. It never sleeps and reads no clock: the caller passes the time, and Advance
// completes all steps that end until then. Calls with the same times give the same result, even if the caller is late. Driver
// runs an Engine in real time.
//
// One step takes the time of the Spec's law, times slowdown / Speed. It makes one token for each request whose prefill is complete.
// Invariants: at most MaxNumSeqs requests run; a step has at most MaxNumBatchedTokens tokens; a block is free, or its number of
// references is the number of requests that hold it; requests start in the order of their arrival, except that a request that
// waits for a place for its adapter lets other requests pass.
package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"fairlead.dev/pkg/steptime"
)

// ErrTooLong means that a request has more tokens than MaxModelLen.
var ErrTooLong = errors.New("request exceeds the model's context length")

// Engine is the state machine. It is not safe for concurrent use.
type Engine struct {
	spec     Spec
	slowdown float64
	cache    *blockCache
	stats    Stats
	noise    *rand.Rand
	shown    Gauges // with StaleGauges

	waiting, running []*Request
	left             int // waiting requests at the start of the current step
	stepping         bool
	stepEnd          time.Duration
}

// batch is the work of one step.
type batch struct {
	budget int // tokens left
	step   steptime.Step
}

// New returns an idle engine at time 0.
func New(spec Spec) *Engine {
	return &Engine{
		spec: spec, slowdown: 1, cache: newBlockCache(spec.NumBlocks), stats: newStats(spec), noise: rand.New(rand.NewPCG(spec.Seed, 7)),
	}
}

// Submit enqueues a request at time now. An idle engine starts it immediately; a busy engine considers it for the next step.
func (e *Engine) Submit(now time.Duration, r *Request) error {
	if len(r.Prompt)+len(r.Output) > e.spec.MaxModelLen {
		return ErrTooLong
	}
	e.Advance(now)
	r.arrived = now
	r.tokenTimes = make([]time.Duration, 0, len(r.Output))
	e.waiting = append(e.waiting, r)
	if !e.stepping {
		e.beginStep(now)
	}
	return nil
}

// Abort ends a request at time now and frees its blocks. The length of the current step does not change, as on a GPU. If the
// request has already ended, Abort does nothing.
func (e *Engine) Abort(now time.Duration, r *Request) {
	e.Advance(now)
	if r.ended {
		return
	}
	same := func(other *Request) bool { return other == r }
	e.waiting = slices.DeleteFunc(e.waiting, same)
	e.running = slices.DeleteFunc(e.running, same)
	e.end(r, ReasonAbort)
	if len(e.waiting)+len(e.running) == 0 {
		e.shown = e.gauges(0)
	}
}

// Advance completes all steps that end until now.
func (e *Engine) Advance(now time.Duration) {
	for e.stepping && e.stepEnd <= now {
		e.finishStep()
		e.beginStep(e.stepEnd)
	}
}

// Next returns the end of the current step, or false if the engine is idle.
func (e *Engine) Next() (time.Duration, bool) { return e.stepEnd, e.stepping }

// SetSlowdown multiplies the time of steps by factor, from the next step on.
func (e *Engine) SetSlowdown(factor float64) { e.slowdown = factor }

// Stats returns a copy of the counters.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Gauges = e.shown
	if !e.spec.StaleGauges {
		s.Gauges = e.gauges(len(e.waiting))
	}
	s.Finished = make(map[FinishReason]uint64, len(e.stats.Finished))
	for reason, n := range e.stats.Finished {
		s.Finished[reason] = n
	}
	for _, h := range s.histograms() {
		*h = h.clone()
	}
	return s
}

// beginStep schedules the next step: first the running requests, then waiting ones. Without requests the engine becomes idle.
func (e *Engine) beginStep(now time.Duration) {
	b := batch{budget: e.spec.MaxNumBatchedTokens}
	e.scheduleRunning(&b)
	e.admitWaiting(now, &b)
	e.stepping = len(e.running) > 0
	if e.stepping {
		took := float64(e.spec.Law.Time(b.step)) * e.spec.Law.Vary(e.noise)
		e.stepEnd = now + max(1, time.Duration(took*e.slowdown/e.spec.Speed))
		e.left = len(e.waiting)
	}
}

func (e *Engine) scheduleRunning(b *batch) {
	for i := 0; i < len(e.running); i++ {
		r := e.running[i]
		n := min(r.known()-r.computed, b.budget)
		if n > 0 && e.makeRoom(r, n) {
			e.schedule(r, n, b)
		}
	}
}

// makeRoom allocates the blocks for n more tokens of r. If there are not enough free blocks, it preempts the requests that started
// last. It returns false if it had to preempt r itself.
func (e *Engine) makeRoom(r *Request, n int) bool {
	for {
		held, ok := e.cache.extend(r.held, e.spec.blocksFor(r.computed+n))
		if ok {
			r.held = held
			return true
		}
		last := e.running[len(e.running)-1]
		e.preempt(last)
		if last == r {
			return false
		}
	}
}

// preempt moves the last running request to the front of the queue. After its restart, the request recomputes the tokens that are
// no longer cached. The request cannot restart in the same step, and no other request passes it: it needs more blocks than it
// released, and other requests have taken some of these.
func (e *Engine) preempt(r *Request) {
	e.running = e.running[:len(e.running)-1]
	e.waiting = slices.Insert(e.waiting, 0, r)
	e.releaseBlocks(r)
	r.preemptions++
	e.stats.Preemptions++
}

func (e *Engine) admitWaiting(now time.Duration, b *batch) {
	for i := 0; i < len(e.waiting) && len(e.running) < e.spec.MaxNumSeqs && b.budget > 0; {
		r := e.waiting[i]
		if !e.adapterHasPlace(r.Adapter) {
			i++
			continue
		}
		if !e.admit(now, r, b) {
			return
		}
		e.waiting = slices.Delete(e.waiting, i, i+1)
		e.running = append(e.running, r)
	}
}

// admit starts a request with its cached blocks, or returns false if there are not enough free blocks.
func (e *Engine) admit(now time.Duration, r *Request, b *batch) bool {
	candidates := r.cacheable(e.spec.BlockSize)
	hits := e.cache.match(candidates)
	cached := hits * e.spec.BlockSize
	n := min(r.known()-cached, b.budget)
	held, ok := e.cache.acquire(candidates[:hits], e.spec.blocksFor(cached+n))
	if !ok {
		return false
	}
	r.held, r.computed, r.published = held, cached, hits
	if !r.begun {
		r.begun, r.started, r.cached = true, now, cached
		e.stats.PrefixCacheQueries += uint64(len(r.Prompt))
		e.stats.PrefixCacheHits += uint64(cached)
	}
	e.schedule(r, n, b)
	return true
}

// schedule adds n tokens of r to the step. Other requests, even in the same step, can find the blocks that these tokens fill.
func (e *Engine) schedule(r *Request, n int, b *batch) {
	b.budget -= n
	if r.decoding() {
		b.step.Decode(r.known())
	} else {
		b.step.Prefill(r.computed, n)
	}
	r.scheduled = n
	for full := (r.computed + n) / e.spec.BlockSize; r.published < full; r.published++ {
		e.cache.publish(r.held[r.published], r.chain[r.published])
	}
}

func (e *Engine) adapterHasPlace(name string) bool {
	if name == "" {
		return true
	}
	inUse := adapters(e.running)
	return len(inUse) < e.spec.MaxLoRAs || slices.Contains(inUse, name)
}

// finishStep adds the tokens of the step to the requests.
func (e *Engine) finishStep() {
	iterationTokens := 0
	e.running = slices.DeleteFunc(e.running, func(r *Request) bool {
		r.computed += r.scheduled
		ready := r.scheduled > 0 && r.computed == r.known()
		r.scheduled = 0
		if !ready {
			return false
		}
		iterationTokens += e.makeToken(r)
		if r.made < len(r.Output) {
			r.notify()
			return false
		}
		e.stats.observeEnd(r)
		e.end(r, r.Reason)
		return true
	})
	e.shown = e.gauges(min(e.left, len(e.waiting)))
	e.stats.Steps++
	e.stats.IterationTokens.Observe(float64(iterationTokens))
}

// gauges returns the state of the scheduler. It includes only the given number of waiting requests from the front of the queue.
func (e *Engine) gauges(waiting int) Gauges {
	deferred := 0
	for _, r := range e.waiting[:waiting] {
		if !e.adapterHasPlace(r.Adapter) {
			deferred++
		}
	}
	return Gauges{
		Running: len(e.running), Waiting: waiting, Deferred: deferred, BlocksUsed: e.cache.size() - e.cache.free,
		RunningAdapters: adapters(e.running), WaitingAdapters: adapters(e.waiting[:waiting]),
	}
}

// makeToken adds a token to the answer. It returns the number of tokens that vLLM counts: with the first token also the prompt's.
func (e *Engine) makeToken(r *Request) int {
	at := e.stepEnd - r.arrived
	r.tokenTimes = append(r.tokenTimes, at)
	r.made++
	e.stats.GenerationTokens++
	if r.made > 1 {
		e.stats.InterTokenLatency.Observe((at - r.tokenTimes[r.made-2]).Seconds())
		return 1
	}
	e.stats.TimeToFirstToken.Observe(at.Seconds())
	e.stats.PromptTokens += uint64(len(r.Prompt))
	e.stats.CachedPromptTokens += uint64(r.cached)
	return len(r.Prompt) + 1
}

func (e *Engine) end(r *Request, reason FinishReason) {
	e.releaseBlocks(r)
	r.ended, r.reason = true, reason
	e.stats.Finished[reason]++
	r.notify()
}

func (e *Engine) releaseBlocks(r *Request) {
	e.cache.release(r.held)
	r.held, r.computed, r.scheduled, r.published = nil, 0, 0, 0
}

// adapters returns the distinct adapters of requests, sorted.
func adapters(requests []*Request) []string {
	var names []string
	for _, r := range requests {
		if r.Adapter != "" && !slices.Contains(names, r.Adapter) {
			names = append(names, r.Adapter)
		}
	}
	slices.Sort(names)
	return names
}
