package modelserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// worker is the state of one endpoint. It belongs to the scheduler, and during a scrape to the scrape.
type worker struct {
	*Scraper
	*Turn

	ctx    context.Context
	cancel context.CancelFunc

	// How to scrape.
	plan      *Plan
	described *endpoint.Description
	engine    *matcher
	request   []byte
	target    netip.AddrPort
	secure    *tls.Config // nil for http
	reading   *reading
	conn      *connection
	sampling  sampling

	worked       time.Duration // processor time of the scrape
	failingSince time.Time
	staleLogged  bool // the lack of valid pages was logged
}

// scrapeOnce fetches one page and records its values.
func (w *worker) scrapeOnce(began time.Time) {
	w.refreshTarget()
	mark := w.endpoint.StartScrape(began)
	gauges, err := w.readPage()
	if w.ctx.Err() != nil {
		return // the endpoint was removed
	}
	w.params.ObserveScrape(w.params.Clock.Now().Sub(began), err)
	if err != nil {
		w.recordFailure(mark, began, err)
		return
	}
	w.recordPage(mark, &gauges)
	w.sampleTokens(began)
}

func (w *worker) recordPage(mark endpoint.ScrapeStart, g *endpoint.Gauges) {
	w.RecordPage(mark, g)
	w.params.Outliers.OnScrape(w.endpoint)
	w.failingSince = time.Time{}
	if w.staleLogged {
		w.staleLogged = false
		w.params.Log.Info("Recovered metrics of endpoint", w.logFields()...)
	}
}

// recordFailure counts a failure, and logs once when an endpoint's values become stale.
func (w *worker) recordFailure(mark endpoint.ScrapeStart, began time.Time, err error) {
	w.RecordFailure(mark)
	if errors.Is(err, errRefused) {
		w.params.Outliers.OnScrapeRefused(w.endpoint)
		w.sampling.again = true
	}
	if w.failingSince.IsZero() {
		w.failingSince = began
	}
	if w.staleLogged || began.Sub(w.failingSince) < w.params.Options.StaleAfter {
		return
	}
	w.staleLogged = true
	if errors.Is(err, errNoGauges) {
		err = fmt.Errorf("%w: name the engine in the label %s of the pod, or give the address of its metrics page with the flags "+
			"--model-server-metrics-port and --model-server-metrics-path",
			err, w.plan.settings.Extractor.EngineLabel)
	}
	w.params.Log.Warn("Lost metrics of endpoint, preferred other endpoints", append(w.logFields(), zap.Error(err))...)
}

// refreshTarget applies changes of the configuration and of the endpoint's description since the last scrape.
func (w *worker) refreshTarget() {
	p, d := w.Scraper.plan.Load(), w.endpoint.Description()
	if p == w.plan && d == w.described {
		return
	}
	if p != w.plan {
		w.hangUp()
		w.sampling.again = true
	}
	engine, known := p.engineOf(d)
	if !known && (p != w.plan || !maps.Equal(d.Labels, w.described.Labels)) {
		w.params.Log.Warn("Could not find engine of endpoint, used the default", append(w.logFields(),
			zap.String("engine", d.Labels[p.settings.Extractor.EngineLabel]), zap.String("default", engine.Name))...)
	}
	w.plan, w.described, w.secure = p, d, cmp.Or(d.TLS, p.tls)
	target := p.pageAddress(d, engine)
	if engine == w.engine && target == w.target {
		return
	}
	if target != w.target {
		w.hangUp()
		w.target = target
	}
	w.engine, w.reading, w.onlyWaiting = engine, newReading(engine), len(engine.running) == 0
	w.request = p.requestBytes(w.target.String(), engine)
}

// readPage reads the page, over the existing connection or a new one.
func (w *worker) readPage() (endpoint.Gauges, error) {
	deadline := time.Now().Add(w.params.Options.Timeout)
	w.worked = 0
	for {
		reused := w.conn != nil
		if !reused {
			w.worked += workOfConnection
			if w.secure != nil {
				w.worked += workOfHandshake
			}
			conn, err := w.dial.openConnection(w.ctx, w.target, w.secure, deadline)
			if err != nil {
				return endpoint.Gauges{}, fmt.Errorf("get metrics page: %w", err)
			}
			w.conn = conn
		}
		w.reading.work = work{}
		gauges, again, err := w.conn.fetchPage(w.request, w.reading, deadline)
		w.worked += w.reading.work.estimatedTime()
		if !again {
			w.hangUp()
		}
		switch {
		case err == nil:
			return gauges, nil
		case reused && errors.Is(err, errSilent):
			continue // the server had closed it
		}
		return endpoint.Gauges{}, fmt.Errorf("get metrics page: %w", err)
	}
}

// hangUp closes the connection, if there is one.
func (w *worker) hangUp() {
	if w.conn != nil {
		w.conn.closeConn()
		w.conn = nil
	}
}

func (w *worker) logFields() []zap.Field {
	return []zap.Field{zap.String(logging.KeyPod, w.endpoint.Identity().PodName()), zap.String(logging.KeyEndpoint, w.endpoint.Address())}
}
