package endpoint

import "time"

// Gauges are the values of one metrics page.
type Gauges struct {
	Waiting float64 // requests in the queue
	Running float64 // requests in the batch
	KVUsage float64 // share of the KV cache in use, 0 to 1
	Blocks  int     // size of the KV cache in blocks of prefixindex.BlockTokens; 0 if unknown
	Page    *Page   // other requested values, nil if none
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

// A Mark is the start of a scrape, with the counters of leases at that time.
type Mark struct {
	At                       time.Time
	Acquired, Released, Open int64
}

// A Sample is the result of a scrape, and its start. It is never changed.
type Sample struct {
	Gauges
	Mark

	Taken bool // false for the initial value
}

// Requests returns the number of requests on the page.
func (s *Sample) Requests() float64 { return s.Waiting + s.Running }

// Ours returns the number of leases when the page was requested.
func (s *Sample) Ours() float64 { return float64(s.Acquired - s.Released) }

// Others returns the number of requests on the page that this picker did not place.
func (s *Sample) Others() float64 { return max(s.Requests()-s.Ours(), 0) }

// BeginScrape returns the mark for Record. Call it before requesting the page.
func (e *Endpoint) BeginScrape(now time.Time) Mark {
	return Mark{At: now, Acquired: e.acquired.Load(), Released: e.released.Load(), Open: e.open.Load()}
}

// Record stores the result of the scrape that began at the mark.
func (e *Endpoint) Record(m Mark, g Gauges) {
	next := &Sample{Gauges: g, Mark: m, Taken: true}
	e.pages.Lock()
	defer e.pages.Unlock()
	if e.observer != nil {
		e.observer.ObservePage(e.sample.Load(), next)
	}
	e.refusals.Store(0)
	if e.failing.Load() != nil {
		e.failing.Store(nil)
	}
	e.replaceSample(next)
}

// RecordFailure counts a failure of the scrape that began at the mark.
func (e *Endpoint) RecordFailure(m Mark) {
	e.refusals.Store(0)
	e.countFailure(m)
}

// RecordRefusal is RecordFailure for a refused connection.
func (e *Endpoint) RecordRefusal(m Mark) {
	e.refusals.Add(1)
	e.countFailure(m)
}

func (e *Endpoint) countFailure(m Mark) {
	e.failures.Add(1)
	if e.failing.Load() == nil {
		e.failing.Store(&m.At)
	}
}

// Refusals returns the number of consecutive refused scrapes, including the last one.
func (e *Endpoint) Refusals() int64 { return e.refusals.Load() }

// PredictPage predicts a page requested at the mark, if only our own leases began and ended since the last sample: its
// number of requests, and the gauges of that sample. It returns false without a sample.
func (e *Endpoint) PredictPage(m Mark) (requests float64, last Gauges, ok bool) {
	s := e.sample.Load()
	since := (m.Acquired - s.Acquired) - (m.Released - s.Released)
	return max(s.Requests()+float64(since), float64(m.Open), 0), s.Gauges, s.Taken
}
