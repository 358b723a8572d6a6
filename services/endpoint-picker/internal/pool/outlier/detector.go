// Package outlier detects failing endpoints and ejects them for a while.
//
//	           N failures in a row, or a refused scrape
//	in use  ------------------------------------------->  ejected
//	   ^                                                     |  its time is over
//	   |  the request succeeded                              v
//	   +-------------------------------------------------  probed
//	                                                         |  it failed
//	                                                         +--> ejected, for twice as long
//
// A failure is a response 502, 503 or 504, which gateways also return for a refused or reset connection. A probe is one of
// the regular requests. An endpoint that was ejected because of a refused scrape also returns with the next scrape that is
// not refused.
//
// At most half of the endpoints are ejected at a time, and never the last one: if most endpoints fail, the cause is probably
// elsewhere, and sending all requests to fewer endpoints would only move the failures.
package outlier

import (
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// Options configures when endpoints are ejected, and for how long.
type Options struct {
	Failures int           // consecutive ones; 0 disables ejection
	Base     time.Duration // of the first ejection; it doubles after each failed probe
	Longest  time.Duration
}

// DefaultOptions returns options that eject quickly and end ejections quickly.
func DefaultOptions() Options {
	return Options{Failures: 5, Base: time.Second, Longest: 30 * time.Second}
}

// observer counts ejections.
type observer interface {
	ObserveEjection(cause string)
}

// Causes of ejections, as label values of a metric.
const (
	CauseResponses = "responses"
	CauseScrape    = "scrape"
	CauseProbe     = "probe"
)

// Detector ejects endpoints.
type Detector struct {
	options  Options
	log      *zap.Logger
	observer observer
	clock    clock.PassiveClock

	mu        sync.Mutex // serializes ejections, so that they are counted correctly
	endpoints []*endpoint.Endpoint
}

// Params are the parameters of New.
type Params struct {
	Options  Options
	Log      *zap.Logger
	Observer observer
	Clock    clock.PassiveClock
}

// New returns a Detector without history.
func New(p Params) *Detector {
	return &Detector{options: p.Options, log: p.Log, observer: p.Observer, clock: p.Clock}
}

// SetEndpoints sets the list of endpoints.
func (d *Detector) SetEndpoints(endpoints []*endpoint.Endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endpoints = endpoints
}

// Failure reports whether a status indicates a broken server.
func Failure(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// Responded records the status of a response of the endpoint. It ignores statuses below 100.
func (d *Detector) Responded(e *endpoint.Endpoint, status int) {
	if d.options.Failures == 0 || status < 100 {
		return
	}
	h := e.Health()
	if !Failure(status) {
		if h.Succeed() {
			d.restored(e)
		}
		return
	}
	failures, probe := h.Fail()
	switch {
	case probe:
		d.eject(e, CauseProbe)
	case failures >= d.options.Failures && !h.Ejected():
		d.eject(e, CauseResponses)
	}
}

// ScrapeRefused records that no server listens at the endpoint. It restarts an ejection that is over.
func (d *Detector) ScrapeRefused(e *endpoint.Endpoint) {
	if d.options.Failures > 0 && !d.clock.Now().Before(e.Health().Until()) {
		d.eject(e, CauseScrape)
	}
}

// Scraped records that the endpoint has answered a scrape.
func (d *Detector) Scraped(e *endpoint.Endpoint) {
	if h := e.Health(); h.Ejected() && h.Cause() == CauseScrape && h.Succeed() {
		d.restored(e)
	}
}

// eject ejects the endpoint, if enough others remain.
func (d *Detector) eject(e *endpoint.Endpoint, cause string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := e.Health()
	if !h.Ejected() && !d.room() {
		return
	}
	times := h.Eject(cause, func(times int) time.Time {
		return d.clock.Now().Add(min(d.options.Base<<min(times-1, 16), d.options.Longest))
	})
	d.observer.ObserveEjection(cause)
	if times == 1 {
		d.log.Warn("Ejected endpoint", append(fields(e), zap.String("cause", cause))...)
	}
}

// room reports whether another endpoint may be ejected.
func (d *Detector) room() bool {
	ejected := 1
	for _, e := range d.endpoints {
		if e.Health().Ejected() {
			ejected++
		}
	}
	return 2*ejected <= len(d.endpoints)
}

func (d *Detector) restored(e *endpoint.Endpoint) { d.log.Info("Restored endpoint", fields(e)...) }

func fields(e *endpoint.Endpoint) []zap.Field {
	id := e.Identity()
	return []zap.Field{zap.String(logging.KeyPod, id.Namespace+"/"+id.Pod), zap.String(logging.KeyEndpoint, e.Address())}
}
