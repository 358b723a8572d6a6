package modelserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

const (
	metricsPath = "/metrics"
	jitter      = 0.1 // of the interval, either way, so that scrapes of many endpoints do not come in step
	idleTimeout = 30 * time.Second
)

// Options says how model servers are scraped.
type Options struct {
	Interval     time.Duration // between the starts of two scrapes of an endpoint
	Timeout      time.Duration // of one scrape
	StaleAfter   time.Duration // without a good page, an endpoint's figures are no longer believed
	LeaseTimeout time.Duration // limit of leases that were abandoned and that no page replaces
}

// DefaultOptions returns what suits vLLM: its page costs it a millisecond or two.
func DefaultOptions() Options {
	return Options{Interval: 200 * time.Millisecond, Timeout: time.Second, StaleAfter: 2 * time.Second, LeaseTimeout: time.Minute}
}

// observer takes the measurements of every scrape.
type observer interface {
	ObserveScrape(d time.Duration, err error)
}

// Scraper scrapes endpoints.
type Scraper struct {
	options  Options
	log      *zap.Logger
	observer observer
	clock    clock.Clock
	client   *http.Client

	wanted  chan []*endpoint.Endpoint // holds the last set only
	running map[*endpoint.Endpoint]context.CancelFunc
	workers sync.WaitGroup
}

// ScraperParams is what a Scraper is made of.
type ScraperParams struct {
	Options  Options
	Log      *zap.Logger
	Observer observer
	Clock    clock.Clock
}

// NewScraper returns a Scraper without endpoints. It does nothing until Run.
func NewScraper(p ScraperParams) *Scraper {
	return &Scraper{
		options:  p.Options,
		log:      p.Log,
		observer: p.Observer,
		clock:    p.Clock,
		client: &http.Client{
			Transport: &http.Transport{ // no proxy: model servers are in the cluster
				DialContext:         (&net.Dialer{Timeout: p.Options.Timeout}).DialContext,
				MaxIdleConnsPerHost: 1,
				IdleConnTimeout:     idleTimeout + p.Options.Interval,
				DisableCompression:  true, // unpacking costs more than the bytes
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		wanted:  make(chan []*endpoint.Endpoint, 1),
		running: map[*endpoint.Endpoint]context.CancelFunc{},
	}
}

// SetEndpoints says which endpoints there are from now on. It is called by one goroutine.
func (s *Scraper) SetEndpoints(endpoints []*endpoint.Endpoint) {
	select {
	case <-s.wanted: // nobody has looked at the last set yet
	default:
	}
	s.wanted <- endpoints
}

// Run scrapes until ctx ends, and returns when every scrape has ended.
func (s *Scraper) Run(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	defer s.workers.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case endpoints := <-s.wanted:
			s.apply(ctx, endpoints)
		}
	}
}

// apply starts and stops workers.
func (s *Scraper) apply(ctx context.Context, endpoints []*endpoint.Endpoint) {
	gone := make(map[*endpoint.Endpoint]context.CancelFunc, len(s.running))
	for e, cancel := range s.running {
		gone[e] = cancel
	}
	for _, e := range endpoints {
		if _, ok := s.running[e]; ok {
			delete(gone, e)
			continue
		}
		workerCtx, cancel := context.WithCancel(ctx)
		s.running[e] = cancel
		s.workers.Go(func() { s.follow(workerCtx, e) })
	}
	for e, cancel := range gone {
		cancel()
		delete(s.running, e)
	}
}

// follow scrapes one endpoint until ctx ends.
func (s *Scraper) follow(ctx context.Context, e *endpoint.Endpoint) {
	w := &worker{Scraper: s, endpoint: e, url: "http://" + e.Address() + metricsPath, buf: make([]byte, maxLine), lastGood: s.clock.Now()}
	timer := s.clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		began := s.clock.Now()
		w.scrape(ctx, began)
		now := s.clock.Now()
		e.ExpireAbandoned(now.Add(-s.options.LeaseTimeout))
		timer.Reset(max(s.pause()-now.Sub(began), 0))
	}
}

// pause is the interval, varied.
func (s *Scraper) pause() time.Duration {
	return time.Duration(float64(s.options.Interval) * (1 - jitter + 2*jitter*rand.Float64()))
}

// worker is what one endpoint's goroutine keeps.
type worker struct {
	*Scraper
	endpoint *endpoint.Endpoint
	url      string
	buf      []byte
	lastGood time.Time
	said     bool // that there are no good pages
}

// scrape gets one page and records what it says.
func (w *worker) scrape(ctx context.Context, began time.Time) {
	mark := w.endpoint.BeginScrape(began)
	gauges, err := w.get(ctx)
	if ctx.Err() != nil {
		return // the endpoint is gone: no news of it
	}
	w.observer.ObserveScrape(w.clock.Since(began), err)
	if err != nil {
		w.endpoint.RecordFailure()
		w.sayStale(began, err)
		return
	}
	w.endpoint.Record(mark, gauges)
	w.lastGood = began
	if w.said {
		w.said = false
		w.log.Info("Recovered metrics of endpoint", w.fields()...)
	}
}

// get reads the page.
func (w *worker) get(ctx context.Context) (endpoint.Gauges, error) {
	ctx, cancel := context.WithTimeout(ctx, w.options.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return endpoint.Gauges{}, fmt.Errorf("make metrics request: %w", err)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return endpoint.Gauges{}, fmt.Errorf("get metrics page: %w", err)
	}
	gauges, err := w.read(resp)
	return gauges, errors.Join(err, resp.Body.Close())
}

func (w *worker) read(resp *http.Response) (endpoint.Gauges, error) {
	if resp.StatusCode != http.StatusOK {
		return endpoint.Gauges{}, fmt.Errorf("get metrics page: status %d", resp.StatusCode)
	}
	return readPage(resp.Body, w.buf)
}

// sayStale logs, once, that an endpoint's figures are no longer believed.
func (w *worker) sayStale(now time.Time, err error) {
	if w.said || now.Sub(w.lastGood) < w.options.StaleAfter {
		return
	}
	w.said = true
	w.log.Warn("Lost metrics of endpoint, others are preferred to it", append(w.fields(), zap.Error(err))...)
}

func (w *worker) fields() []zap.Field {
	id := w.endpoint.Identity()
	return []zap.Field{zap.String(logging.KeyPod, id.Namespace+"/"+id.Pod), zap.String(logging.KeyEndpoint, w.endpoint.Address())}
}
