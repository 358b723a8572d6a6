package learn

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"fairlead.dev/pkg/steptime"
	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/sample"
)

// A world is a number of replicas under Poisson arrivals, in simulated time, and a Prometheus that scrapes them. Times are in seconds.
type world struct {
	name    string
	server  func(r *rand.Rand) server // a new replica
	sizes   sizes
	targets queueing.Targets
	cache   float64 // tokens
	truth   float64 // largest rate of one replica that meets the targets, in requests per second
	slots   bool    // limit it
}

// sizes are the means of log-normal distributions.
type sizes struct {
	input, output, spread float64 // spread: standard deviation as a part of the mean
	cached                float64
}

// request is one request in a server.
type request struct {
	input, output, cached int
	arrived               float64
	started, first        float64
	begun                 bool
	computed, made        int
	work                  float64 // linear servers: what is left of the phase, as a part of it
}

// server is one replica.
type server interface {
	submit(now float64, r *request)
	advance(to float64)
	read() page
}

// page is what a server shows when it is scraped: gauges and counters.
type page struct {
	running, waiting, usage                       float64
	finished, input, cached, output               float64
	ttftSum, ttftCount, itlSum, itlCount, prefill float64
	firsts                                        []float64 // every TTFT, for the judge
	pending                                       []float64 // arrivals of requests without a first token
}

func (s sizes) draw(r *rand.Rand, now float64) *request {
	vary := func(mean float64) int {
		deviation := math.Sqrt(math.Log(1 + s.spread*s.spread))
		return max(int(math.Round(mean*math.Exp(deviation*r.NormFloat64()-deviation*deviation/2))), 1)
	}
	input := vary(s.input)
	return &request{input: input, output: vary(s.output), cached: min(int(float64(input)*s.cached), input-1), arrived: now}
}

// stepServer computes step by step, like vLLM: chunked prefill, admission by KV cache, preemption of the newest request.
type stepServer struct {
	law              steptime.Law
	noise            *rand.Rand
	slots, budget    int
	blocks           int // KV cache, in tokens
	slow             float64
	waiting, running []*request
	end              float64 // of the current step
	busy             bool
	used             int
	shown            page
	chunks           []int // of the current step, beside running
}

func stepReplica(law steptime.Law, slots int, cache float64, slow float64) func(r *rand.Rand) server {
	return func(r *rand.Rand) server {
		return &stepServer{law: law, noise: r, slots: slots, budget: 8192, blocks: int(cache), slow: slow}
	}
}

func (s *stepServer) submit(now float64, r *request) {
	s.advance(now)
	s.waiting = append(s.waiting, r)
	if !s.busy {
		s.begin(now)
	}
}

func (s *stepServer) advance(to float64) {
	for s.busy && s.end <= to {
		s.finish()
		s.begin(s.end)
	}
}

// known returns the tokens of a request that must be in the cache before its next one.
func (r *request) known() int { return r.input + r.made }

func (s *stepServer) begin(now float64) {
	budget := s.budget
	var step steptime.Step
	s.chunks = s.chunks[:0]
	for i := 0; i < len(s.running); i++ {
		r := s.running[i]
		n := min(r.known()-r.computed, budget)
		for s.used+n > s.blocks && len(s.running) > i+1 {
			s.preempt()
		}
		s.schedule(r, n, &step)
		budget -= n
	}
	for len(s.waiting) > 0 && len(s.running) < s.slots && budget > 0 {
		r := s.waiting[0]
		if !r.begun {
			r.begun, r.started, r.computed = true, now, r.cached
		}
		if s.used+r.known() > s.blocks && len(s.running) > 0 {
			break
		}
		s.waiting = s.waiting[1:]
		s.used += r.computed
		s.running = append(s.running, r)
		n := min(r.known()-r.computed, budget)
		s.schedule(r, n, &step)
		budget -= n
	}
	s.busy = len(s.running) > 0
	if s.busy {
		s.end = now + s.law.Time(step).Seconds()*s.law.Vary(s.noise)*s.slow
	}
}

func (s *stepServer) preempt() {
	last := s.running[len(s.running)-1]
	s.running = s.running[:len(s.running)-1]
	s.used -= last.computed
	last.computed = 0
	s.waiting = slices.Insert(s.waiting, 0, last)
}

func (s *stepServer) schedule(r *request, n int, step *steptime.Step) {
	if r.made > 0 && n == 1 {
		step.Decode(r.known())
	} else if n > 0 {
		step.Prefill(r.computed, n)
	}
	s.chunks = append(s.chunks, n)
}

func (s *stepServer) finish() {
	kept := s.running[:0]
	for i, r := range s.running {
		n := s.chunks[i]
		r.computed += n
		s.used += n
		if n > 0 && r.computed == r.known() {
			r.made++
			s.shown.token(r, s.end)
		}
		if r.made < r.output {
			kept = append(kept, r)
			continue
		}
		s.used -= r.computed
		s.shown.ended(r)
	}
	s.running = kept
}

// token counts a token; arrived becomes the time of the last one.
func (p *page) token(r *request, now float64) {
	if r.made == 1 {
		p.ttftSum += now - r.arrived
		p.ttftCount++
		p.firsts = append(p.firsts, now-r.arrived)
		r.first = now
		r.arrived = now
		return
	}
	p.itlSum += now - r.arrived
	p.itlCount++
	r.arrived = now
}

func (p *page) ended(r *request) {
	p.finished++
	p.input += float64(r.input)
	p.cached += float64(r.cached)
	p.output += float64(r.output)
	p.prefill += r.first - r.started
}

func (s *stepServer) read() page {
	p := s.shown
	p.running, p.waiting = float64(len(s.running)), float64(len(s.waiting))
	p.usage = float64(s.used) / float64(s.blocks)
	for _, r := range slices.Concat(s.waiting, s.running) {
		if r.made == 0 {
			p.pending = append(p.pending, r.arrived)
		}
	}
	return p
}

// linearServer is the law of package queueing: all requests of the batch share the server, in prefill as in decode.
type linearServer struct {
	profile          queueing.Profile
	waiting, running []*request
	now              float64
	shown            page
}

func linearReplica(p queueing.Profile) func(r *rand.Rand) server {
	return func(*rand.Rand) server { return &linearServer{profile: p} }
}

func (s *linearServer) submit(now float64, r *request) {
	s.advance(now)
	s.waiting = append(s.waiting, r)
	s.admit()
}

func (s *linearServer) admit() {
	for len(s.waiting) > 0 && len(s.running) < s.profile.MaxBatch {
		r := s.waiting[0]
		s.waiting = s.waiting[1:]
		r.started, r.work = s.now, 1
		s.running = append(s.running, r)
	}
}

// phase returns the time that all of the current phase of a request takes, in seconds, in a batch of n: its prefill, or its decode.
func (s *linearServer) phase(r *request, n float64) float64 {
	p := &s.profile
	if r.made == 0 {
		return (p.Gamma + p.Delta*float64(r.input-r.cached)*n) / 1e3
	}
	return (p.Alpha + p.Beta*n) * float64(r.output-1) / 1e3
}

func (s *linearServer) advance(to float64) {
	for len(s.running) > 0 {
		n := float64(len(s.running))
		next := math.Inf(1)
		for _, r := range s.running {
			next = min(next, r.work*s.phase(r, n))
		}
		until := min(s.now+next, to)
		for _, r := range s.running {
			took := s.phase(r, n)
			if r.work*took <= next*(1+1e-9) && until < to || took == 0 {
				r.work = 0 // exactly, in spite of rounding
			} else {
				r.work = max(r.work-(until-s.now)/took, 0)
			}
			if r.made > 0 {
				s.shown.itlCount += (until - s.now) / ((s.profile.Alpha + s.profile.Beta*n) / 1e3)
				s.shown.itlSum += until - s.now
			}
		}
		s.now = until
		if s.finish(); until >= to {
			break
		}
	}
	s.now = max(s.now, to)
}

func (s *linearServer) finish() {
	kept := s.running[:0]
	for _, r := range s.running {
		if r.work > 0 {
			kept = append(kept, r)
			continue
		}
		if r.made == 0 {
			r.made, r.work = 1, 1
			s.shown.token(r, s.now)
			if r.output > 1 {
				kept = append(kept, r)
				continue
			}
		}
		s.shown.ended(r)
	}
	s.running = kept
	s.admit()
}

func (s *linearServer) read() page {
	p := s.shown
	p.running, p.waiting = float64(len(s.running)), float64(len(s.waiting))
	for _, r := range slices.Concat(s.waiting, s.running) {
		if r.made == 0 {
			p.pending = append(p.pending, r.arrived)
		}
	}
	return p
}

const (
	scrapeEvery   = 15.0
	windowScrapes = 4
)

// fleet is a world that runs.
type fleet struct {
	world
	random  *rand.Rand
	servers []server
	now     float64
	arrival float64
	scrapes [][]page // newest last
	distort func(s *sample.Sample)
	gap     func(scrape int) bool // scrapes that are lost
	counted int
}

func newFleet(w world, replicas int, seed uint64) *fleet {
	f := &fleet{world: w, random: rand.New(rand.NewPCG(seed, 1))}
	f.scale(replicas)
	return f
}

// scale changes the number of replicas. Those that go are gone at once, with their requests.
func (f *fleet) scale(replicas int) {
	for len(f.servers) < replicas {
		s := f.server(rand.New(rand.NewPCG(f.random.Uint64(), 2)))
		s.advance(f.now)
		f.servers = append(f.servers, s)
		f.scrapes = nil
	}
	if replicas < len(f.servers) {
		f.servers, f.scrapes = f.servers[:replicas], nil
	}
}

// run lets requests arrive for a time, at a rate for all replicas, each at the replica with the fewest requests, as a picker would.
func (f *fleet) run(seconds float64, rate func(now float64) float64, most float64) {
	end := f.now + seconds
	nextScrape := math.Floor(f.now/scrapeEvery)*scrapeEvery + scrapeEvery
	if f.arrival <= f.now {
		f.arrival = f.now + f.random.ExpFloat64()/most
	}
	for min(f.arrival, nextScrape) <= end {
		if nextScrape <= f.arrival {
			f.scrape(nextScrape)
			nextScrape += scrapeEvery
			continue
		}
		f.now = f.arrival
		if f.random.Float64()*most < rate(f.now) {
			f.dispatch(f.sizes.draw(f.random, f.now))
		}
		f.arrival = f.now + f.random.ExpFloat64()/most
	}
	f.now = end
}

func (f *fleet) dispatch(r *request) {
	best, fewest := 0, math.Inf(1)
	offset := f.random.IntN(len(f.servers))
	for k := range f.servers {
		i := (k + offset) % len(f.servers)
		f.servers[i].advance(f.now)
		if n := load(f.servers[i]); n < fewest {
			best, fewest = i, n
		}
	}
	f.servers[best].submit(f.now, r)
}

func load(s server) float64 {
	switch s := s.(type) {
	case *stepServer:
		return float64(len(s.running) + len(s.waiting))
	case *linearServer:
		return float64(len(s.running) + len(s.waiting))
	}
	return 0
}

func (f *fleet) scrape(at float64) {
	f.counted++
	pages := make([]page, len(f.servers))
	for i, s := range f.servers {
		s.advance(at)
		pages[i] = s.read()
		pages[i].firsts, pages[i].pending = nil, nil
	}
	if f.gap != nil && f.gap(f.counted) {
		return
	}
	f.scrapes = append(f.scrapes, pages)
	if len(f.scrapes) > windowScrapes+1 {
		f.scrapes = f.scrapes[1:]
	}
}

// sample returns what a collector reads: rates over the window, means over the replicas.
func (f *fleet) sample() *sample.Sample {
	s := &sample.Sample{
		Time: time.Unix(1_800_000_000, 0).Add(time.Duration(f.now * float64(time.Second))), Window: windowScrapes * scrapeEvery * time.Second,
		Replicas: len(f.servers), KVTokens: f.cache,
	}
	if len(f.scrapes) < 2 {
		return s
	}
	var d, gauges page
	first, last := f.scrapes[0], f.scrapes[len(f.scrapes)-1]
	for i := range last {
		a, b := &first[i], &last[i]
		d.finished += b.finished - a.finished
		d.input += b.input - a.input
		d.cached += b.cached - a.cached
		d.output += b.output - a.output
		d.ttftSum += b.ttftSum - a.ttftSum
		d.ttftCount += b.ttftCount - a.ttftCount
		d.itlSum += b.itlSum - a.itlSum
		d.itlCount += b.itlCount - a.itlCount
		d.prefill += b.prefill - a.prefill
	}
	for _, pages := range f.scrapes {
		for i := range pages {
			gauges.running += pages[i].running
			gauges.waiting += pages[i].waiting
			gauges.usage += pages[i].usage
		}
	}
	readings := float64(len(f.scrapes) * len(last))
	seconds := float64(len(f.scrapes)-1) * scrapeEvery
	ratio := func(a, b float64) float64 {
		if b == 0 {
			return 0
		}
		return a / b
	}
	s.Rate = d.finished / seconds / float64(len(last))
	s.Input, s.Output, s.Cached = ratio(d.input, d.finished), ratio(d.output, d.finished), ratio(d.cached, d.input)
	s.Running, s.Waiting, s.KVUsage = gauges.running/readings, gauges.waiting/readings, gauges.usage/readings
	s.Prefill, s.TTFT, s.ITL = 1e3*ratio(d.prefill, d.finished), 1e3*ratio(d.ttftSum, d.ttftCount), 1e3*ratio(d.itlSum, d.itlCount)
	if f.distort != nil {
		f.distort(s)
	}
	return s
}

// meets reports whether replicas meet the targets at a rate per replica, in a long run.
func (w world) meets(rate float64, replicas int, seed uint64) bool {
	const warm, seconds = 600, 2000
	f := newFleet(w, replicas, seed)
	all := rate * float64(replicas)
	constant := func(float64) float64 { return all }
	f.run(warm, constant, all)
	before := make([]page, replicas)
	for i, s := range f.servers {
		s.advance(f.now)
		before[i] = s.read()
	}
	f.run(seconds, constant, all)
	var firsts []float64
	itl, tokens := 0.0, 0.0
	for i, s := range f.servers {
		s.advance(f.now)
		p := s.read()
		firsts = append(firsts, p.firsts[len(before[i].firsts):]...)
		for _, arrived := range p.pending {
			firsts = append(firsts, max(f.now-arrived, 0))
		}
		itl += p.itlSum - before[i].itlSum
		tokens += p.itlCount - before[i].itlCount
	}
	if w.targets.ITL > 0 && 1e3*itl/tokens > w.targets.ITL {
		return false
	}
	return w.targets.TTFT == 0 || 1e3*quantile(firsts, w.targets.Percentile) <= w.targets.TTFT
}

// quantile returns a percentile, or the mean for 0.
func quantile(values []float64, percentile float64) float64 {
	if percentile == 0 {
		sum := 0.0
		for _, v := range values {
			sum += v
		}
		return sum / float64(len(values))
	}
	slices.Sort(values)
	return values[min(int(float64(len(values))*percentile/100), len(values)-1)]
}

// capacity searches for the largest rate per replica that meets the targets, with the mean of some seeds.
func (w world) capacity(replicas int) float64 {
	const seeds = 2
	sum := 0.0
	for seed := range uint64(seeds) {
		low, high := 0.0, 0.05
		for w.meets(high, replicas, seed+100) {
			low, high = high, high*2
		}
		for high-low > 0.02*high {
			if middle := (low + high) / 2; w.meets(middle, replicas, seed+100) {
				low = middle
			} else {
				high = middle
			}
		}
		sum += low
	}
	return sum / seeds
}
