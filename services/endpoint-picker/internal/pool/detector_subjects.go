package pool

import (
	"maps"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

const (
	// maxSubjects is the number of subjects whose refusals are compared.
	maxSubjects = 256
	// minMissing is the number of refusals with the status 404, which a request for a model that the server has does not get, and the
	// number of answers of others.
	minMissing = 2
)

// A subject is what requests ask for: a model, by one API. Servers differ in what they have: one lacks an adapter that others loaded. Each
// subject is followed from its first refusal on.
type subject struct {
	tally // of refusals, and answers that began

	lastRefused time.Time
	histories   map[*endpoint.Endpoint]*subjectHistory
}

// A subjectHistory is what one endpoint did with the requests of a subject.
type subjectHistory struct {
	refusals streak
	doubtful bool // one of the refusals, or the last answer, which ended early, was doubtful and not steered
	lack     *lack
}

// A lack says that an endpoint refuses the requests of a subject, which others answer. All but until is never changed.
type lack struct {
	until endpoint.AtomicMonotonic // when a request may go there again
	pause time.Duration
	since time.Time // when the pause began
}

func newLack(now time.Time, pause time.Duration) *lack {
	l := &lack{pause: pause, since: now}
	l.until.Store(endpoint.ToMonotonic(now.Add(pause)))
	return l
}

// Lacks are the endpoints that lack the subject of a request. They are never changed.
type Lacks map[*endpoint.Endpoint]*lack

// CanUse reports whether a request may go to the endpoint now: it has the subject, or the pause is over.
func (l Lacks) CanUse(e *endpoint.Endpoint, now time.Time) bool {
	lack := l[e]
	return lack == nil || endpoint.ToMonotonic(now) >= lack.until.Load()
}

// MarkPlaced records that a request goes to the endpoint. If the endpoint lacks the subject, the next one goes there after another pause.
func (l Lacks) MarkPlaced(e *endpoint.Endpoint, now time.Time) {
	if lack := l[e]; lack != nil {
		lack.until.Store(endpoint.ToMonotonic(now.Add(lack.pause)))
	}
}

// EndpointsLacking returns the endpoints that lack the subject of a request, nil if there are none.
func (d *Detector) EndpointsLacking(subject uint64) Lacks {
	if all := d.lacking.Load(); all != nil {
		return (*all)[subject]
	}
	return nil
}

// countAnswer counts an answer to a request of a subject that is followed. It reports whether the endpoint refused some of these requests
// before: then it does not lack the subject, which says something of the endpoint. The caller holds mu.
func (d *Detector) countAnswer(e *endpoint.Endpoint, r *Response) (refused bool) {
	s := d.subjects[r.Subject]
	if s == nil {
		return false
	}
	h := s.historyOf(e)
	before := *h
	h.refusals.endStreak(&s.tally)
	h.doubtful, h.lack = false, nil
	if before.lack != nil {
		d.publishLacks()
		d.log.Info("Endpoint answers requests for the model again", append(endpointFields(e), zap.String(logging.KeyModel, r.Model))...)
	}
	return before.doubtful
}

// countRefusal counts a refusal of a request of a subject, or an answer to one that ended early. An endpoint that is ejected for all
// requests lacks nothing. The caller holds mu.
func (d *Detector) countRefusal(e *endpoint.Endpoint, r *Response, ejected bool) {
	s := d.subjects[r.Subject]
	if s == nil {
		s = d.newSubject(r.Subject)
	}
	h := s.historyOf(e)
	s.lastRefused = d.clock.Now()
	if !r.HasContent {
		h.refusals.failures++
	}
	h.doubtful = h.doubtful || r.Signal == request.Doubtful
	lacks := d.refusesAll(&h.refusals, &s.tally) || r.ModelMissing && h.lacksModel(s)
	switch {
	case h.lack == nil && lacks && !ejected:
		h.lack, h.refusals.failures = newLack(s.lastRefused, d.options.BaseEjection), 0
		d.publishLacks()
		d.observe(causeModel)
		d.log.Warn("Endpoint refused all requests for a model: from now on the other endpoints, which answer them, get these requests. "+
			"Check that the model server has loaded the model", append(endpointFields(e), zap.String(logging.KeyModel, r.Model),
			zap.String("failure", r.Failure))...)
	case h.lack == nil, r.Placed.Before(h.lack.since):
	case !lacks && s.failsOften(): // it says nothing: the next request goes there at once
		h.lack.until.Store(endpoint.ToMonotonic(s.lastRefused))
	default:
		h.lack = newLack(s.lastRefused, min(2*h.lack.pause, d.options.MaxEjection))
		d.publishLacks()
	}
}

// lacksModel reports whether an endpoint that says that it does not have the model does not have it.
func (h *subjectHistory) lacksModel(s *subject) bool {
	return h.refusals.isLong(minMissing, &s.tally) && h.refusals.othersAnswers(&s.tally) >= minMissing
}

// historyOf returns the history of an endpoint.
func (s *subject) historyOf(e *endpoint.Endpoint) *subjectHistory {
	h := s.histories[e]
	if h == nil {
		h = &subjectHistory{refusals: streak{answers: s.answers}}
		s.histories[e] = h
	}
	return h
}

// newSubject begins to follow a subject. If there are too many, it forgets one that nobody answers, or the oldest one. The caller holds mu.
func (d *Detector) newSubject(id uint64) *subject {
	if len(d.subjects) >= maxSubjects {
		var oldest uint64
		var last *subject
		for id, s := range d.subjects {
			if last == nil || (s.answers > 0) == (last.answers > 0) && s.lastRefused.Before(last.lastRefused) || s.answers == 0 &&
				last.answers > 0 {
				oldest, last = id, s
			}
		}
		delete(d.subjects, oldest)
		if last.answers > 0 {
			d.publishLacks()
		}
	}
	s := &subject{histories: map[*endpoint.Endpoint]*subjectHistory{}}
	d.subjects[id] = s
	return s
}

// forgetRemoved removes endpoints that have left the pool from all subjects. The caller holds mu.
func (d *Detector) forgetRemoved(remaining map[*endpoint.Endpoint]*history) {
	for _, s := range d.subjects {
		maps.DeleteFunc(s.histories, func(e *endpoint.Endpoint, _ *subjectHistory) bool { return remaining[e] == nil })
	}
	d.publishLacks()
}

// publishLacks makes the lacks visible to picks. The caller holds mu.
func (d *Detector) publishLacks() {
	all := map[uint64]Lacks{}
	for id, s := range d.subjects {
		for e, h := range s.histories {
			if h.lack == nil {
				continue
			}
			if all[id] == nil {
				all[id] = Lacks{}
			}
			all[id][e] = h.lack
		}
	}
	if len(all) == 0 {
		d.lacking.Store(nil)
		return
	}
	d.lacking.Store(&all)
}
