package learn

import (
	"math"
	"math/rand/v2"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/test/modelserver"
)

// A world is a number of replicas under Poisson arrivals, in simulated time, and a Prometheus that scrapes them. Times are in seconds.
type world struct {
	name    string
	server  func(r *rand.Rand) modelserver.Server // a new replica
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

func (s sizes) draw(r *rand.Rand, now float64) *modelserver.Request {
	vary := func(mean float64) int {
		deviation := math.Sqrt(math.Log(1 + s.spread*s.spread))
		return max(int(math.Round(mean*math.Exp(deviation*r.NormFloat64()-deviation*deviation/2))), 1)
	}
	input := vary(s.input)
	return &modelserver.Request{Input: input, Output: vary(s.output), Cached: min(int(float64(input)*s.cached), input-1), Arrived: now}
}

const (
	scrapeEvery   = 15.0
	windowScrapes = 4
)

// fleet is a world that runs.
type fleet struct {
	world
	random  *rand.Rand
	servers []modelserver.Server
	now     float64
	arrival float64
	scrapes [][]modelserver.Page // newest last
	distort func(s *snapshot.Sample)
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
		s.Advance(f.now)
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

func (f *fleet) dispatch(r *modelserver.Request) {
	best, fewest := 0, math.Inf(1)
	offset := f.random.IntN(len(f.servers))
	for k := range f.servers {
		i := (k + offset) % len(f.servers)
		f.servers[i].Advance(f.now)
		if n := float64(f.servers[i].Requests()); n < fewest {
			best, fewest = i, n
		}
	}
	f.servers[best].Submit(f.now, r)
}

func (f *fleet) scrape(at float64) {
	f.counted++
	pages := make([]modelserver.Page, len(f.servers))
	for i, s := range f.servers {
		s.Advance(at)
		pages[i] = s.Read()
		pages[i].Firsts, pages[i].Pending = nil, nil
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
func (f *fleet) sample() *snapshot.Sample {
	s := &snapshot.Sample{
		Time: time.Unix(1_800_000_000, 0).Add(time.Duration(f.now * float64(time.Second))), Window: windowScrapes * scrapeEvery * time.Second,
		Replicas: len(f.servers), KVTokens: f.cache,
	}
	if len(f.scrapes) < 2 {
		return s
	}
	var d, gauges modelserver.Page
	first, last := f.scrapes[0], f.scrapes[len(f.scrapes)-1]
	for i := range last {
		a, b := &first[i], &last[i]
		d.Finished += b.Finished - a.Finished
		d.Input += b.Input - a.Input
		d.Cached += b.Cached - a.Cached
		d.Output += b.Output - a.Output
		d.TTFTSum += b.TTFTSum - a.TTFTSum
		d.TTFTCount += b.TTFTCount - a.TTFTCount
		d.ITLSum += b.ITLSum - a.ITLSum
		d.ITLCount += b.ITLCount - a.ITLCount
		d.Prefill += b.Prefill - a.Prefill
	}
	for _, pages := range f.scrapes {
		for i := range pages {
			gauges.Running += pages[i].Running
			gauges.Waiting += pages[i].Waiting
			gauges.Usage += pages[i].Usage
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
	s.Rate = d.Finished / seconds / float64(len(last))
	s.Input, s.Output, s.Cached = ratio(d.Input, d.Finished), ratio(d.Output, d.Finished), ratio(d.Cached, d.Input)
	s.Running, s.Waiting, s.KVUsage = gauges.Running/readings, gauges.Waiting/readings, gauges.Usage/readings
	s.Prefill, s.TTFT, s.ITL = 1e3*ratio(d.Prefill, d.Finished), 1e3*ratio(d.TTFTSum, d.TTFTCount), 1e3*ratio(d.ITLSum, d.ITLCount)
	if f.distort != nil {
		f.distort(s)
	}
	return s
}
