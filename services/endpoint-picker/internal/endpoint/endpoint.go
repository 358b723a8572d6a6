// Package endpoint holds the identity and the load of one model server.
//
// Load comes from two sources. A Sample is the content of the server's metrics page at one moment: it covers all traffic,
// but is old. Leases are the requests that this replica of the picker has placed, and those of which other replicas report:
// they are current, but not all traffic. Load combines both:
//
//	requests = waiting + running of the last sample
//	         + leases acquired since that sample began
//	         - leases released since that sample began
//	         + leases of failed requests that still count
//	         and never less than the leases that are open
//
// A sample is valid until the next: an endpoint without activity is scraped rarely, and its last sample stays correct. Only
// failing scrapes make an endpoint doubtful, so its age counts from the first failure since the last sample (Load.Failing).
//
// What is known of an endpoint beyond its load belongs to its Observer, which the pool's factory attaches.
//
// All methods may be called from any goroutine; those of the pick path take no lock. The locks are taken in this order:
//
//	Lease.mu        ->  Endpoint.leases
//	Endpoint.pages  ->  Endpoint.leases
//
// Lease.mu is held while a Tracker is called, and Endpoint.pages while an Observer is. Health.mu is a leaf.
package endpoint

import (
	"crypto/tls"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// An Identity names one port of one pod during the life of the pod: a new pod with the same name or address is another
// endpoint.
type Identity struct {
	Namespace, Pod string
	UID            string // of the pod
	Address        netip.AddrPort
}

// PodName returns the name of the pod with its namespace.
func (i Identity) PodName() string { return i.Namespace + "/" + i.Pod }

// A Description is the identity of an endpoint and its properties, which may change during its life.
type Description struct {
	Identity

	Rank   int               // index of its port among the ports of its pod, from 0
	Labels map[string]string // of its pod; read-only
	// MetricsPort is the port of the metrics page; 0 is that of the configuration, the engine, or Address, in this order.
	MetricsPort uint16
	TLS         *tls.Config // of connections to the server, with its name; nil: plain HTTP, or for its page what the configuration says
}

// A Server contains the properties of an endpoint for schedulers. It is never changed.
type Server struct {
	Name    string // "namespace/pod"
	Address netip.AddrPort
	Labels  map[string]string // of its pod
}

// NameHash returns a hash of the endpoint's name and port. It is the same in all pickers.
func (s *Server) NameHash() uint64 { return hashServer(s.Name, s.Address.Port()) }

// An Observer follows the pages of one endpoint. The pool's factory attaches it: the estimator's state of the server.
type Observer interface {
	// ObservePage is called for each page before it becomes the last sample, one at a time.
	ObservePage(next *Sample)
	// HeldTokens returns the tokens of KV cache memory that the requests of this picker hold there.
	HeldTokens() int64
	// Estimates returns the current estimates, for metrics.
	Estimates() Estimates
}

// Estimates are values of an observer for metrics.
type Estimates struct {
	Backlog  int64   // uncached prompt tokens placed here that are not computed yet
	Slowdown float64 // of the server relative to its pool

	Prefix PrefixTokens // of requests for which the server reported what it had cached

	PrefillRate   float64       // prompt tokens per second; 0 if unknown
	BacklogTime   time.Duration // to compute Backlog
	BatchCapacity float64       // requests that the server runs at once; 0 if unknown
}

// PrefixTokens are sums of prompt tokens.
type PrefixTokens struct {
	Prompt   int64 `json:"prompt"`
	Expected int64 `json:"expected"` // in the cache when the request was placed
	Reported int64 `json:"reported"` // by the server
}

// ExpectedRate returns the hit rate that the picker expected.
func (t PrefixTokens) ExpectedRate() float64 { return float64(t.Expected) / float64(max(t.Prompt, 1)) }

// ReportedRate returns the hit rate that the server reported.
func (t PrefixTokens) ReportedRate() float64 { return float64(t.Reported) / float64(max(t.Prompt, 1)) }

// description is a Description and values derived from it.
type description struct {
	Description

	server Server
	hash   uint64
}

// An Endpoint is one model server.
type Endpoint struct {
	identity    Identity
	description atomic.Pointer[description]
	address     string
	observer    Observer // may be nil

	health Health

	// Read by each pick.
	acquired    atomic.Int64 // leases since the start
	released    atomic.Int64 // leases since the start
	open        atomic.Int64 // open leases, including abandoned ones
	failedCount atomic.Int64 // length of failedLeases
	failing     AtomicMonotonic
	sample      atomic.Pointer[Sample]

	arrived    atomic.Int64 // leases that moved here from another endpoint, since the start
	remote     atomic.Int64 // leases of other replicas since the start, counted in acquired, too
	remoteOpen atomic.Int64 // those that are open
	failures   atomic.Int64 // failed scrapes since the start
	results    [results]atomic.Int64

	pages        sync.Mutex // serializes RecordSample
	leases       sync.Mutex // guards the following, and the change of the sample that ends abandoned leases
	abandoned    []abandonedLease
	failedLeases []failedLease
}

// New returns an endpoint without load, discovered at the given time. The observer may be nil.
func New(d Description, since time.Time, o Observer) *Endpoint {
	e := &Endpoint{identity: d.Identity, address: d.Address.String(), observer: o}
	e.UpdateDescription(d)
	e.sample.Store(&Sample{ScrapeStart: ScrapeStart{At: since}})
	return e
}

// Identity returns the identity of the endpoint.
func (e *Endpoint) Identity() Identity { return e.identity }

// UpdateDescription sets a newer description of the endpoint.
func (e *Endpoint) UpdateDescription(d Description) {
	server := Server{Name: d.PodName(), Address: d.Address, Labels: d.Labels}
	e.description.Store(&description{Description: d, server: server, hash: server.NameHash()})
}

// Description returns the last description of the endpoint. It must not be changed.
func (e *Endpoint) Description() *Description { return &e.description.Load().Description }

// Server returns the description in the form that schedulers need. It must not be changed.
func (e *Endpoint) Server() *Server { return &e.description.Load().server }

// NameHash returns a hash of the endpoint's name and port. It is the same in all pickers.
func (e *Endpoint) NameHash() uint64 { return e.description.Load().hash }

// Address returns "ip:port", an IPv6 address in brackets.
func (e *Endpoint) Address() string { return e.address }

// Observer returns the observer of the endpoint, which may be nil.
func (e *Endpoint) Observer() Observer { return e.observer }

// Health returns the health of the endpoint.
func (e *Endpoint) Health() *Health { return &e.health }

// Load is the load of an endpoint at one moment. Its counters are read one after the other without a lock, so a request that
// begins or ends meanwhile may be in some of them only.
type Load struct {
	*Sample // the last one

	Requests float64   // current requests: the sample, corrected by leases acquired and released since
	Open     float64   // the part of them that this picker placed, in all replicas that report
	Failed   float64   // the part of those that failed, and count for some time
	Since    float64   // leases acquired since the sample began, minus those released since then, plus the failed ones
	Failing  Monotonic // when scrapes began to fail, unset if the last one succeeded
}

// Load returns the current load of the endpoint.
func (e *Endpoint) Load() Load {
	var l Load
	e.LoadInto(&l)
	return l
}

// LoadInto is Load for picks, which read the load of every endpoint: a copy of one would take as long as reading it.
func (e *Endpoint) LoadInto(l *Load) {
	s, failed := e.sample.Load(), e.failedCount.Load()
	open := float64(e.open.Load() + failed)
	since := float64((e.acquired.Load() - s.Acquired) - (e.released.Load() - s.Released) + failed)
	l.Sample, l.Requests, l.Open, l.Failed, l.Since = s, max(s.RequestCount()+since, open, 0), open, float64(failed), since
	l.Failing = e.failing.Load()
}

// Sample returns the last sample.
func (e *Endpoint) Sample() *Sample { return e.sample.Load() }

// Movements returns the number of leases that began or ended, since the start. While it is constant, this picker does not
// change the load of the endpoint.
func (e *Endpoint) Movements() int64 { return e.acquired.Load() + e.released.Load() }

// Stats are the values of an endpoint for its metrics.
type Stats struct {
	Estimates

	Pod, Address   string
	Gauges         Gauges // of the last scrape
	InFlight       int64  // open leases of this replica
	Picks          int64  // requests that this replica placed here, since the start
	ScrapeFailures int64  // since the start
	Results        [results]int64
	SampleAge      time.Duration
	Failing        time.Duration // time since scrapes began to fail
	Sampled        bool          // a scrape has succeeded
	Ejected        bool          // receives no requests for now
}

// Stale reports whether there is no sample, or scrapes have failed for longer than the given time.
func (s *Stats) Stale(after time.Duration) bool { return !s.Sampled || s.Failing > after }

// StatsAt returns the values of the endpoint at the given time.
func (e *Endpoint) StatsAt(now time.Time) Stats {
	l := e.Load()
	stats := Stats{
		Estimates:      Estimates{Slowdown: 1},
		Pod:            e.identity.Pod,
		Address:        e.address,
		Gauges:         l.Gauges,
		InFlight:       max(e.open.Load()-e.remoteOpen.Load(), 0),
		Picks:          e.acquired.Load() - e.arrived.Load() - e.remote.Load(),
		ScrapeFailures: e.failures.Load(),
		SampleAge:      now.Sub(l.At),
		Sampled:        l.IsScraped,
		Ejected:        e.health.IsEjected(),
	}
	for i := range stats.Results {
		stats.Results[i] = e.results[i].Load()
	}
	if l.Failing.IsSet() {
		stats.Failing = ToMonotonic(now).Sub(l.Failing)
	}
	if e.observer != nil {
		stats.Estimates = e.observer.Estimates()
	}
	return stats
}
