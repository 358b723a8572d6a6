// Package outlier finds endpoints that fail and keeps requests from them for a while.
//
//	           N failures in a row, or a refused scrape
//	in use  ------------------------------------------->  ejected
//	   ^                                                     |  its time is over
//	   |  the request succeeded                              v
//	   +-------------------------------------------------  probed
//	                                                         |  it failed
//	                                                         +--> ejected, for twice as long
//
// A failure is a response 502, 503 or 504, which is also what gateways make of a connection that was refused or reset.
// A probe is one request, of those that come anyway. An endpoint that was ejected because a scrape was refused comes
// back with the next scrape that is not, too.
//
// At most half of the endpoints are ejected at a time, and never the last: where most fail the fault is likely
// elsewhere, and to spread what is left over fewer would only move it.
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

// Options says when endpoints are ejected, and for how long.
type Options struct {
	Failures int           // in a row; 0 ejects nobody
	Base     time.Duration // of the first ejection; each that follows a failed probe is twice as long
	Longest  time.Duration
}

// DefaultOptions returns what is quick to notice and quick to forgive.
func DefaultOptions() Options {
	return Options{Failures: 5, Base: time.Second, Longest: 30 * time.Second}
}

// observer counts ejections.
type observer interface {
	ObserveEjection(cause string)
}

// Causes of ejections, as a metric's label has them.
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

	mu        sync.Mutex // one ejection at a time, so that they are counted
	endpoints []*endpoint.Endpoint
}

// Params is what a Detector is made of.
type Params struct {
	Options  Options
	Log      *zap.Logger
	Observer observer
	Clock    clock.PassiveClock
}

// New returns a Detector that has seen nothing.
func New(p Params) *Detector {
	return &Detector{options: p.Options, log: p.Log, observer: p.Observer, clock: p.Clock}
}

// SetEndpoints says which endpoints there are from now on.
func (d *Detector) SetEndpoints(endpoints []*endpoint.Endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endpoints = endpoints
}

// Failure reports whether a status is one that a broken server causes.
func Failure(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// Responded takes the status of a response of the endpoint. Statuses below 100 say nothing.
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

// ScrapeRefused says that nothing listens where the endpoint should be. An ejection that is over begins anew.
func (d *Detector) ScrapeRefused(e *endpoint.Endpoint) {
	if d.options.Failures > 0 && !d.clock.Now().Before(e.Health().Until()) {
		d.eject(e, CauseScrape)
	}
}

// Scraped says that the endpoint has answered a scrape.
func (d *Detector) Scraped(e *endpoint.Endpoint) {
	if h := e.Health(); h.Ejected() && h.Cause() == CauseScrape && h.Succeed() {
		d.restored(e)
	}
}

// eject keeps requests from the endpoint, if enough others are left.
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

// room tells whether one more may be ejected.
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
