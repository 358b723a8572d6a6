// Package modelserver simulates model servers, in simulated time, for tests. Times are in seconds.
package modelserver

import (
	"math"
	"math/rand/v2"
	"slices"

	"fairlead.dev/pkg/steptime"
	"fairlead.dev/services/variant-autoscaler/internal/queueing"
)

// Request is one request in a server.
type Request struct {
	Input, Output, Cached int
	Arrived               float64
	Keep                  bool    // step servers: its KV cache stays after the end, until Release
	First, End            float64 // of the first token and of the last one. Zero: not yet
	started, last         float64
	begun                 bool
	computed, generated   int
	work                  float64 // linear servers: what is left of the phase, as a part of it
}

// Server is one replica.
type Server interface {
	Requests() int // in the batch and waiting
	Submit(now float64, r *Request)
	Advance(to float64)
	Read() Page
}

// Page is what a server shows when it is scraped: gauges and counters.
type Page struct {
	Running, Waiting, Usage                       float64
	Finished, Input, Cached, Output               float64
	TTFTSum, TTFTCount, ITLSum, ITLCount, Prefill float64
	ITLs                                          [len(Buckets) + 1]float64 // cumulative, by Buckets, and all
	Firsts                                        []float64                 // every TTFT, for the judge
	Pending                                       []float64                 // arrivals of requests without a first token
}

// Buckets are those of vLLM's histogram of the time between tokens, in seconds, up to the longest that servers here show.
var Buckets = [...]float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}

// observeITL adds times between tokens.
func (p *Page) observeITL(itl, times float64) {
	p.ITLSum += itl * times
	p.ITLCount += times
	for i, most := range Buckets {
		if itl <= most {
			p.ITLs[i] += times
		}
	}
	p.ITLs[len(Buckets)] += times
}

// ITLQuantile returns what Prometheus' histogram_quantile makes of counts of a histogram, or 0 without any.
func ITLQuantile(counts [len(Buckets) + 1]float64, percentile float64) float64 {
	rank := counts[len(Buckets)] * percentile / 100 // percent
	below, from := 0.0, 0.0
	for i, most := range Buckets {
		if counts[i] >= rank && counts[i] > below {
			return from + (most-from)*(rank-below)/(counts[i]-below)
		}
		below, from = counts[i], most
	}
	if rank == 0 {
		return 0
	}
	return from
}

// stepServer computes step by step, like vLLM: chunked prefill, admission by KV cache, preemption of the newest request.
type stepServer struct {
	law              steptime.Law
	noise            *rand.Rand
	slots, budget    int
	blocks           int // KV cache, in tokens
	slow             float64
	waiting, running []*Request
	end              float64 // of the current step
	busy             bool
	used             int
	kept             int // tokens of requests that have ended
	shown            Page
	chunks           []int // of the current step, beside running
}

// NewStepServers returns what makes replicas that compute step by step, as vLLM does. slow multiplies their times.
func NewStepServers(law steptime.Law, slots int, cache float64, slow float64) func(r *rand.Rand) Server {
	return func(r *rand.Rand) Server {
		return &stepServer{law: law, noise: r, slots: slots, budget: 8192, blocks: int(cache), slow: slow}
	}
}

func (s *stepServer) Submit(now float64, r *Request) {
	s.Advance(now)
	s.waiting = append(s.waiting, r)
	if !s.busy {
		s.beginStep(now)
	}
}

func (s *stepServer) Advance(to float64) {
	for s.busy && s.end <= to {
		s.finishStep()
		s.beginStep(s.end)
	}
}

// knownTokens returns the tokens of a request that must be in the cache before its next one.
func (r *Request) knownTokens() int { return r.Input + r.generated }

func (s *stepServer) beginStep(now float64) {
	budget := s.budget
	var step steptime.Step
	s.chunks = s.chunks[:0]
	for i := 0; i < len(s.running); i++ {
		r := s.running[i]
		n := min(r.knownTokens()-r.computed, budget)
		for s.used+n > s.blocks && len(s.running) > i+1 {
			s.preemptNewest()
		}
		s.scheduleChunk(r, n, &step)
		budget -= n
	}
	for len(s.waiting) > 0 && len(s.running) < s.slots && budget > 0 {
		r := s.waiting[0]
		if !r.begun {
			r.begun, r.started, r.computed = true, now, r.Cached
		}
		if s.used+r.knownTokens() > s.blocks && len(s.running)+s.kept > 0 {
			break
		}
		s.waiting = s.waiting[1:]
		s.used += r.computed
		s.running = append(s.running, r)
		n := min(r.knownTokens()-r.computed, budget)
		s.scheduleChunk(r, n, &step)
		budget -= n
	}
	s.busy = len(s.running) > 0
	if s.busy {
		s.end = now + s.law.Time(step).Seconds()*s.law.Vary(s.noise)*s.slow
	}
}

func (s *stepServer) preemptNewest() {
	last := s.running[len(s.running)-1]
	s.running = s.running[:len(s.running)-1]
	s.used -= last.computed
	last.computed = 0
	s.waiting = slices.Insert(s.waiting, 0, last)
}

func (s *stepServer) scheduleChunk(r *Request, n int, step *steptime.Step) {
	if r.generated > 0 && n == 1 {
		step.Decode(r.knownTokens())
	} else if n > 0 {
		step.Prefill(r.computed, n)
	}
	s.chunks = append(s.chunks, n)
}

func (s *stepServer) finishStep() {
	kept := s.running[:0]
	for i, r := range s.running {
		n := s.chunks[i]
		r.computed += n
		s.used += n
		if n > 0 && r.computed == r.knownTokens() {
			r.generated++
			s.shown.countToken(r, s.end)
		}
		if r.generated < r.Output {
			kept = append(kept, r)
			continue
		}
		if r.Keep {
			s.kept += r.computed
		} else {
			s.used -= r.computed
		}
		s.shown.countEnd(r, s.end)
	}
	s.running = kept
}

// Release frees the KV cache of a request that has ended.
func (s *stepServer) Release(now float64, r *Request) {
	s.Advance(now)
	s.used -= r.computed
	s.kept -= r.computed
	if !s.busy {
		s.beginStep(now)
	}
}

// countToken counts a token.
func (p *Page) countToken(r *Request, now float64) {
	if r.generated == 1 {
		p.TTFTSum += now - r.Arrived
		p.TTFTCount++
		p.Firsts = append(p.Firsts, now-r.Arrived)
		r.First, r.last = now, now
		return
	}
	p.observeITL(now-r.last, 1)
	r.last = now
}

func (p *Page) countEnd(r *Request, now float64) {
	r.End = now
	p.Finished++
	p.Input += float64(r.Input)
	p.Cached += float64(r.Cached)
	p.Output += float64(r.Output)
	p.Prefill += r.First - r.started
}

func (s *stepServer) Read() Page {
	p := s.shown
	p.Running, p.Waiting = float64(len(s.running)), float64(len(s.waiting))
	p.Usage = float64(s.used) / float64(s.blocks)
	for _, r := range slices.Concat(s.waiting, s.running) {
		if r.generated == 0 {
			p.Pending = append(p.Pending, r.Arrived)
		}
	}
	return p
}

// linearServer is the law of package queueing: all requests of the batch share the server, in prefill as in decode.
type linearServer struct {
	profile          queueing.Profile
	waiting, running []*Request
	now              float64
	shown            Page
}

// NewLinearServers returns what makes replicas that follow the law of package queueing.
func NewLinearServers(p queueing.Profile) func(r *rand.Rand) Server {
	return func(*rand.Rand) Server { return &linearServer{profile: p} }
}

func (s *linearServer) Submit(now float64, r *Request) {
	s.Advance(now)
	s.waiting = append(s.waiting, r)
	s.admitWaiting()
}

func (s *linearServer) admitWaiting() {
	for len(s.waiting) > 0 && len(s.running) < s.profile.MaxBatch {
		r := s.waiting[0]
		s.waiting = s.waiting[1:]
		r.started, r.work = s.now, 1
		s.running = append(s.running, r)
	}
}

// phaseTime returns the time that all of the current phase of a request takes, in seconds, in a batch of n: its prefill, or its decode.
func (s *linearServer) phaseTime(r *Request, n float64) float64 {
	p := &s.profile
	if r.generated == 0 {
		return (p.Gamma + p.Delta*float64(r.Input-r.Cached)*n) / 1e3
	}
	return (p.Alpha + p.Beta*n) * float64(r.Output-1) / 1e3
}

func (s *linearServer) Advance(to float64) {
	for len(s.running) > 0 {
		n := float64(len(s.running))
		next := math.Inf(1)
		for _, r := range s.running {
			next = min(next, r.work*s.phaseTime(r, n))
		}
		until := min(s.now+next, to)
		for _, r := range s.running {
			took := s.phaseTime(r, n)
			if r.work*took <= next*(1+1e-9) && until < to || took == 0 {
				r.work = 0 // exactly, in spite of rounding
			} else {
				r.work = max(r.work-(until-s.now)/took, 0)
			}
			if r.generated > 0 {
				itl := (s.profile.Alpha + s.profile.Beta*n) / 1e3
				s.shown.observeITL(itl, (until-s.now)/itl)
			}
		}
		s.now = until
		if s.finishPhases(); until >= to {
			break
		}
	}
	s.now = max(s.now, to)
}

func (s *linearServer) finishPhases() {
	kept := s.running[:0]
	for _, r := range s.running {
		if r.work > 0 {
			kept = append(kept, r)
			continue
		}
		if r.generated == 0 {
			r.generated, r.work = 1, 1
			s.shown.countToken(r, s.now)
			if r.Output > 1 {
				kept = append(kept, r)
				continue
			}
		}
		s.shown.countEnd(r, s.now)
	}
	s.running = kept
	s.admitWaiting()
}

func (s *linearServer) Read() Page {
	p := s.shown
	p.Running, p.Waiting = float64(len(s.running)), float64(len(s.waiting))
	for _, r := range slices.Concat(s.waiting, s.running) {
		if r.generated == 0 {
			p.Pending = append(p.Pending, r.Arrived)
		}
	}
	return p
}

func (s *stepServer) Requests() int { return len(s.running) + len(s.waiting) }

func (s *linearServer) Requests() int { return len(s.running) + len(s.waiting) }

// QuantileOf returns a percentile, or the mean for 0. Without values it is 0.
func QuantileOf(values []float64, percentile float64) float64 {
	if len(values) == 0 {
		return 0
	}
	if percentile == 0 {
		sum := 0.0
		for _, v := range values {
			sum += v
		}
		return sum / float64(len(values))
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(float64(len(sorted))*percentile/100), len(sorted)-1)]
}
