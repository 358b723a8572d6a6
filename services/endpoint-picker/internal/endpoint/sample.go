package endpoint

import "time"

// Gauges are the values of one metrics page.
type Gauges struct {
	Waiting float64 // requests in the queue
	Running float64 // requests in the batch
	KVUsage float64 // share of the KV cache in use, 0 to 1
	Blocks  int     // size of the KV cache in tokens, divided by prefixindex.BlockTokens; 0 if unknown

	Alignment int     // tokens of which cached prefixes are multiples; 0 if unknown
	Queries   float64 // prompt tokens that were looked up in the prefix cache, since the server began
	Hits      float64 // those of them that were found
	Counted   bool    // the page has both counters

	Page *Page // other requested values, nil if none
}

// A Page contains optional values of a metrics page. It is never changed.
type Page struct {
	Adapters   *Adapters          // nil if the server does not report them
	Attributes map[string]float64 // custom metrics of the configuration, by name
}

// Adapters are the LoRA adapters of a server.
type Adapters struct {
	Max     int      // maximum number at the same time
	Running []string // with requests in the batch
	Waiting []string // with requests in the queue only
}

// A ScrapeStart is the start of a scrape, with the counters of leases at that time.
type ScrapeStart struct {
	At                       time.Time
	Acquired, Released, Open int64
	Held                     int64 // see Observer.HeldTokens
}

// A Sample is the result of a scrape, and its start. It is never changed.
type Sample struct {
	Gauges
	ScrapeStart

	IsScraped bool // false for the initial value
}

// RequestCount returns the number of requests on the page.
func (s *Sample) RequestCount() float64 { return s.Waiting + s.Running }

// OwnRequests returns the number of leases when the page was requested.
func (s *Sample) OwnRequests() float64 { return float64(s.Acquired - s.Released) }

// OtherRequests returns the number of requests on the page that this picker did not place.
func (s *Sample) OtherRequests() float64 { return max(s.RequestCount()-s.OwnRequests(), 0) }

// StartScrape returns the start of a scrape for RecordSample. Call it before requesting the page.
func (e *Endpoint) StartScrape(now time.Time) ScrapeStart {
	began := ScrapeStart{At: now, Acquired: e.acquired.Load(), Released: e.released.Load(), Open: e.open.Load()}
	if e.observer != nil {
		began.Held = e.observer.HeldTokens()
	}
	return began
}

// RecordSample stores the result of a scrape. A busy server may show the same page for a second, or for ever. As long as a page does not
// change, it belongs to the leases of the first scrape that returned it.
func (e *Endpoint) RecordSample(began ScrapeStart, g Gauges) {
	next := &Sample{Gauges: g, ScrapeStart: began, IsScraped: true}
	e.pages.Lock()
	defer e.pages.Unlock()
	last := e.sample.Load()
	if last.IsScraped && next.repeatsPage(last) {
		next.Acquired, next.Released, next.Open, next.Held = last.Acquired, last.Released, last.Open, last.Held
	}
	if e.observer != nil {
		e.observer.ObservePage(next)
	}
	if e.failing.Load().IsSet() {
		e.failing.Store(0)
	}
	e.replaceSample(next, began.Acquired)
}

// repeatsPage reports whether a page is the same as the last one. The use of the cache changes with every few tokens, so the page of a busy
// server stays the same only if it is not refreshed. Without that figure, and without requests, equal pages may be new.
func (s *Sample) repeatsPage(last *Sample) bool {
	return s.KVUsage > 0 && s.KVUsage == last.KVUsage && s.Waiting == last.Waiting && s.Running == last.Running
}

// RecordFailure counts a failure of a scrape.
func (e *Endpoint) RecordFailure(began ScrapeStart) {
	e.failures.Add(1)
	if !e.failing.Load().IsSet() {
		e.failing.Store(ToMonotonic(began.At))
	}
}

// PredictPage predicts the page of a scrape, if only our own leases began and ended since the last sample: its
// number of requests, and the gauges of that sample. It returns false without a sample.
func (e *Endpoint) PredictPage(began ScrapeStart) (requests float64, last Gauges, ok bool) {
	s := e.sample.Load()
	since := (began.Acquired - s.Acquired) - (began.Released - s.Released)
	return max(s.RequestCount()+float64(since), float64(began.Open), 0), s.Gauges, s.IsScraped
}
