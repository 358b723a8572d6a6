// Package endpoint holds what the picker knows of one model server: who it is and how much it has to do.
//
// Load comes from two sources. A Sample is what the server's own metrics page said at one moment; it sees all
// traffic, and it is old. Leases are the requests that this picker has placed; they are known at once, and they are
// not all traffic. Load joins the two:
//
//	requests = waiting + running of the last sample
//	         + leases acquired since that sample began
//	         - leases released since that sample began
//	         and never less than the leases that are open
//
// A lease whose stream ended before the response did (the gateway closes early, or never shows the response) is
// abandoned: its request goes on, unseen. It stays counted until a sample that began after it was acquired, because
// that sample contains it, or until a time limit when no sample comes.
//
//	            Acquire                  Release
//	(nothing) ----------->  open  ---------------------->  (nothing)   counts as released
//	                          |
//	                          | Abandon           newer sample
//	                          +-------> abandoned ------->  (nothing)   the sample has it
//	                                        |  time limit
//	                                        +----------->  (nothing)   counts as released
//
// A sample holds until the next: an endpoint where nothing happens is scraped seldom, and its last sample is as true as
// it was. What makes an endpoint doubtful is a scrape that fails, so it is from the first of those since the last sample
// that its age is counted (Load.Failing).
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

// An Identity names one port of one pod for as long as the pod lives: a pod that comes back under the same name or
// address is another endpoint.
type Identity struct {
	Namespace, Pod string
	UID            string // of the pod
	Address        netip.AddrPort
}

// A Description is who an endpoint is, and what is said of it, which may change while it lives.
type Description struct {
	Identity

	Rank   int               // of its port among those of its pod, from 0
	Labels map[string]string // of its pod; nobody changes them
}

// said is a description and what follows from it.
type said struct {
	Description

	server scheduling.Server
	hash   uint64 // of its name and port
}

// An Endpoint is one model server.
type Endpoint struct {
	identity Identity
	said     atomic.Pointer[said]
	address  string
	since    time.Time

	health   Health
	server   *predict.Server
	prefixes *prefix.Index // nil if there is none
	cache    int           // its number there
	traffic  *Traffic      // nil if nobody wants to know
	blocks   atomic.Int64  // of the cache, as its page said last

	acquired atomic.Int64 // leases, ever
	released atomic.Int64 // leases, ever
	open     atomic.Int64 // leases, now, the abandoned included
	failures atomic.Int64 // scrapes that failed, ever
	refusals atomic.Int64 // scrapes in a row for which there was no connection to be had
	failing  atomic.Pointer[time.Time]
	sample   atomic.Pointer[sample]

	mu        sync.Mutex
	abandoned []abandoned
}

// Gauges are the figures of one metrics page.
type Gauges struct {
	Waiting float64          // requests in the queue
	Running float64          // requests in the batch
	KVUsage float64          // part of the KV cache in use, 0 to 1
	Blocks  int              // that the KV cache has, of prefix.BlockTokens each; 0 if that was not said
	Page    *scheduling.Page // what else was asked for, nil if there was nothing
}

// A Mark is the moment at which a scrape began.
type Mark struct {
	at                       time.Time
	acquired, released, open int64
}

// sample is what a scrape said, and when it began.
type sample struct {
	Gauges
	Mark

	taken bool    // it is not the one that stands for none
	rate  float64 // requests that end in a second, of ours and others', fading; 0 before any has
}

// others is how many requests of the page we have not placed.
func (s *sample) others() float64 {
	return max(s.Waiting+s.Running-float64(s.acquired-s.released), 0)
}

// abandoned is a lease whose request goes on unseen.
type abandoned struct {
	acquired int64 // its place in the order of acquisition
	at       time.Time
}

// New returns an endpoint without load that is known since the given time, whose prefixes are not remembered.
func New(d Description, since time.Time, server *predict.Server) *Endpoint {
	e := &Endpoint{identity: d.Identity, address: d.Address.String(), since: since, server: server, cache: -1}
	e.Describe(d)
	e.sample.Store(&sample{Mark: Mark{at: since}})
	return e
}

// Identity returns who the endpoint is.
func (e *Endpoint) Identity() Identity { return e.identity }

// Describe takes a newer description of the endpoint.
func (e *Endpoint) Describe(d Description) {
	server := scheduling.Server{Name: d.Namespace + "/" + d.Pod, Address: d.Address, Labels: d.Labels}
	e.said.Store(&said{Description: d, server: server, hash: server.Hash()})
}

// Description returns what was last said of the endpoint. It must not be changed.
func (e *Endpoint) Description() *Description { return &e.said.Load().Description }

// Server returns the same, as schedulers want it. It must not be changed.
func (e *Endpoint) Server() *scheduling.Server { return &e.said.Load().server }

// Health says whether the endpoint works.
func (e *Endpoint) Health() *Health { return &e.health }

// Hash stands for the endpoint's name and port. It is the same in all pickers.
func (e *Endpoint) Hash() uint64 { return e.said.Load().hash }

// Address returns "ip:port", an IPv6 address in brackets.
func (e *Endpoint) Address() string { return e.address }

// Acquire counts one request that is about to be sent to the endpoint.
func (e *Endpoint) Acquire() *Lease {
	e.open.Add(1)
	return &Lease{endpoint: e, acquired: e.acquired.Add(1), probe: e.health.Placed()}
}

// Place is Acquire for a request whose answer will be seen to begin.
func (e *Endpoint) Place(now time.Time, p predict.Prompt) *Lease {
	l := e.Acquire()
	l.request = e.server.Begin(now, p, e.sample.Load().others())
	return l
}

// PlaceUnseen is Acquire for a request whose answer will come in one piece.
func (e *Endpoint) PlaceUnseen(now time.Time, p predict.Prompt) *Lease {
	l := e.Acquire()
	l.request = e.server.BeginUnseen(now, p)
	return l
}

// Wait estimates the seconds to the first token of a request that is placed now. What the last sample has more than we
// placed is the work of others. Where there was a queue, what came since is in it.
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

// Factor is how much slower the endpoint is than its pool.
func (e *Endpoint) Factor() float64 { return e.server.Factor() }

// BeginScrape returns the mark that Record wants. It must be called before the page is asked for.
func (e *Endpoint) BeginScrape(now time.Time) Mark {
	return Mark{at: now, acquired: e.acquired.Load(), released: e.released.Load(), open: e.open.Load()}
}

// Record takes the result of the scrape that began at the mark.
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

// rate estimates how many requests end in a second, all that the page tells of: as many more than ours as there are more.
func (e *Endpoint) rate(m Mark, g Gauges) float64 {
	last := e.sample.Load()
	seconds, ended := m.at.Sub(last.at).Seconds(), float64(m.released-last.released)
	if seconds <= 0 || last.Running == 0 {
		return last.rate // it was idle: that says nothing of how fast it can be
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

// resize tells the index how large the cache is.
func (e *Endpoint) resize(blocks int) {
	if e.prefixes != nil && blocks > 0 && e.blocks.Swap(int64(blocks)) != int64(blocks) {
		e.prefixes.Resize(e.cache, blocks)
	}
}

// fill tells the index that so many tokens have come into the cache that we know nothing else of: they push out what was
// there.
func (e *Endpoint) fill(tokens float64) {
	if e.prefixes != nil {
		e.prefixes.Fill(e.cache, int(tokens/prefix.BlockTokens))
	}
}

// RecordFailure counts the scrape that began at the mark and brought nothing.
func (e *Endpoint) RecordFailure(m Mark) {
	e.refusals.Store(0)
	e.fail(m)
}

// RecordRefusal is RecordFailure for a scrape whose connection was refused: nobody listens there.
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

// Refusals returns how many scrapes in a row were refused, up to the last one.
func (e *Endpoint) Refusals() int64 { return e.refusals.Load() }

// Movements returns how many leases have begun and how many have ended, together, ever. When it stands still, so does
// all that this picker does to the endpoint.
func (e *Endpoint) Movements() int64 { return e.acquired.Load() + e.released.Load() }

// Foresee returns what a page that is asked for at the mark would say if nothing but our own leases had begun and ended
// since the last sample: the requests it would have, and the figures of that sample. It reports false if there is none.
func (e *Endpoint) Foresee(m Mark) (requests float64, last Gauges, ok bool) {
	s := e.sample.Load()
	since := (m.acquired - s.acquired) - (m.released - s.released)
	return max(s.Waiting+s.Running+float64(since), float64(m.open), 0), s.Gauges, s.taken
}

// ExpireAbandoned lets go of the leases that were abandoned before the given time and that no sample has replaced.
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

// Load returns what the endpoint has to do now.
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

// failingSince returns when scrapes began to fail, the zero time if the last one was good.
func (e *Endpoint) failingSince() time.Time {
	if since := e.failing.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// Stats are the figures of an endpoint for its metrics.
type Stats struct {
	Pod, Address   string
	Gauges         Gauges  // of the last scrape
	InFlight       int64   // leases that are open
	Picks          int64   // leases, ever
	Tokens         int64   // of prompts that were placed here and are not computed yet, but for cached ones
	Factor         float64 // how much slower it is than its pool
	ScrapeFailures int64   // ever
	SampleAge      time.Duration
	Failing        time.Duration // for how long scrapes have failed
	Sampled        bool          // there was a good scrape
	Ejected        bool          // no requests go there for now
}

// Stale reports whether there are no figures, or scrapes have failed for longer than that.
func (s *Stats) Stale(after time.Duration) bool { return !s.Sampled || s.Failing > after }

// Stats returns the figures of the endpoint at the given time.
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
