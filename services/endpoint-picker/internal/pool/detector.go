// A Detector finds failing endpoints and ejects them for a while.
//
//	           failures, or a refused scrape
//	in use  ------------------------------------------->  ejected
//	   ^                                                     |  its time is over
//	   |  the request was answered                           v
//	   +-------------------------------------------------  probed
//	                                                         |  it failed
//	                                                         +--> ejected, for twice as long
//
// Package request derives a health signal from each response, and package pick passes it on (responseObserver, whose comment shows what
// else a failure causes). An endpoint is ejected after a number of failures without an answer in between, or when it fails out of
// proportion: far more often than the other endpoints of the pool at the same time. What all of them do, such as refusing a wrong
// request, ejects none. A probe is one of the regular requests. An endpoint that was ejected because of a refused scrape also returns
// with the next scrape that is not refused.
//
// Answers that end early for an unknown reason, because the server broke off or the client left, are compared in the same way. If clients
// may have chosen the endpoint, these answers eject it only if it completes no other one, and several prompts differ.
//
// An endpoint that refuses all requests for one model, which others answer, is ejected for the requests for this model alone. So is one
// that says that it does not have this model, before it has answered any request for another one.
//
// At most half of the endpoints are ejected at a time, and never the last one: if most endpoints fail, the cause is probably
// elsewhere, and sending all requests to fewer endpoints would only move the failures.
//
// Servers that seem to have stopped get no requests before they are ejected either: see suspect.go of package estimate.

package pool

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// DetectorOptions configures when endpoints are ejected, and for how long.
type DetectorOptions struct {
	Failures     int           // without an answer in between; 0 disables ejection
	BaseEjection time.Duration // of the first ejection; it doubles with each one that follows soon
	MaxEjection  time.Duration
}

// DefaultDetectorOptions returns options that eject quickly and end ejections quickly.
func DefaultDetectorOptions() DetectorOptions {
	return DetectorOptions{Failures: 5, BaseEjection: time.Second, MaxEjection: 30 * time.Second}
}

// Causes of ejections, as label values of a metric.
const (
	causeResponses = "responses"
	causeScrape    = "scrape"
	causeProbe     = "probe"
	causeModel     = "model" // of the requests for one model only
)

// Detector ejects endpoints.
type Detector struct {
	options DetectorOptions
	log     *zap.Logger
	observe func(cause string) // counts ejections
	clock   clock.PassiveClock

	mu           sync.Mutex // guards the following, and serializes ejections, so that they are counted correctly
	endpoints    []*endpoint.Endpoint
	histories    map[*endpoint.Endpoint]*history
	allCounts    signalCounts // of all endpoints together
	refusals     tally        // and answers that began
	failures     tally        // and whole answers
	wholeAnswers wholeAnswers
	subjects     map[uint64]*subject

	lacking atomic.Pointer[map[uint64]Lacks] // of subjects; nil while no endpoint lacks one
}

// A Response is what ObserveResponse needs of the response of an endpoint.
type Response struct {
	Signal       request.HealthSignal
	Placed       time.Time // when the request was placed
	Subject      uint64    // of the request: a hash of its model and its API
	Prompt       uint64    // a hash of the first half of its prompt
	Model        string    // for the log
	ModelMissing bool      // the signal is Doubtful because the server says that it does not have the model
	HasContent   bool      // the answer had content
	Failure      string    // what was wrong with the response, for the log
}

// NewDetector returns a Detector without history. It calls observe with the cause of each ejection.
func NewDetector(o DetectorOptions, log *zap.Logger, observe func(cause string), c clock.PassiveClock) *Detector {
	return &Detector{
		options: o, log: log, observe: observe, clock: c,
		histories: map[*endpoint.Endpoint]*history{}, subjects: map[uint64]*subject{},
	}
}

// SetEndpoints sets the list of endpoints. What is known of others is forgotten.
func (d *Detector) SetEndpoints(endpoints []*endpoint.Endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	remaining := make(map[*endpoint.Endpoint]*history, len(endpoints))
	for _, e := range endpoints {
		if h := d.histories[e]; h != nil {
			remaining[e] = h
		}
	}
	d.endpoints, d.histories = endpoints, remaining
	d.forgetRemoved(remaining)
}

// ObserveResponse records a response of the endpoint.
func (d *Detector) ObserveResponse(e *endpoint.Endpoint, r Response) {
	if d.options.Failures == 0 || r.Signal == request.NoSignal {
		return
	}
	f := d.evaluateResponse(e, &r)
	h := e.Health()
	switch {
	case f.old:
	case r.Signal == request.Answered:
		if !(h.IsEjected() && d.onTrial(e)) && h.RecordSuccess() {
			d.logRestored(e)
		}
	case r.Signal == request.Faulty, r.Signal != request.Begun && h.IsEjected(): // a doubtful response is a failed probe
		d.countFailure(e, f)
	case f.out:
		d.ejectEndpoint(e, causeResponses, f.reason)
	}
}

// OnScrapeRefused records that no server listens at the endpoint. It restarts an ejection that is over.
func (d *Detector) OnScrapeRefused(e *endpoint.Endpoint) {
	if d.options.Failures > 0 && !d.clock.Now().Before(e.Health().EjectedUntil()) {
		d.ejectEndpoint(e, causeScrape, "nothing listens on the metrics port")
	}
}

// OnScrape records that the endpoint has answered a scrape.
func (d *Detector) OnScrape(e *endpoint.Endpoint) {
	h := e.Health()
	if cause, _ := h.LastEjection(); h.IsEjected() && cause == causeScrape && h.RecordSuccess() {
		d.logRestored(e)
	}
}

// countFailure counts a failure. After a probe that fails like other endpoints, the next request is another probe.
func (d *Detector) countFailure(e *endpoint.Endpoint, f assessment) {
	h := e.Health()
	switch probe := h.RecordFailure(); {
	case probe && f.usual:
		h.ClearProbe()
	case probe:
		d.ejectEndpoint(e, causeProbe, "the request that probed it failed: "+f.failure)
	case !h.IsEjected() && f.out:
		d.ejectEndpoint(e, causeResponses, f.reason)
	}
}

// An assessment is what a response says of its endpoint.
type assessment struct {
	out   bool // it fails far more often than others
	usual bool // it fails like others
	old   bool // nothing: the request is older than the last ejection

	reason  string // why it is out, for people
	failure string // what was wrong with the response
}

// evaluateResponse counts a response.
func (d *Detector) evaluateResponse(e *endpoint.Endpoint, r *Response) (f assessment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.historyOf(e)
	var explain func() string // why it is out
	f.old, f.failure = r.Placed.Before(h.ejected), r.Failure
	switch r.Signal {
	case request.Answered: // it was counted when it began
		h.failures.endStreak(&d.failures)
		d.wholeAnswers.addAnswer(r)
		h.early.addWhole(r)
	case request.Begun:
		h.refusals.endStreak(&d.refusals)
		d.countSignal(h, request.Begun)
		if d.countAnswer(e, r) {
			d.countSignal(h, request.Doubtful)
			f.out = h.outOfProportion(request.Doubtful, &d.allCounts)
			explain = func() string { return h.explainShare(request.Doubtful, &d.allCounts) }
		}
	case request.Doubtful, request.Steered:
		h.recent.addFailure(r.Failure)
		if r.HasContent { // then the endpoint has the model
			h.early.addEarlyEnd(r, &d.wholeAnswers)
			f.out = h.early.isAll(&d.wholeAnswers, len(d.endpoints)-1)
			explain = func() string { return h.early.explainAll(&d.wholeAnswers) }
		} else {
			h.addRefusal(r)
			f.out = !h.lacksOne && d.refusesAll(&h.refusals, &d.refusals)
			explain = func() string { return h.refusals.explainStreak(&d.refusals) }
			f.usual = !f.out && d.refusals.failsOften()
		}
		d.countRefusal(e, r, f.out || e.Health().IsEjected())
	case request.Faulty:
		h.recent.addFailure(r.Failure)
		h.failures.failures++
		d.countSignal(h, request.Faulty)
		f.out, explain = d.failsTooOften(h)
		f.usual = !f.out && d.failures.failsOften()
	default: // it says nothing
	}
	if f.out {
		f.reason = explain()
	}
	return f
}

// failsTooOften reports whether an endpoint fails without an answer in between, or far more often than others, and why. The caller holds
// mu.
func (d *Detector) failsTooOften(h *history) (out bool, explain func() string) {
	if h.failures.isLong(d.options.Failures, &d.failures) {
		return true, func() string { return h.failures.explainStreak(&d.failures) }
	}
	return h.outOfProportion(request.Faulty, &d.allCounts), func() string { return h.explainShare(request.Faulty, &d.allCounts) }
}

// countSignal adds a response to the history of an endpoint. The caller holds mu.
func (d *Detector) countSignal(h *history, v request.HealthSignal) {
	now := d.clock.Now()
	h.addSignal(v, now)
	d.allCounts.addSignal(v, now)
}

// refusesAll reports whether an endpoint refuses all requests while others answer: it refused some since its last answer began, and the
// others began some of the answers.
func (d *Detector) refusesAll(s *streak, all *tally) bool {
	return s.isLong(minDoubtful, all) && s.othersAnswers(all) >= max(minOthers, minBegun*(len(d.endpoints)-1))
}

// historyOf returns the history of an endpoint. The caller holds mu.
func (d *Detector) historyOf(e *endpoint.Endpoint) *history {
	h := d.histories[e]
	if h == nil {
		h = &history{}
		d.histories[e] = h
	}
	return h
}

// ejectEndpoint ejects the endpoint, if enough others remain. The reason is for people.
func (d *Detector) ejectEndpoint(e *endpoint.Endpoint, cause, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := e.Health()
	if !h.IsEjected() && !d.canEject() {
		return
	}
	past, now := d.historyOf(e), d.clock.Now()
	if now.Sub(past.until) > decayTime {
		past.ejections, past.returns = 0, 0
	}
	if past.ejections > 0 && cause == causeResponses {
		past.returns++
	}
	past.trial = trialAnswers * min(past.returns, maxTrials)
	past.ejected, past.until = now, now.Add(min(d.options.BaseEjection<<min(past.ejections, 16), d.options.MaxEjection))
	past.ejections++
	past.refusals.failures, past.failures.failures = 0, 0
	if !h.IsEjected() {
		d.log.Warn("Ejected endpoint", append(endpointFields(e), past.ejectionFields(cause, reason)...)...)
	}
	h.ExplainEjection(reason)
	h.EjectUntil(cause, past.until)
	d.observe(cause)
}

// onTrial counts the answer of a probe. It reports whether the endpoint needs more of them.
func (d *Detector) onTrial(e *endpoint.Endpoint) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.historyOf(e)
	h.trial--
	return h.trial >= 0
}

// canEject reports whether another endpoint may be ejected.
func (d *Detector) canEject() bool {
	ejected := 1
	for _, e := range d.endpoints {
		if e.Health().IsEjected() {
			ejected++
		}
	}
	return 2*ejected <= len(d.endpoints)
}

func (d *Detector) logRestored(e *endpoint.Endpoint) {
	d.log.Info("Restored endpoint", endpointFields(e)...)
}

func endpointFields(e *endpoint.Endpoint) []zap.Field {
	return []zap.Field{zap.String(logging.KeyPod, e.Identity().PodName()), zap.String(logging.KeyEndpoint, e.Address())}
}
