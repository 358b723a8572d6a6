// Package learn learns what a replica of a variant serves within its targets from what its servers show, for variants without a measured
// profile.
//
//	learner.go    the Learner of a variant: a sample in, a snapshot.Measured out
//	point.go      operating points: what the servers showed at one batch size and one kind of traffic
//	law.go        the law that explains the points, fitted to them
//	fit.go        robust least squares with coefficients that are not negative
//	profile.go    the profile of package queueing that stands for the law under the current traffic
//	prefill.go    the same for servers that only prefill, which have no decode steps
//	capacity.go   the capacity of a replica, and how sure it is
//	constants.go  every tunable number
//
// A Learner keeps at most maxPoints operating points of at most maxAge. A decode step takes
//
//	ITL = α + (b + κ·context)·n + d·(prompt tokens in the step)
//
// and a prefill takes one such step, its own tokens, and the wait for the prefills of others, which grows with the part of the time
// that prefills take. Each coefficient has a prior, so that one operating point gives a usable answer. With more points the prior
// fades.
//
// Nothing is extrapolated far: a replica is trusted with the rate at exploration times the largest batch that the servers showed
// (snapshot.Measured.Limit), and at least at the batch smallest. Each pass that confirms a larger batch widens the range. What a replica
// was seen to serve within the targets counts as it is, whatever the law says.
//
// A Learner is deterministic: the same samples give the same result. It reads no clock.
package learn

import (
	"math"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Sources of measured capacities.
const (
	SourcePicker = "picker" // the endpoint picker learned a part of it
	SourceEngine = "engine" // only the metrics of the servers
)

// Learner learns the capacity of the replicas of one variant. It is not safe for concurrent use.
type Learner struct {
	prefill bool // the servers decode nothing

	points     []point
	samples    int
	deviation  float64                // mean relative error of the predictions of the last samples
	judged     int                    // number of them, at most errorMemory
	last       time.Time              // time of the last sample
	traffic    traffic                // of the last sample with requests
	kvTokens   float64                // size of the cache of a replica
	picker     *snapshot.PickerSample // of the last sample that had it
	pickerTime time.Time              // of that sample
}

// New returns a Learner that knows nothing.
func New() *Learner { return &Learner{} }

// NewPrefill returns a Learner of servers that only prefill.
func NewPrefill() *Learner { return &Learner{prefill: true} }

// Observe adds a sample and returns what the Learner knows, for the given targets. A sample that is not newer than the last one, that
// has impossible numbers or that comes from no replica adds nothing.
func (l *Learner) Observe(s *snapshot.Sample, targets queueing.Targets) *snapshot.Measured {
	if isUsable(s) && s.Time.After(l.last) {
		l.addSample(s)
	}
	return l.Measured(targets)
}

// Measured returns what the Learner knows, for the given targets. It is nil before the first sample with requests.
func (l *Learner) Measured(targets queueing.Targets) *snapshot.Measured {
	if len(l.points) == 0 {
		return nil
	}
	m := &snapshot.Measured{
		Error: l.meanError(), Samples: l.samples, Source: SourceEngine, Input: l.traffic.Input, Output: l.traffic.Output,
	}
	picker := l.freshPicker()
	if picker != nil {
		m.Source = SourcePicker
	}
	m.Proven = toMicro(l.provenRate(targets))
	if l.prefill {
		l.measurePrefill(m, picker)
		return m
	}
	law := fitLaw(l.points, l.last, picker)
	m.Profile, m.Tail = l.buildProfile(law, targets, picker)
	m.Limit = toMicro(l.rateLimit(law))
	return m
}

// addSample records a usable sample.
func (l *Learner) addSample(s *snapshot.Sample) {
	l.last = s.Time
	l.dropExpired()
	if s.KVTokens > 0 {
		l.kvTokens = s.KVTokens
	}
	if p := s.Picker; p != nil && isUsablePicker(p) {
		l.picker, l.pickerTime = new(*p), s.Time
	}
	p, ok := newPoint(s)
	if !ok {
		return
	}
	l.traffic = p.traffic
	if l.prefill {
		l.judgePrefill(&p)
		l.forgetBeginning(&p)
	} else {
		l.judgeSample(&p)
	}
	l.mergePoint(&p)
	l.samples = min(l.samples+1, maxSamples)
}

// judgeSample compares a sample with the prediction for it, before the sample is learned.
func (l *Learner) judgeSample(p *point) {
	if len(l.points) == 0 {
		return
	}
	law := fitLaw(l.points, l.last, l.freshPicker())
	expected, seen := law.tokenLatency(p.Batch, p.traffic), p.ITL
	if seen <= 0 {
		expected, seen = law.firstToken(p.Batch, p.traffic), p.firstToken()
	}
	l.recordError(expected, seen)
}

// recordError records how far a prediction was off.
func (l *Learner) recordError(expected, seen float64) {
	if seen <= 0 || expected <= 0 {
		return
	}
	off := min(math.Abs(expected/seen-1), 1)
	l.judged = min(l.judged+1, errorMemory)
	l.deviation += (off - l.deviation) / float64(l.judged)
}

// meanError returns the error of the profile. Before enough predictions were judged, a prior error counts as one of them.
func (l *Learner) meanError() float64 {
	return (l.deviation*float64(l.judged) + priorError) / float64(l.judged+1)
}

// freshPicker returns the figures of the picker, or nil if they are too old.
func (l *Learner) freshPicker() *snapshot.PickerSample {
	if l.picker == nil || l.last.Sub(l.pickerTime) > pickerAge {
		return nil
	}
	return l.picker
}
