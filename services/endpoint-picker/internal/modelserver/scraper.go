package modelserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// MinInterval is the minimum configurable interval.
const MinInterval = 10 * time.Millisecond

// Options configures the scraping of model servers.
type Options struct {
	Interval   Interval      // between the starts of two scrapes of an endpoint
	Budget     float64       // scrapes per second, for all endpoints of the process together
	Timeout    time.Duration // of one scrape
	StaleAfter time.Duration // time of failing scrapes after which an endpoint's values are stale

	ProbeTokenizers bool // ask servers for the tokens of a sample text, with the same timeout
}

// DefaultOptions returns options for vLLM, where a page takes a millisecond or two.
func DefaultOptions() Options {
	return Options{
		Interval: Interval{Fastest: 100 * time.Millisecond, Slowest: time.Second}, Budget: 400,
		Timeout: time.Second, StaleAfter: 2 * time.Second, ProbeTokenizers: true,
	}
}

// outliers is notified of refused and of successful scrapes.
type outliers interface {
	OnScrapeRefused(e *endpoint.Endpoint)
	OnScrape(e *endpoint.Endpoint)
}

// Scraper scrapes endpoints.
type Scraper struct {
	params ScraperParams
	dial   dialer
	wanted chan []*endpoint.Endpoint // contains only the last set
	plan   atomic.Pointer[Plan]

	// Used only by the scheduler.
	schedule *Schedule
	workers  map[*Turn]*worker
	scrapes  sync.WaitGroup // and requests for tokens
}

// ScraperParams are the parameters of NewScraper.
type ScraperParams struct {
	Options  Options
	Budget   *Budget // of Options.Budget, shared by all scrapers
	Log      *zap.Logger
	Outliers outliers
	Clock    clock.Clock
	// ObserveScrape receives the measurements of every scrape. Refused connections are errRefused.
	ObserveScrape func(d time.Duration, err error)
	// RecordSampleCount receives the tokens that a server counted in a text. It returns false for a number that no tokenizer makes.
	// It is nil without Options.ProbeTokenizers.
	RecordSampleCount func(model string, bytes, tokens int) bool
}

// NewScraper returns a Scraper without endpoints and with the default settings. Run starts it.
func NewScraper(p ScraperParams) *Scraper {
	s := &Scraper{
		params:   p,
		dial:     new(net.Dialer).DialContext,
		wanted:   make(chan []*endpoint.Endpoint, 1),
		schedule: NewSchedule(p.Budget, rand.Float64),
	}
	plan, err := CompilePlan(DefaultSettings(), p.Options)
	if err != nil {
		panic(fmt.Sprintf("built-in engines: %v", err)) // tests make them
	}
	s.SetPlan(plan)
	return s
}

// SetPlan makes a plan effective, from the next scrape of each endpoint.
func (s *Scraper) SetPlan(p *Plan) { s.plan.Store(p) }

// SetEndpoints sets the list of endpoints. Only one goroutine may call it.
func (s *Scraper) SetEndpoints(endpoints []*endpoint.Endpoint) {
	select {
	case <-s.wanted: // the last set is still unread
	default:
	}
	s.wanted <- endpoints
}

// Run scrapes until ctx ends, and returns when every scrape and every request for tokens has ended.
func (s *Scraper) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer s.scrapes.Wait()
	defer cancel()
	timer := s.params.Clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case endpoints := <-s.wanted:
			s.applyEndpoints(ctx, endpoints)
		case <-timer.C():
		}
		if len(s.workers) == 0 {
			timer.Stop()
			continue
		}
		timer.Reset(s.startDueScrapes(s.params.Clock.Now()))
	}
}

// applyEndpoints creates workers for new endpoints and ends those of removed ones.
func (s *Scraper) applyEndpoints(ctx context.Context, endpoints []*endpoint.Endpoint) {
	gone := s.workers
	s.workers = make(map[*Turn]*worker, len(endpoints))
	for _, t := range s.schedule.SetEndpoints(endpoints) {
		w := gone[t]
		delete(gone, t)
		if w == nil {
			w = &worker{Scraper: s, Turn: t}
			w.ctx, w.cancel = context.WithCancel(ctx)
		}
		s.workers[t] = w
	}
	for _, w := range gone {
		w.cancel()
	}
}

// startDueScrapes starts the due scrapes, and returns the time until the next beat.
func (s *Scraper) startDueScrapes(now time.Time) time.Duration {
	p := s.plan.Load()
	if !p.settings.Off {
		for _, t := range s.schedule.StartDue(now, p.interval) {
			w := s.workers[t]
			s.scrapes.Go(func() { // a silent server does not delay others
				defer func() { w.EndTurn(w.worked) }()
				w.scrapeOnce(now)
			})
		}
	}
	return s.schedule.WaitTime(p.interval)
}
