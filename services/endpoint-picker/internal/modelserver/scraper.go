package modelserver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// MinInterval is the minimum configurable interval.
const MinInterval = 10 * time.Millisecond

const (
	beatsInInterval = 2 // of the fastest interval
	shortestBeat    = 5 * time.Millisecond
	longestBeat     = 50 * time.Millisecond
	burstBeats      = 2 // beats whose budget can accumulate
)

// Options configures the scraping of model servers.
type Options struct {
	Interval   Interval      // between the starts of two scrapes of an endpoint
	Budget     float64       // scrapes per second, for all endpoints together
	Timeout    time.Duration // of one scrape
	StaleAfter time.Duration // time of failing scrapes after which an endpoint's values are stale
}

// DefaultOptions returns options for vLLM, where a page takes a millisecond or two.
func DefaultOptions() Options {
	return Options{
		Interval: Interval{Fastest: 100 * time.Millisecond, Slowest: time.Second}, Budget: 400,
		Timeout: time.Second, StaleAfter: 2 * time.Second,
	}
}

// observer receives the measurements of every scrape. Refused connections are ErrRefused.
type observer interface {
	ObserveScrape(d time.Duration, err error)
}

// outliers is notified of refused and of successful scrapes.
type outliers interface {
	ScrapeRefused(e *endpoint.Endpoint)
	Scraped(e *endpoint.Endpoint)
}

// Scraper scrapes endpoints.
type Scraper struct {
	options  Options
	log      *zap.Logger
	observer observer
	outliers outliers
	clock    clock.Clock

	wanted chan []*endpoint.Endpoint // contains only the last set
	plan   atomic.Pointer[Plan]
	asked  atomic.Int64 // time of the last call of Hurry, in Unix nanoseconds

	// Used only by the scheduler.
	workers   []*worker
	scrapes   sync.WaitGroup
	movements int64     // of all leases, at the last beat
	busyAt    time.Time // when they last moved
	allowance float64   // scrapes allowed now
	beatAt    time.Time
	due       []dueWorker
}

type dueWorker struct {
	*worker

	at time.Time
}

// ScraperParams are the parameters of NewScraper.
type ScraperParams struct {
	Options  Options
	Log      *zap.Logger
	Observer observer
	Outliers outliers
	Clock    clock.Clock
}

// NewScraper returns a Scraper without endpoints and with the default settings. Run starts it.
func NewScraper(p ScraperParams) *Scraper {
	s := &Scraper{
		options:  p.Options,
		log:      p.Log,
		observer: p.Observer,
		outliers: p.Outliers,
		clock:    p.Clock,
		wanted:   make(chan []*endpoint.Endpoint, 1),
	}
	plan, err := Prepare(DefaultSettings(), p.Options)
	if err != nil {
		panic(fmt.Sprintf("built-in engines: %v", err)) // tests make them
	}
	s.Use(plan)
	return s
}

// Prepare compiles settings, and reads the files that they name. Scrapers with the same options can share the plan.
func Prepare(settings Settings, o Options) (*Plan, error) {
	p, err := newPlan(settings, o.Interval)
	if err != nil {
		return nil, fmt.Errorf("prepare scraping: %w", err)
	}
	return p, nil
}

// Use makes a plan effective, from the next scrape of each endpoint.
func (s *Scraper) Use(p *Plan) { s.plan.Store(p) }

// SetEndpoints sets the list of endpoints. Only one goroutine may call it.
func (s *Scraper) SetEndpoints(endpoints []*endpoint.Endpoint) {
	select {
	case <-s.wanted: // the last set is still unread
	default:
	}
	s.wanted <- endpoints
}

// Hurry announces a reader of values that places no requests. Placed requests need no announcement.
func (s *Scraper) Hurry() { s.asked.Store(s.clock.Now().UnixNano()) }

// Run scrapes until ctx ends, and returns when every scrape has ended.
func (s *Scraper) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer s.scrapes.Wait()
	defer cancel()
	timer := s.clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case endpoints := <-s.wanted:
			s.apply(ctx, endpoints)
		case <-timer.C():
		}
		if len(s.workers) == 0 {
			timer.Stop()
			continue
		}
		s.beat(s.clock.Now())
		timer.Reset(time.Duration(vary() * float64(s.period())))
	}
}

// period is the time between two beats.
func (s *Scraper) period() time.Duration {
	return min(max(s.plan.Load().interval.Fastest/beatsInInterval, shortestBeat), longestBeat)
}

// apply creates workers for new endpoints and ends those of removed ones.
func (s *Scraper) apply(ctx context.Context, endpoints []*endpoint.Endpoint) {
	gone := make(map[*endpoint.Endpoint]*worker, len(s.workers))
	for _, w := range s.workers {
		gone[w.endpoint] = w
	}
	s.workers = make([]*worker, 0, len(endpoints))
	for _, e := range endpoints {
		w := gone[e]
		delete(gone, e)
		if w == nil {
			w = &worker{Scraper: s, endpoint: e}
			w.ctx, w.cancel = context.WithCancel(ctx)
		}
		s.workers = append(s.workers, w)
	}
	for _, w := range gone {
		w.cancel()
	}
}

// beat starts the due scrapes.
func (s *Scraper) beat(now time.Time) {
	for _, w := range s.choose(now) {
		s.start(w.worker, now)
	}
}

// choose returns the workers to start now, the longest overdue first, within the budget. A wake-up costs more than a scrape,
// so it includes scrapes that are due before the next beat.
func (s *Scraper) choose(now time.Time) []dueWorker {
	if s.plan.Load().settings.Off {
		return nil
	}
	period := s.period()
	s.allowance += s.options.Budget * now.Sub(s.beatAt).Seconds()
	s.allowance = min(s.allowance, max(s.options.Budget*burstBeats*period.Seconds(), 1))
	s.beatAt = now

	a, i, soon := s.attention(now), s.plan.Load().interval, now.Add(period/2)
	s.due = s.due[:0]
	for _, w := range s.workers {
		if w.busy.Load() {
			continue
		}
		if at := w.dueAt(i, a); !at.After(soon) {
			s.due = append(s.due, dueWorker{w, at})
		}
	}
	slices.SortStableFunc(s.due, func(a, b dueWorker) int { return a.at.Compare(b.at) })
	chosen := s.due[:min(len(s.due), int(s.allowance))]
	s.allowance -= float64(len(chosen))
	return chosen
}

// attention returns whether requests were placed recently, or wait to be placed.
func (s *Scraper) attention(now time.Time) attention {
	var movements int64
	for _, w := range s.workers {
		movements += w.endpoint.Movements()
	}
	if movements != s.movements {
		s.movements, s.busyAt = movements, now
	}
	since := now.Add(-s.plan.Load().interval.Slowest)
	if s.busyAt.Before(since) && s.asked.Load() < since.UnixNano() {
		return unwatched
	}
	return watched
}

// start starts a worker's scrape in its own goroutine, so that a silent server does not delay others.
func (s *Scraper) start(w *worker, now time.Time) {
	w.busy.Store(true)
	w.begin(now)
	s.scrapes.Go(func() {
		defer w.busy.Store(false)
		w.scrape(now)
	})
}
