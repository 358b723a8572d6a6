// Package endpoint holds the state of one model server: its identity and its load.
//
// Load comes from two sources. A Sample is the content of the server's metrics page at one moment: it covers all traffic,
// but is old. Leases are the requests that this picker has placed: they are current, but not all traffic. Load combines
// both:
//
//	requests = waiting + running of the last sample
//	         + leases acquired since that sample began
//	         - leases released since that sample began
//	         and never less than the leases that are open
//
// A lease whose stream ended before the response did (the gateway closes early, or never shows the response) is abandoned:
// its request continues unobserved. The lease counts until a sample that began after its acquisition, because that sample
// contains the request, or until a time limit if no sample comes.
//
//	            Acquire                  Release
//	(nothing) ----------->  open  ---------------------->  (nothing)   counts as released
//	                          |
//	                          | Abandon           newer sample
//	                          +-------> abandoned ------->  (nothing)   the sample has it
//	                                        |  time limit
//	                                        +----------->  (nothing)   counts as released
//
// A sample is valid until the next: an endpoint without activity is scraped rarely, and its last sample stays correct. Only
// failing scrapes make an endpoint doubtful, so its age counts from the first failure since the last sample (Load.Failing).
//
// All methods may be called from any goroutine; those of the pick path take no lock.
package endpoint

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// An Identity names one port of one pod during the life of the pod: a new pod with the same name or address is another
// endpoint.
type Identity struct {
	Namespace, Pod string
	UID            string // of the pod
	Address        netip.AddrPort
}

// A Description is the identity of an endpoint and its properties, which may change during its life.
type Description struct {
	Identity

	Rank   int               // index of its port among the ports of its pod, from 0
	Labels map[string]string // of its pod; read-only
}

// said is a description and values derived from it.
type said struct {
	Description

	server scheduling.Server
	hash   uint64 // of the name and port
}

// An Endpoint is one model server.
type Endpoint struct {
	identity Identity
	said     atomic.Pointer[said]
	address  string
	since    time.Time

	health   Health
	server   *predict.Server
	prefixes *prefix.Index              // nil if prefixes are not tracked
	cache    int                        // its number in the index
	traffic  *Traffic                   // nil if not needed
	size     *atomic.Pointer[CacheSize] // of the factory

	acquired atomic.Int64 // leases since the start
	released atomic.Int64 // leases since the start
	open     atomic.Int64 // open leases, including abandoned ones
	failures atomic.Int64 // failed scrapes since the start
	refusals atomic.Int64 // consecutive scrapes without a connection
	failing  atomic.Pointer[time.Time]
	sample   atomic.Pointer[sample]

	mu         sync.Mutex
	abandoned  []abandoned
	pageBlocks int // size of the cache on the last page that told it
	blocks     int // size of the cache in the index
}

// Gauges are the values of one metrics page.
type Gauges struct {
	Waiting float64          // requests in the queue
	Running float64          // requests in the batch
	KVUsage float64          // share of the KV cache in use, 0 to 1
	Blocks  int              // size of the KV cache in blocks of prefix.BlockTokens; 0 if unknown
	Page    *scheduling.Page // other requested values, nil if none
}

// A Mark is the start of a scrape.
type Mark struct {
	at                       time.Time
	acquired, released, open int64
}

// sample is the result of a scrape, and its start.
type sample struct {
	Gauges
	Mark

	taken bool    // false for the initial value
	rate  float64 // finished requests per second of all clients, as a moving average; 0 before the first one
}

// others returns the number of requests on the page that other clients placed.
func (s *sample) others() float64 {
	return max(s.Waiting+s.Running-float64(s.acquired-s.released), 0)
}

// abandoned is a lease whose request continues unobserved.
type abandoned struct {
	acquired int64 // its place in the order of acquisition
	at       time.Time
}

// New returns an endpoint without load, discovered at the given time. Its prefixes are not tracked.
func New(d Description, since time.Time, server *predict.Server) *Endpoint {
	e := &Endpoint{identity: d.Identity, address: d.Address.String(), since: since, server: server, cache: -1}
	e.Describe(d)
	e.sample.Store(&sample{Mark: Mark{at: since}})
	return e
}

// Identity returns the identity of the endpoint.
func (e *Endpoint) Identity() Identity { return e.identity }

// Describe sets a newer description of the endpoint.
func (e *Endpoint) Describe(d Description) {
	server := scheduling.Server{Name: d.Namespace + "/" + d.Pod, Address: d.Address, Labels: d.Labels}
	e.said.Store(&said{Description: d, server: server, hash: server.Hash()})
}

// Description returns the last description of the endpoint. It must not be changed.
func (e *Endpoint) Description() *Description { return &e.said.Load().Description }

// Server returns the description in the form that schedulers need. It must not be changed.
func (e *Endpoint) Server() *scheduling.Server { return &e.said.Load().server }

// Health returns the health of the endpoint.
func (e *Endpoint) Health() *Health { return &e.health }

// Hash returns a hash of the endpoint's name and port. It is the same in all pickers.
func (e *Endpoint) Hash() uint64 { return e.said.Load().hash }

// Address returns "ip:port", an IPv6 address in brackets.
func (e *Endpoint) Address() string { return e.address }

// Acquire counts one request that is about to be sent to the endpoint.
func (e *Endpoint) Acquire() *Lease {
	e.open.Add(1)
	return &Lease{endpoint: e, acquired: e.acquired.Add(1), probe: e.health.Placed()}
}

// Place is Acquire for a request whose answer will be observed from its beginning.
func (e *Endpoint) Place(now time.Time, p predict.Prompt) *Lease {
	l := e.Acquire()
	l.request = e.server.Begin(now, p, e.sample.Load().others())
	return l
}

// PlaceUnseen is Acquire for a request whose answer comes in one piece.
func (e *Endpoint) PlaceUnseen(now time.Time, p predict.Prompt) *Lease {
	l := e.Acquire()
	l.request = e.server.BeginUnseen(now, p)
	return l
}

// Wait estimates the time to first token of a request placed now, in seconds. Requests in the last sample beyond our own are
// the work of others. If there was a queue, it contains the requests that came later.
func (e *Endpoint) Wait(now time.Time, speed *predict.Speed, p predict.Prompt) float64 {
	s := e.sample.Load()
	since := float64((e.acquired.Load() - s.acquired) - (e.released.Load() - s.released))
	page := predict.Page{
		Others: s.others(), All: max(s.Waiting+s.Running+since, 0), Running: s.Running, KVUsage: s.KVUsage, Rate: s.rate,
	}
	if s.Waiting > 0 {
		page.Waiting = max(s.Waiting+since, 0)
	}
	return e.server.Wait(now, speed, p, page)
}

// Cache returns the number of the endpoint's cache in the index of prefixes, -1 if there is none.
func (e *Endpoint) Cache() int { return e.cache }

// Factor returns the slowdown of the endpoint relative to its pool.
func (e *Endpoint) Factor() float64 { return e.server.Factor() }

// BeginScrape returns the mark for Record. Call it before requesting the page.
func (e *Endpoint) BeginScrape(now time.Time) Mark {
	return Mark{at: now, acquired: e.acquired.Load(), released: e.released.Load(), open: e.open.Load()}
}

// Record stores the result of the scrape that began at the mark.
func (e *Endpoint) Record(m Mark, g Gauges) {
	e.resize(g.Blocks)
	e.server.See(g.Running, g.Waiting)
	e.mu.Lock()
	defer e.mu.Unlock()
	next := &sample{Gauges: g, Mark: m, taken: true, rate: e.rate(m, g)}
	if found := next.others() - e.sample.Load().others(); found > 0 {
		e.fill(e.server.Found(m.at, found))
	}
	e.sample.Store(next)
	if e.traffic != nil {
		total := g.Waiting + g.Running
		e.traffic.see(max(total-float64(m.acquired-m.released), 0), total)
	}
	e.refusals.Store(0)
	if e.failing.Load() != nil {
		e.failing.Store(nil)
	}
	kept := e.abandoned[:0]
	for _, a := range e.abandoned {
		if a.acquired <= m.acquired {
			e.open.Add(-1)
		} else {
			kept = append(kept, a)
		}
	}
	e.abandoned = kept
}

// rate estimates the finished requests per second of all clients: our own, scaled by the share of others on the page.
func (e *Endpoint) rate(m Mark, g Gauges) float64 {
	last := e.sample.Load()
	seconds, ended := m.at.Sub(last.at).Seconds(), float64(m.released-last.released)
	if seconds <= 0 || last.Running == 0 {
		return last.rate // it was idle, which does not show its speed
	}
	if ours := float64(m.acquired - m.released); ours > 0 {
		ended *= max((g.Waiting+g.Running)/ours, 1)
	}
	const memory = 5 // seconds
	weight := min(seconds/memory, 1)
	if last.rate == 0 {
		weight = 1
	}
	return last.rate + weight*(ended/seconds-last.rate)
}

// fill tells the index that the cache received tokens with unknown content, which evict older blocks.
func (e *Endpoint) fill(tokens float64) {
	if e.prefixes != nil {
		e.prefixes.Fill(e.cache, int(tokens/prefix.BlockTokens))
	}
}

// RecordFailure counts a failure of the scrape that began at the mark.
func (e *Endpoint) RecordFailure(m Mark) {
	e.refusals.Store(0)
	e.fail(m)
}

// RecordRefusal is RecordFailure for a refused connection.
func (e *Endpoint) RecordRefusal(m Mark) {
	e.refusals.Add(1)
	e.fail(m)
}

func (e *Endpoint) fail(m Mark) {
	e.failures.Add(1)
	if e.failing.Load() == nil {
		e.failing.Store(&m.at)
	}
}

// Refusals returns the number of consecutive refused scrapes, including the last one.
func (e *Endpoint) Refusals() int64 { return e.refusals.Load() }

// Movements returns the number of leases that began or ended, since the start. While it is constant, this picker does not
// change the load of the endpoint.
func (e *Endpoint) Movements() int64 { return e.acquired.Load() + e.released.Load() }

// Foresee predicts a page requested at the mark, if only our own leases began and ended since the last sample: its number of
// requests, and the gauges of that sample. It returns false without a sample.
func (e *Endpoint) Foresee(m Mark) (requests float64, last Gauges, ok bool) {
	s := e.sample.Load()
	since := (m.acquired - s.acquired) - (m.released - s.released)
	return max(s.Waiting+s.Running+float64(since), float64(m.open), 0), s.Gauges, s.taken
}

// ExpireAbandoned releases leases that were abandoned before the given time and that no sample has replaced.
func (e *Endpoint) ExpireAbandoned(before time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := e.abandoned[:0]
	for _, a := range e.abandoned {
		if a.at.Before(before) {
			e.finish()
		} else {
			kept = append(kept, a)
		}
	}
	e.abandoned = kept
}

// Load returns the current load of the endpoint.
func (e *Endpoint) Load() scheduling.Load {
	s, open := e.sample.Load(), e.open.Load()
	since := (e.acquired.Load() - s.acquired) - (e.released.Load() - s.released)
	return scheduling.Load{
		Requests: max(s.Waiting+s.Running+float64(since), float64(open), 0),
		Open:     float64(open),
		Tokens:   e.server.Owed(),
		Waiting:  s.Waiting,
		Running:  s.Running,
		KVUsage:  s.KVUsage,
		Sampled:  s.at,
		Failing:  e.failingSince(),
		Page:     s.Page,
	}
}

// failingSince returns when scrapes began to fail, or the zero time if the last one succeeded.
func (e *Endpoint) failingSince() time.Time {
	if since := e.failing.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// Stats are the values of an endpoint for its metrics.
type Stats struct {
	Pod, Address   string
	Gauges         Gauges  // of the last scrape
	InFlight       int64   // open leases
	Picks          int64   // leases since the start
	Tokens         int64   // uncached tokens of prompts placed here that are not computed yet
	Factor         float64 // slowdown relative to the pool
	ScrapeFailures int64   // since the start
	SampleAge      time.Duration
	Failing        time.Duration // time since scrapes began to fail
	Sampled        bool          // a scrape has succeeded
	Ejected        bool          // receives no requests for now
}

// Stale reports whether there is no sample, or scrapes have failed for longer than the given time.
func (s *Stats) Stale(after time.Duration) bool { return !s.Sampled || s.Failing > after }

// Stats returns the values of the endpoint at the given time.
func (e *Endpoint) Stats(now time.Time) Stats {
	failing := time.Duration(0)
	if since := e.failing.Load(); since != nil {
		failing = now.Sub(*since)
	}
	s := e.sample.Load()
	return Stats{
		Pod:            e.identity.Pod,
		Address:        e.address,
		Gauges:         s.Gauges,
		InFlight:       e.open.Load(),
		Picks:          e.acquired.Load(),
		Tokens:         int64(e.server.Owed()),
		Factor:         e.server.Factor(),
		ScrapeFailures: e.failures.Load(),
		SampleAge:      now.Sub(s.at),
		Failing:        failing,
		Sampled:        s.taken,
		Ejected:        e.health.Ejected(),
	}
}

// finish counts the end of one request.
func (e *Endpoint) finish() {
	e.released.Add(1)
	e.open.Add(-1)
}
