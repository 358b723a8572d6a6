// Package simulation runs fleets of model servers in virtual time, with the endpoint picker in front of them, so that
// tests can say how well it chooses and people can see at once what a change of it is worth.
//
// A Scenario is a fleet and the traffic that comes to it. Its Trace is the requests of one seed. A Trace is run under a
// Policy, which is the picker in one or several replicas, or one of those to compare it with; the Result is how long
// requests took.
//
//	arrivals ----> gateway ----> policy: which server?
//	                  |    <----   the picker hears what a gateway sees of the answer, and scrapes
//	                  +--------> server: batches, and a cache of blocks
//
// The picker is the real one from the body of a request to the choice; what is played to it are the gateway's stream, the
// metrics pages and the list of endpoints. Servers are state machines. Nothing waits, so that half a minute of a
// fleet takes a fraction of a second, and the same seed gives the same figures.
//
// What it leaves out: the picker's own time, requests that are picked at the same time, and all that is not text.
//
// Servers follow a law of package steptime. With Linear, and a token for each four bytes, the picker's model is exact but for
// its numbers. Realistic and Overlapping have other laws and habits, which no parameter of the picker's model can express.
package simulation

import (
	"math/rand/v2"
	"time"
)

// A Scenario is a fleet of model servers and what happens to it.
type Scenario struct {
	Name     string
	Servers  []Engine
	Workload Workload
	Warm     time.Duration // before anything is measured
	Measured time.Duration
	Churn    bool // a server dies after a third of the time, and another comes after half
}

// A Trace is the requests of one run of a scenario. It is never changed, so that several policies can run at a time.
type Trace struct {
	scenario Scenario
	seed     uint64
	arrivals []*arrival
	contents int // different blocks of all of them
}

// Trace makes the requests of a seed.
func (s Scenario) Trace(seed uint64) *Trace {
	arrivals, contents := s.Workload.generate(seed, s.Warm, s.Measured)
	return &Trace{scenario: s, seed: seed, arrivals: arrivals, contents: contents}
}

// Run runs the requests under a policy, from the first to the end of the last.
func (t *Trace) Run(p Policy) Result {
	f := &fleet{timeline: &timeline{}, seed: t.seed, contents: t.contents}
	f.chooser = p.start(f)
	for _, e := range t.scenario.Servers {
		f.add(e)
	}
	if t.scenario.Churn {
		f.churn(t.scenario.Warm, t.scenario.Measured)
	}
	result := &Result{}
	g := &gateway{timeline: f.timeline, chooser: f.chooser, result: result, open: len(t.arrivals)}
	for _, a := range t.arrivals {
		f.timeline.at(a.at, func() { g.try(a) })
	}
	f.timeline.runWhile(func() bool { return g.open > 0 })
	return *result
}

// fleet is the servers of one run.
type fleet struct {
	timeline *timeline
	chooser  chooser
	seed     uint64
	contents int
	servers  []*server // by number, the dead too
}

func (f *fleet) add(e Engine) {
	noise := rand.New(rand.NewPCG(f.seed, uint64(100+len(f.servers))))
	s := &server{batch: batch{Engine: e, noise: noise}, timeline: f.timeline, cache: newBlockCache(e.Blocks, f.contents), number: len(f.servers)}
	f.servers = append(f.servers, s)
	f.chooser.join(s)
}

// churn has a server die, which is noticed by those who list servers a little later, and one more come.
func (f *fleet) churn(warm, measured time.Duration) {
	const listed = 2 * time.Second
	dying := f.servers[f.seed%uint64(len(f.servers))]
	dies := warm + measured/3
	f.timeline.at(dies, dying.kill)
	f.timeline.at(dies+listed, func() { f.chooser.leave(dying) })
	f.timeline.at(warm+measured/2, func() { f.add(dying.Engine) })
}
