// Package simulation runs fleets of model servers in virtual time behind the endpoint picker, so that tests can measure the
// quality of its picks and developers can see the effect of a change.
//
// A Scenario is a fleet and its traffic. Its Trace contains the requests for one seed. A Trace runs with a Policy: the
// picker in one or several replicas, or another policy for comparison. The Result contains the durations of the requests.
//
//	arrivals ----> gateway ----> policy: which server?
//	                  |    <----   the picker hears what a gateway sees of the answer, and scrapes
//	                  +--------> server: batches, and a cache of blocks
//
// The picker is the real one, from the body of a request to the choice, and so is the schedule of its scrapes. The gateway's
// stream, the metrics pages and the list of endpoints are simulated. Servers are state machines. Nothing waits, so half a
// minute of a fleet takes a fraction of a second, and the same seed gives the same result.
//
// The simulation omits the picker's own time, concurrent picks, and everything except text.
//
// Servers follow a law of package steptime. With Linear, and a token for each four bytes, the picker's model is exact except
// for its coefficients. Realistic and Overlapping follow other laws, which no parameters of the picker's model can express.
package simulation

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// A Scenario is a fleet of model servers and its events.
type Scenario struct {
	Name     string
	Servers  []Engine
	Workload Workload
	Warm     time.Duration // time before measurements
	Measured time.Duration
	Restart  time.Duration // when the first server dies, to start again five seconds later; 0 for never
	Churn    bool          // a server dies after a third of the time, and a new one starts after half
}

// A Trace contains the requests for one run of a scenario. It is never changed, so several policies can use it concurrently.
type Trace struct {
	scenario Scenario
	seed     uint64
	arrivals []*arrival
	contents int // number of different blocks

	TooLong int // requests that were left out, because no server has the memory for them
}

// Trace creates the requests for a seed.
func (s Scenario) Trace(seed uint64) *Trace {
	arrivals, contents := s.Workload.generateArrivals(seed, s.Servers[0].BlockTokens, s.Warm, s.Measured)
	all := len(arrivals)
	arrivals = slices.DeleteFunc(arrivals, func(a *arrival) bool { return a.blockCount() > s.Servers[0].Blocks })
	return &Trace{scenario: s, seed: seed, arrivals: arrivals, contents: contents, TooLong: all - len(arrivals)}
}

// Requests returns the number of requests.
func (t *Trace) Requests() int { return len(t.arrivals) }

// Memory returns the bytes that a run needs for the caches of the servers.
func (t *Trace) Memory() int64 {
	const place, block = 4, 16 // bytes
	sum := int64(0)
	for i := range t.scenario.Servers {
		sum += place*int64(t.contents) + block*int64(t.scenario.Servers[i].Blocks)
	}
	return sum
}

// Run runs the requests with a policy, from the first to the end of the last.
func (t *Trace) Run(p Policy) Result { return t.runWhile(p, func(*Result) bool { return true }) }

// RunContext is Run, but ends with ctx. The result is then incomplete.
func (t *Trace) RunContext(ctx context.Context, p Policy) Result {
	return t.runWhile(p, func(*Result) bool { return ctx.Err() == nil })
}

// runWhile runs the requests while should returns true.
func (t *Trace) runWhile(p Policy, should func(*Result) bool) Result {
	f := &fleet{timeline: &timeline{}, seed: t.seed, contents: t.contents}
	f.chooser = p.start(f)
	for _, e := range t.scenario.Servers {
		f.addEngine(e)
	}
	if t.scenario.Churn {
		f.replaceServers(t.scenario.Warm, t.scenario.Measured)
	}
	if s, dies := f.servers[0], t.scenario.Restart; dies > 0 {
		f.timeline.scheduleAt(dies, s.kill)
		f.timeline.scheduleAt(dies+5*time.Second, s.revive)
	}
	result := &Result{served: make([]int, len(t.scenario.Servers))}
	g := &gateway{timeline: f.timeline, chooser: f.chooser, result: result, open: len(t.arrivals)}
	for _, a := range t.arrivals {
		f.timeline.scheduleAt(a.at, func() { g.tryServer(a) })
	}
	f.timeline.runWhile(func() bool { return g.open > 0 && should(result) })
	return *result
}

// fleet contains the servers of one run.
type fleet struct {
	timeline    *timeline
	chooser     chooser
	seed        uint64
	contents    int
	servers     []*server // including dead ones
	serverCount int       // number of servers so far
}

func (f *fleet) addEngine(e Engine) {
	noise := rand.New(rand.NewPCG(f.seed, uint64(100+f.serverCount)))
	s := &server{batch: batch{Engine: e, noise: noise}, timeline: f.timeline, cache: newBlockCache(e.Blocks, f.contents),
		number: f.serverCount}
	f.serverCount++
	f.servers = append(f.servers, s)
	if e.Refresh.Interval > 0 {
		s.refreshPage()
	}
	f.chooser.addServer(s)
}

// replaceServers makes a server die, which the list of servers shows a little later, and adds another.
func (f *fleet) replaceServers(warm, measured time.Duration) {
	const listed = 2 * time.Second
	dying := f.servers[f.seed%uint64(len(f.servers))]
	dies := warm + measured/3
	f.timeline.scheduleAt(dies, dying.kill)
	f.timeline.scheduleAt(dies+listed, func() { f.chooser.removeServer(dying) })
	f.timeline.scheduleAt(warm+measured/2, func() { f.addEngine(dying.Engine) })
}
